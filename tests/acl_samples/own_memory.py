"""Two models that share one piece of work memory, loaded through a configuration, timed with events."""

import sys

import numpy as np

import cann_env.acl as acl

LOAD_TYPE, PATH, WEIGHT, WEIGHT_SIZE, WORK, WORK_SIZE = 1, 2, 5, 6, 7, 8
FROM_FILE_WITH_MEM = 2


def ok(ret):
    assert ret == 0, (ret, acl.get_recent_err_msg())


class Session:
    def __init__(self, path, work, work_size):
        _, weight_size, ret = acl.mdl.query_size(path)
        ok(ret)
        self.weight, ret = acl.rt.malloc(weight_size, 0)
        ok(ret)
        handle = acl.mdl.create_config_handle()
        for attr, value in (
            (LOAD_TYPE, FROM_FILE_WITH_MEM),
            (PATH, path),
            (WEIGHT, self.weight),
            (WEIGHT_SIZE, weight_size),
            (WORK, work),
            (WORK_SIZE, work_size),
        ):
            ok(acl.mdl.set_config_opt(handle, attr, value))
        self.model, ret = acl.mdl.load_with_config(handle)
        ok(ret)
        ok(acl.mdl.destroy_config_handle(handle))
        self.desc = acl.mdl.create_desc()
        ok(acl.mdl.get_desc(self.desc, self.model))

    def infer(self, feeds):
        inputs, outputs, held, results = acl.mdl.create_dataset(), acl.mdl.create_dataset(), [], []
        for feed in feeds:
            address, ret = acl.rt.malloc(feed.nbytes, 0)
            ok(ret)
            ok(acl.rt.memcpy(address, feed.nbytes, feed.ctypes.data, feed.nbytes, 1))
            held.append(address)
            acl.mdl.add_dataset_buffer(inputs, acl.create_data_buffer(address, feed.nbytes))
        for _ in range(acl.mdl.get_num_outputs(self.desc)):
            # No memory: the runtime takes it.
            acl.mdl.add_dataset_buffer(outputs, acl.create_data_buffer(0, 0))
        ok(acl.mdl.execute(self.model, inputs, outputs))
        for i in range(acl.mdl.get_num_outputs(self.desc)):
            buffer = acl.mdl.get_dataset_buffer(outputs, i)
            dims, ret = acl.mdl.get_output_dims(self.desc, i)
            ok(ret)
            kind = {0: np.float32, 9: np.int64}[acl.mdl.get_output_data_type(self.desc, i)]
            array = np.empty(dims["dims"], kind)
            address = acl.get_data_buffer_addr(buffer)
            ok(acl.rt.memcpy(array.ctypes.data, array.nbytes, address, array.nbytes, 2))
            ok(acl.rt.free(address))
            ok(acl.update_data_buffer(buffer, 0, 0))
            results.append(array)
        for dataset in (inputs, outputs):
            for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
                ok(acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, i)))
            ok(acl.mdl.destroy_dataset(dataset))
        for address in held:
            ok(acl.rt.free(address))
        return results

    def release(self):
        ok(acl.mdl.unload(self.model))
        ok(acl.mdl.destroy_desc(self.desc))
        ok(acl.rt.free(self.weight))


def main(path, images):
    ok(acl.init())
    ok(acl.rt.set_device(0))
    work_size, _, ret = acl.mdl.query_size(path)
    ok(ret)
    work, ret = acl.rt.malloc(work_size, 0)
    ok(ret)
    sessions = [Session(path, work, work_size) for _ in range(2)]
    results = [sessions[i % 2].infer([image]) for i, image in enumerate(images)]
    for session in sessions:
        session.release()
    ok(acl.rt.free(work))
    ok(acl.rt.reset_device(0))
    ok(acl.finalize())
    return results


if __name__ == "__main__":
    main(sys.argv[1], [np.ones((1, 8), np.float32)] * 2)
