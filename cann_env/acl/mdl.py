"""``acl.mdl``: models, their descriptions, datasets and executions; graphs that are captured and replayed."""

from typing import Any

from cann_env.acl.calls.mdl_data import (
    add_dataset_buffer,
    create_dataset,
    destroy_dataset,
    get_dataset_buffer,
    get_dataset_num_buffers,
    get_dataset_tensor_desc,
    set_dataset_tensor_desc,
)
from cann_env.acl.calls.mdl_desc import (
    create_desc,
    destroy_desc,
    get_aipp_type,
    get_cur_output_dims,
    get_desc,
    get_desc_from_file,
    get_desc_from_mem,
    get_dynamic_batch,
    get_dynamic_hw,
    get_first_aipp_info,
    get_input_data_type,
    get_input_dims,
    get_input_dims_range,
    get_input_dims_v2,
    get_input_dynamic_dims,
    get_input_dynamic_gear_count,
    get_input_format,
    get_input_index_by_name,
    get_input_name_by_index,
    get_input_size_by_index,
    get_num_inputs,
    get_num_outputs,
    get_output_data_type,
    get_output_dims,
    get_output_format,
    get_output_index_by_name,
    get_output_name_by_index,
    get_output_size_by_index,
    get_tensor_real_name,
)
from cann_env.acl.calls.mdl_dump import finalize_dump, init_dump, set_dump
from cann_env.acl.calls.mdl_execute import (
    create_exec_config_handle,
    destroy_exec_config_handle,
    execute,
    execute_async,
    execute_v2,
    set_dynamic_batch_size,
    set_dynamic_hw_size,
    set_exec_config_opt,
    set_input_dynamic_dims,
)
from cann_env.acl.calls.mdl_load import (
    create_config_handle,
    destroy_config_handle,
    load_from_file,
    load_from_file_with_mem,
    load_from_mem,
    load_from_mem_with_mem,
    load_with_config,
    query_size,
    query_size_from_mem,
    set_config_opt,
    unload,
)
from cann_env.acl.calls.mdl_ri import (
    ri_capture_begin,
    ri_capture_end,
    ri_capture_get_info,
    ri_capture_thread_exchange_mode,
    ri_debug_print,
    ri_destroy,
    ri_execute,
    ri_execute_async,
    ri_get_name,
    ri_set_name,
)
from cann_env.acl.calls.refused import refused


def __getattr__(name: str) -> Any:
    return refused("acl.mdl", name, "models are ONNX files here, without preprocessing, queues and bundles")
