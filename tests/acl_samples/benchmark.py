"""How long a model takes: some executions to warm up, then many with events around them."""

import sys

import numpy as np

import cann_env.acl as acl


def ok(ret):
    assert ret == 0, (ret, acl.get_recent_err_msg())


def dataset(desc, count, size_of):
    made = acl.mdl.create_dataset()
    for i in range(count(desc)):
        size = size_of(desc, i)
        address, ret = acl.rt.malloc(size, 0)
        ok(ret)
        ok(acl.rt.memset(address, size, 0, size))
        ok(acl.mdl.add_dataset_buffer(made, acl.create_data_buffer(address, size))[1])
    return made


def release(made):
    for i in range(acl.mdl.get_dataset_num_buffers(made)):
        buffer = acl.mdl.get_dataset_buffer(made, i)
        ok(acl.rt.free(acl.get_data_buffer_addr(buffer)))
        ok(acl.destroy_data_buffer(buffer))
    ok(acl.mdl.destroy_dataset(made))


def main(path, warm_up=2, loops=10):
    ok(acl.init())
    ok(acl.rt.set_device(0))
    stream, ret = acl.rt.create_stream()
    ok(ret)
    model, ret = acl.mdl.load_from_file(path)
    ok(ret)
    desc = acl.mdl.create_desc()
    ok(acl.mdl.get_desc(desc, model))
    for i in range(acl.mdl.get_num_inputs(desc)):
        dims, ret = acl.mdl.get_input_dims(desc, i)
        ok(ret)
        print(f"input {i}: {acl.mdl.get_input_name_by_index(desc, i)} {dims['dims']}")
    inputs = dataset(desc, acl.mdl.get_num_inputs, acl.mdl.get_input_size_by_index)
    outputs = dataset(desc, acl.mdl.get_num_outputs, acl.mdl.get_output_size_by_index)
    for _ in range(warm_up):
        ok(acl.mdl.execute(model, inputs, outputs))
    times = []
    for _ in range(loops):
        start, end = acl.rt.create_event_with_flag(0x8)[0], acl.rt.create_event_with_flag(0x8)[0]
        ok(acl.rt.record_event(start, stream))
        ok(acl.mdl.execute_async(model, inputs, outputs, stream))
        ok(acl.rt.record_event(end, stream))
        ok(acl.rt.synchronize_stream(stream))
        elapsed, ret = acl.rt.event_elapsed_time(start, end)
        ok(ret)
        times.append(elapsed)
        ok(acl.rt.destroy_event(start))
        ok(acl.rt.destroy_event(end))
    print(f"mean {np.mean(times):.4f} ms, median {np.median(times):.4f} ms")
    release(inputs)
    release(outputs)
    ok(acl.mdl.unload(model))
    ok(acl.mdl.destroy_desc(desc))
    ok(acl.rt.destroy_stream(stream))
    ok(acl.rt.reset_device(0))
    ok(acl.finalize())
    return times


if __name__ == "__main__":
    main(sys.argv[1])
