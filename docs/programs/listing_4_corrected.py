"""The article's pipeline on two streams, corrected: two pairs of buffers, an event behind each step."""

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
    data, compute = (ok(acl.rt.create_stream()) for _ in range(2))
    loaded, computed, returned = (
        [ok(acl.rt.create_event_ex_with_flag(0)) for _ in range(2)] for _ in range(3)
    )
    pairs = [[ok(acl.rt.malloc(SIZE, HUGE_FIRST)) for _ in range(2)] for _ in range(2)]
    inputs, outputs = ([ok(acl.rt.malloc_host(SIZE)) for _ in range(BATCHES)] for _ in range(2))
    commands = [command(*pair) for pair in pairs]

    def bring_back(batch):
        turn = batch % 2
        ok(acl.rt.stream_wait_event(data, computed[turn]))
        ok(acl.rt.memcpy_async(outputs[batch], SIZE, pairs[turn][1], SIZE, D2H, data))
        ok(acl.rt.record_event(returned[turn], data))

    for batch in range(BATCHES):
        turn = batch % 2
        if batch >= 2:
            ok(acl.rt.stream_wait_event(data, computed[turn]))  # has read what is overwritten now
        ok(acl.rt.memcpy_async(pairs[turn][0], SIZE, inputs[batch], SIZE, H2D, data))
        ok(acl.rt.record_event(loaded[turn], data))
        ok(acl.rt.stream_wait_event(compute, loaded[turn]))
        if batch >= 2:
            ok(acl.rt.stream_wait_event(compute, returned[turn]))  # its result has been fetched
        ok(acl.submit_command(commands[turn], compute))
        ok(acl.rt.record_event(computed[turn], compute))
        if batch:
            bring_back(batch - 1)
    bring_back(BATCHES - 1)
    ok(acl.rt.synchronize_stream(data))
    for event in (*loaded, *computed, *returned):
        ok(acl.rt.destroy_event(event))
    ok(acl.rt.destroy_stream(data))
    ok(acl.rt.destroy_stream(compute))
    for memory in (*pairs[0], *pairs[1]):
        ok(acl.rt.free(memory))
    for memory in (*inputs, *outputs):
        ok(acl.rt.free_host(memory))
    ok(acl.rt.reset_device(0))
    ok(acl.finalize())


if __name__ == "__main__":
    main()
