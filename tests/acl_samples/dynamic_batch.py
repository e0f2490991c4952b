"""A model with several batch sizes: the size is chosen before each execution."""

import sys

import numpy as np

import cann_env.acl as acl

SHAPE_INPUT = "ascend_mbatch_shape_data"
BATCH_INVALID = 145013


def check_ret(message, ret):
    if ret != 0:
        raise RuntimeError(f"{message} failed ret={ret}: {acl.get_recent_err_msg()}")


class DynamicModel:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        self.model_id, ret = acl.mdl.load_from_mem(acl.util.bytes_to_ptr(self.bytes), len(self.bytes))
        check_ret("load_from_mem", ret)
        self.desc = acl.mdl.create_desc()
        check_ret("get_desc", acl.mdl.get_desc(self.desc, self.model_id))
        self.index, ret = acl.mdl.get_input_index_by_name(self.desc, SHAPE_INPUT)
        check_ret("get_input_index_by_name", ret)
        batches, ret = acl.mdl.get_dynamic_batch(self.desc)
        check_ret("get_dynamic_batch", ret)
        self.batches = batches["batch"][: batches["batchCount"]]
        self.memory = []
        self.inputs = self._dataset(acl.mdl.get_num_inputs, acl.mdl.get_input_size_by_index)
        self.outputs = self._dataset(acl.mdl.get_num_outputs, acl.mdl.get_output_size_by_index)

    def _dataset(self, count, size_of):
        dataset = acl.mdl.create_dataset()
        for i in range(count(self.desc)):
            size = size_of(self.desc, i)
            address, ret = acl.rt.malloc(size, 2)
            check_ret("malloc", ret)
            self.memory.append(address)
            acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, size))
        return dataset

    def run(self, images):
        ret = acl.mdl.set_dynamic_batch_size(self.model_id, self.inputs, self.index, len(images))
        if len(images) not in self.batches:
            assert ret == BATCH_INVALID
            return None
        check_ret("set_dynamic_batch_size", ret)
        data = np.ascontiguousarray(images)
        first = acl.get_data_buffer_addr(acl.mdl.get_dataset_buffer(self.inputs, 0))
        check_ret("memcpy", acl.rt.memcpy(first, data.nbytes, acl.util.numpy_to_ptr(data), data.nbytes, 1))
        check_ret("execute", acl.mdl.execute(self.model_id, self.inputs, self.outputs))
        dims, ret = acl.mdl.get_cur_output_dims(self.desc, 0)
        check_ret("get_cur_output_dims", ret)
        result = np.zeros(dims["dims"], np.float32)
        source = acl.get_data_buffer_addr(acl.mdl.get_dataset_buffer(self.outputs, 0))
        ret = acl.rt.memcpy(acl.util.numpy_to_ptr(result), result.nbytes, source, result.nbytes, 2)
        check_ret("memcpy", ret)
        return result

    def release(self):
        for address in self.memory:
            check_ret("free", acl.rt.free(address))
        for dataset in (self.inputs, self.outputs):
            for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
                acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, i))
            acl.mdl.destroy_dataset(dataset)
        check_ret("unload", acl.mdl.unload(self.model_id))
        acl.mdl.destroy_desc(self.desc)


def main(path, batches):
    check_ret("init", acl.init())
    check_ret("set_device", acl.rt.set_device(0))
    model = DynamicModel(path)
    results = [model.run(images) for images in batches]
    model.release()
    check_ret("reset_device", acl.rt.reset_device(0))
    check_ret("finalize", acl.finalize())
    return results


if __name__ == "__main__":
    main(sys.argv[1], [np.ones((2, 8), np.float32)])
