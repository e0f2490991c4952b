"""Constants of the runtime's interface, under the names of its headers and with their numbers.

The Python binding has none: programs define what they need themselves, or take them from here.
"""

from __future__ import annotations

from typing import Final

ACL_SUCCESS: Final = 0

ACL_DEVICE: Final = 0
ACL_HOST: Final = 1
"""Run modes: the program runs on the device's own processors, or on a host."""

ACL_MEM_MALLOC_HUGE_FIRST: Final = 0
ACL_MEM_MALLOC_HUGE_ONLY: Final = 1
ACL_MEM_MALLOC_NORMAL_ONLY: Final = 2
ACL_MEM_MALLOC_HUGE_FIRST_P2P: Final = 3
ACL_MEM_MALLOC_HUGE_ONLY_P2P: Final = 4
ACL_MEM_MALLOC_NORMAL_ONLY_P2P: Final = 5
ACL_MEM_MALLOC_HUGE1G_ONLY: Final = 6
ACL_MEM_MALLOC_HUGE1G_ONLY_P2P: Final = 7

ACL_MEMCPY_HOST_TO_HOST: Final = 0
ACL_MEMCPY_HOST_TO_DEVICE: Final = 1
ACL_MEMCPY_DEVICE_TO_HOST: Final = 2
ACL_MEMCPY_DEVICE_TO_DEVICE: Final = 3
ACL_MEMCPY_DEFAULT: Final = 4
ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: Final = 5
ACL_MEMCPY_INNER_DEVICE_TO_DEVICE: Final = 6
ACL_MEMCPY_INTER_DEVICE_TO_DEVICE: Final = 7

ACL_EVENT_SYNC: Final = 0x1
ACL_EVENT_CAPTURE_STREAM_PROGRESS: Final = 0x2
ACL_EVENT_TIME_LINE: Final = 0x8
ACL_EVENT_DEVICE_USE_ONLY: Final = 0x10
ACL_EVENT_EXTERNAL: Final = 0x20
ACL_EVENT_IPC: Final = 0x40

ACL_EVENT_STATUS_COMPLETE: Final = 0
ACL_EVENT_STATUS_NOT_READY: Final = 1
ACL_EVENT_STATUS_RESERVED: Final = 2
ACL_EVENT_RECORDED_STATUS_NOT_READY: Final = 0
ACL_EVENT_RECORDED_STATUS_COMPLETE: Final = 1
ACL_EVENT_WAIT_STATUS_COMPLETE: Final = 0
ACL_EVENT_WAIT_STATUS_NOT_READY: Final = 1

ACL_STREAM_STATUS_COMPLETE: Final = 0
ACL_STREAM_STATUS_NOT_READY: Final = 1

ACL_STREAM_FAST_LAUNCH: Final = 0x1
ACL_STREAM_FAST_SYNC: Final = 0x2
ACL_STREAM_PERSISTENT: Final = 0x4
ACL_STREAM_HUGE: Final = 0x8
ACL_STREAM_CPU_SCHEDULE: Final = 0x10
ACL_STREAM_DEVICE_USE_ONLY: Final = 0x20

ACL_CONTINUE_ON_FAILURE: Final = 0
ACL_STOP_ON_FAILURE: Final = 1

ACL_CALLBACK_NO_BLOCK: Final = 0
ACL_CALLBACK_BLOCK: Final = 1

ACL_DDR_MEM: Final = 0
ACL_HBM_MEM: Final = 1
ACL_DDR_MEM_HUGE: Final = 2
ACL_DDR_MEM_NORMAL: Final = 3
ACL_HBM_MEM_HUGE: Final = 4
ACL_HBM_MEM_NORMAL: Final = 5

ACL_RT_DEV_RES_CUBE_CORE: Final = 0
ACL_RT_DEV_RES_VECTOR_CORE: Final = 1

ACL_MEM_LOCATION_TYPE_HOST: Final = 0
ACL_MEM_LOCATION_TYPE_DEVICE: Final = 1

ACL_STREAM_DEFAULT: Final = 0
"""The article's name for the default stream of the current context; the real interface passes a null."""

ACL_DEVICE_TO_HOST: Final = -1
"""The article's name for the host as the place where a prefetch brings data."""

ACL_KERNEL_ATTR_TYPE: Final = "type"
ACL_KERNEL_ATTR_CORE: Final = "core"
"""The article's names for what a kernel description says: the operator, and the class of core it prefers."""

ACL_KERNEL_CORE_AI_CORE: Final = 0
ACL_KERNEL_CORE_VECTOR_CORE: Final = 1
"""The kinds of core that a kernel descriptor may prefer."""
