"""``acl.rt``: devices, contexts, streams, events, memory, kernels, callbacks."""

from typing import Any

from cann_env.acl.calls.refused import refused
from cann_env.acl.calls.rt_args import *
from cann_env.acl.calls.rt_callback import (
    launch_callback,
    process_report,
    subscribe_report,
    unsubscribe_report,
)
from cann_env.acl.calls.rt_copy import *
from cann_env.acl.calls.rt_device import (
    create_context,
    destroy_context,
    get_context,
    get_device,
    get_device_count,
    get_device_res_limit,
    get_device_utilization_rate,
    get_run_mode,
    get_soc_name,
    reset_device,
    reset_device_force,
    reset_device_res_limit,
    set_context,
    set_device,
    set_device_res_limit,
    set_ts_device,
    synchronize_device,
    synchronize_device_with_timeout,
)
from cann_env.acl.calls.rt_event import *
from cann_env.acl.calls.rt_info import *
from cann_env.acl.calls.rt_kernel import (
    binary_get_function,
    binary_load_from_file,
    binary_unload,
    launch_kernel,
    launch_kernel_with_config,
)
from cann_env.acl.calls.rt_managed import *
from cann_env.acl.calls.rt_memory import *
from cann_env.acl.calls.rt_notify import *
from cann_env.acl.calls.rt_pool import (
    mem_pool_create,
    mem_pool_destroy,
    mem_pool_free_async,
    mem_pool_get_attr,
    mem_pool_malloc_async,
    mem_pool_trim_to,
)
from cann_env.acl.calls.rt_stream import *


def __getattr__(name: str) -> Any:
    return refused("acl.rt", name, "the simulator has no model of what it does")
