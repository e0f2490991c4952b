"""Return codes of the runtime that the simulator gives, and the failure that carries one.

Numbers and names as in CANN's public header of error codes.
"""

from __future__ import annotations

from typing import Final

from cann_env.units import AclError

SUCCESS: Final = 0
INVALID_PARAM: Final = 100000
UNINITIALIZE: Final = 100001
REPEAT_INITIALIZE: Final = 100002
INVALID_FILE: Final = 100003
INVALID_MODEL_ID: Final = 100008
RT_PARAM_INVALID: Final = 107000
RT_INVALID_DEVICE_ID: Final = 107001
RT_CONTEXT_NULL: Final = 107002
RT_STREAM_CONTEXT: Final = 107003
RT_MODEL_CONTEXT: Final = 107004
RT_STREAM_MODEL: Final = 107005
RT_EVENT_TIMESTAMP_INVALID: Final = 107006
RT_EVENT_TIMESTAMP_REVERSAL: Final = 107007
RT_ADDR_UNALIGNED: Final = 107008
RT_STREAM_NO_CALLBACK_REGISTERED: Final = 107011
RT_CAPTURE_DEPENDENCY: Final = 107024
RT_STREAM_UNJOINED: Final = 107025
RT_MODEL_CAPTURED: Final = 107026
RT_STREAM_CAPTURED: Final = 107027
RT_EVENT_CAPTURED: Final = 107028
RT_STREAM_NOT_CAPTURED: Final = 107029
RT_CAPTURE_MODE_NOT_SUPPORT: Final = 107030
RT_STREAM_CAPTURE_IMPLICIT: Final = 107031
RT_STREAM_CAPTURE_UNSUPPORTED: Final = 107041
BAD_ALLOC: Final = 200000
INVALID_HANDLE: Final = 200005
RT_FEATURE_NOT_SUPPORT: Final = 207000
RT_MEMORY_ALLOCATION: Final = 207001
RT_RESOURCE_ALLOC_FAIL: Final = 207005
RT_NO_EVENT_RESOURCE: Final = 207007
RT_NO_STREAM_RESOURCE: Final = 207008
RT_NO_NOTIFY_RESOURCE: Final = 207009
RT_NO_MODEL_RESOURCE: Final = 207010
INTERNAL_ERROR: Final = 500000
RT_REPORT_TIMEOUT: Final = 507012
RT_STREAM_SYNC_TIMEOUT: Final = 507046
RT_EVENT_SYNC_TIMEOUT: Final = 507047


class Refused(AclError):
    """A call that failed: nothing was changed, and the caller gets the code.

    Attributes:
        code: One of the constants of this module.
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)
