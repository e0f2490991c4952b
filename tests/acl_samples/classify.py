"""One picture after the other: a class for the device, a class for the model, the best classes printed."""

import sys

import numpy as np

import cann_env.acl as acl

ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2


def check_ret(message, ret):
    if ret != 0:
        raise RuntimeError(f"{message} failed ret={ret}")


class Resource:
    def __init__(self, device_id=0):
        self.device_id = device_id
        check_ret("acl.init", acl.init())
        check_ret("acl.rt.set_device", acl.rt.set_device(device_id))
        self.context, ret = acl.rt.create_context(device_id)
        check_ret("acl.rt.create_context", ret)
        self.run_mode, ret = acl.rt.get_run_mode()
        check_ret("acl.rt.get_run_mode", ret)

    def release(self):
        check_ret("acl.rt.destroy_context", acl.rt.destroy_context(self.context))
        check_ret("acl.rt.reset_device", acl.rt.reset_device(self.device_id))
        check_ret("acl.finalize", acl.finalize())


class Model:
    def __init__(self, path):
        self.model_id, ret = acl.mdl.load_from_file(path)
        check_ret("acl.mdl.load_from_file", ret)
        self.desc = acl.mdl.create_desc()
        check_ret("acl.mdl.get_desc", acl.mdl.get_desc(self.desc, self.model_id))
        self.inputs = self._dataset(acl.mdl.get_num_inputs, acl.mdl.get_input_size_by_index)
        self.outputs = self._dataset(acl.mdl.get_num_outputs, acl.mdl.get_output_size_by_index)

    def _dataset(self, count, size_of):
        dataset = acl.mdl.create_dataset()
        for i in range(count(self.desc)):
            size = size_of(self.desc, i)
            buffer, ret = acl.rt.malloc(size, ACL_MEM_MALLOC_HUGE_FIRST)
            check_ret("acl.rt.malloc", ret)
            _, ret = acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(buffer, size))
            check_ret("acl.mdl.add_dataset_buffer", ret)
        return dataset

    def run(self, image):
        buffer = acl.mdl.get_dataset_buffer(self.inputs, 0)
        data = image.tobytes()
        ret = acl.rt.memcpy(
            acl.get_data_buffer_addr(buffer),
            acl.get_data_buffer_size(buffer),
            acl.util.bytes_to_ptr(data),
            len(data),
            ACL_MEMCPY_HOST_TO_DEVICE,
        )
        check_ret("acl.rt.memcpy", ret)
        check_ret("acl.mdl.execute", acl.mdl.execute(self.model_id, self.inputs, self.outputs))
        return self._scores()

    def _scores(self):
        buffer = acl.mdl.get_dataset_buffer(self.outputs, 0)
        size = acl.get_data_buffer_size_v2(buffer)
        host, ret = acl.rt.malloc_host(size)
        check_ret("acl.rt.malloc_host", ret)
        ret = acl.rt.memcpy(host, size, acl.get_data_buffer_addr(buffer), size, ACL_MEMCPY_DEVICE_TO_HOST)
        check_ret("acl.rt.memcpy", ret)
        dims, ret = acl.mdl.get_cur_output_dims(self.desc, 0)
        check_ret("acl.mdl.get_cur_output_dims", ret)
        scores = np.frombuffer(acl.util.ptr_to_bytes(host, size), np.float32).reshape(dims["dims"])
        check_ret("acl.rt.free_host", acl.rt.free_host(host))
        return scores

    def release(self):
        for dataset in (self.inputs, self.outputs):
            for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
                buffer = acl.mdl.get_dataset_buffer(dataset, i)
                check_ret("acl.rt.free", acl.rt.free(acl.get_data_buffer_addr(buffer)))
                check_ret("acl.destroy_data_buffer", acl.destroy_data_buffer(buffer))
            check_ret("acl.mdl.destroy_dataset", acl.mdl.destroy_dataset(dataset))
        check_ret("acl.mdl.unload", acl.mdl.unload(self.model_id))
        check_ret("acl.mdl.destroy_desc", acl.mdl.destroy_desc(self.desc))


def main(path, images):
    resource = Resource()
    model = Model(path)
    scores = [model.run(image) for image in images]
    for row in scores:
        for place in row.flatten().argsort()[-1:-4:-1]:
            print(f"label:{place} confidence:{row.flatten()[place]:f}")
    model.release()
    resource.release()
    return scores


if __name__ == "__main__":
    main(sys.argv[1], [np.ones((1, 8), np.float32)])
