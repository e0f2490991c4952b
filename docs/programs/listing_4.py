"""The article's pipeline on two streams, call by call: wrong, and `cann-env check` says where."""

import numpy as np

import cann_env.acl as acl

SIZE, BATCHES = 4 << 20, 3
HUGE_FIRST = acl.ACL_MEM_MALLOC_HUGE_FIRST
H2D, D2H = acl.ACL_MEMCPY_HOST_TO_DEVICE, acl.ACL_MEMCPY_DEVICE_TO_HOST


def ok(result):
    """What a call gives beside its return code, which has to be 0."""
    *values, code = result if isinstance(result, tuple) else (result,)
    if code != acl.ACL_SUCCESS:
        raise RuntimeError(acl.get_recent_err_msg())
    return values[0] if values else None


def command(source, target):
    """A command of one kernel."""
    desc, made = ok(acl.create_kernel_desc()), ok(acl.create_command())
    ok(acl.set_kernel_desc_attr(desc, acl.ACL_KERNEL_ATTR_TYPE, "Scale"))
    ok(acl.set_command_args(made, desc, 1, [source, target]))
    return made


def main():
    """Copy in, compute, copy out, batch after batch."""
    acl.define_kernel(
        "Scale", reads=(0,), writes=(1,), dtype="float32", function=lambda x, y: np.multiply(x, 2, out=y)
    )
    ok(acl.init())
    ok(acl.rt.set_device(0))
    data_stream, compute_stream = (ok(acl.rt.create_stream()) for _ in range(2))
    data_stream_event = ok(acl.rt.create_event_ex_with_flag(0))
    device_input, device_output = (ok(acl.rt.malloc(SIZE, HUGE_FIRST)) for _ in range(2))
    inputs, outputs = ([ok(acl.rt.malloc_host(SIZE)) for _ in range(BATCHES)] for _ in range(2))
    compute_command = command(device_input, device_output)
    for input_batch, output_batch in zip(inputs, outputs, strict=True):
        ok(acl.rt.memcpy_async(device_input, SIZE, input_batch, SIZE, H2D, data_stream))
        ok(acl.rt.stream_wait_event(compute_stream, data_stream_event))
        ok(acl.submit_command(compute_command, compute_stream))
        ok(acl.rt.memcpy_async(output_batch, SIZE, device_output, SIZE, D2H, data_stream))
        ok(acl.rt.record_event(data_stream_event, data_stream))
    ok(acl.rt.synchronize_stream(data_stream))
    ok(acl.rt.synchronize_stream(compute_stream))
    ok(acl.rt.destroy_event(data_stream_event))
    ok(acl.rt.destroy_stream(data_stream))
    ok(acl.rt.destroy_stream(compute_stream))
    for memory in (device_input, device_output):
        ok(acl.rt.free(memory))
    for memory in (*inputs, *outputs):
        ok(acl.rt.free_host(memory))
    ok(acl.rt.reset_device(0))
    ok(acl.finalize())


if __name__ == "__main__":
    main()
