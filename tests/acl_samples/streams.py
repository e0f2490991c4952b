"""Two streams, two copies of the model, pinned memory: copies of one overlap with the work of the other."""

import sys

import numpy as np

import cann_env.acl as acl

H2D, D2H, FLOAT = 1, 2, 11


def ok(ret):
    assert ret == 0, ret


class Lane:
    def __init__(self, path):
        self.stream, ret = acl.rt.create_stream()
        ok(ret)
        self.done, ret = acl.rt.create_event_ex_with_flag(0x1)
        ok(ret)
        self.model, ret = acl.mdl.load_from_file(path)
        ok(ret)
        self.desc = acl.mdl.create_desc()
        ok(acl.mdl.get_desc(self.desc, self.model))
        self.size_in = acl.mdl.get_input_size_by_index(self.desc, 0)
        self.size_out = acl.mdl.get_output_size_by_index(self.desc, 0)
        self.host_in, ret = acl.rt.malloc_host(self.size_in)
        ok(ret)
        self.host_out, ret = acl.rt.malloc_host(self.size_out)
        ok(ret)
        self.dev_in, self.inputs = self._device(
            [acl.mdl.get_input_size_by_index(self.desc, i) for i in range(acl.mdl.get_num_inputs(self.desc))]
        )
        self.dev_out, self.outputs = self._device(
            [
                acl.mdl.get_output_size_by_index(self.desc, i)
                for i in range(acl.mdl.get_num_outputs(self.desc))
            ]
        )

    def _device(self, sizes):
        memory, dataset = [], acl.mdl.create_dataset()
        for size in sizes:
            address, ret = acl.rt.malloc(size, 0)
            ok(ret)
            memory.append(address)
            acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, size))
        return memory, dataset

    def submit(self, image):
        acl.util.ptr_to_numpy(self.host_in, image.shape, FLOAT)[...] = image
        ok(acl.rt.memcpy_async(self.dev_in[0], self.size_in, self.host_in, self.size_in, H2D, self.stream))
        ok(acl.mdl.execute_async(self.model, self.inputs, self.outputs, self.stream))
        ok(
            acl.rt.memcpy_async(
                self.host_out, self.size_out, self.dev_out[0], self.size_out, D2H, self.stream
            )
        )
        ok(acl.rt.record_event(self.done, self.stream))

    def result(self):
        ok(acl.rt.synchronize_event(self.done))
        return np.frombuffer(acl.util.ptr_to_bytes(self.host_out, self.size_out), np.float32).copy()

    def release(self):
        ok(acl.mdl.unload(self.model))
        ok(acl.mdl.destroy_desc(self.desc))
        for dataset in (self.inputs, self.outputs):
            for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
                ok(acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, i)))
            ok(acl.mdl.destroy_dataset(dataset))
        for address in self.dev_in + self.dev_out:
            ok(acl.rt.free(address))
        ok(acl.rt.free_host(self.host_in))
        ok(acl.rt.free_host(self.host_out))
        ok(acl.rt.destroy_event(self.done))
        ok(acl.rt.destroy_stream(self.stream))


def main(path, images):
    ok(acl.init())
    ok(acl.rt.set_device(0))
    lanes, results, waiting = [Lane(path), Lane(path)], [], []
    for i, image in enumerate(images):
        lane = lanes[i % 2]
        if len(waiting) == 2:
            results.append(waiting.pop(0).result())
        lane.submit(image)
        waiting.append(lane)
    results += [lane.result() for lane in waiting]
    for lane in lanes:
        lane.release()
    ok(acl.rt.reset_device(0))
    ok(acl.finalize())
    return results


if __name__ == "__main__":
    main(sys.argv[1], [np.ones((1, 8), np.float32)] * 4)
