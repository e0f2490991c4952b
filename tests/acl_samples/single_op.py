"""A model, and then single operators on its result: a cast to half precision, the place of the largest."""

import sys

import numpy as np

import cann_env.acl as acl

FLOAT, FLOAT16, INT32, ND = 0, 1, 3, 2


def ok(ret):
    assert ret == 0, (ret, acl.get_recent_err_msg())


class Tensor:
    def __init__(self, kind, shape):
        self.desc = acl.create_tensor_desc(kind, shape, ND)
        self.size = acl.get_tensor_desc_size(self.desc)
        self.address, ret = acl.rt.malloc(self.size, 2)
        ok(ret)
        self.buffer = acl.create_data_buffer(self.address, self.size)

    def release(self):
        acl.destroy_tensor_desc(self.desc)
        ok(acl.destroy_data_buffer(self.buffer))
        ok(acl.rt.free(self.address))


def main(path, images):
    ok(acl.init())
    ok(acl.rt.set_device(0))
    ok(acl.op.set_model_dir("./op_models"))
    stream, ret = acl.rt.create_stream()
    ok(ret)
    model, ret = acl.mdl.load_from_file(path)
    ok(ret)
    image, scores, best = Tensor(FLOAT, [1, 8]), Tensor(FLOAT, [1, 4]), Tensor(9, [1])
    half, place = Tensor(FLOAT16, [1, 4]), Tensor(INT32, [1])
    inputs, outputs = acl.mdl.create_dataset(), acl.mdl.create_dataset()
    acl.mdl.add_dataset_buffer(inputs, image.buffer)
    acl.mdl.add_dataset_buffer(outputs, scores.buffer)
    acl.mdl.add_dataset_buffer(outputs, best.buffer)
    attributes = acl.op.create_attr()
    ok(acl.op.set_attr_int(attributes, "dimension", 1))
    labels = []
    for data in images:
        source = data.tobytes()
        ok(acl.rt.memcpy(image.address, image.size, acl.util.bytes_to_ptr(source), len(source), 1))
        ok(acl.mdl.execute_async(model, inputs, outputs, stream))
        ok(acl.op.cast(scores.desc, scores.buffer, half.desc, half.buffer, 0, stream))
        ok(
            acl.op.execute_v2(
                "ArgMaxD", [half.desc], [half.buffer], [place.desc], [place.buffer], attributes, stream
            )
        )
        ok(acl.rt.synchronize_stream(stream))
        label = bytes(place.size)
        ok(acl.rt.memcpy(acl.util.bytes_to_ptr(label), place.size, place.address, place.size, 2))
        labels.append(int(np.frombuffer(label, np.int32)[0]))
    acl.op.destroy_attr(attributes)
    for dataset in (inputs, outputs):
        ok(acl.mdl.destroy_dataset(dataset))
    for tensor in (image, scores, best, half, place):
        tensor.release()
    ok(acl.mdl.unload(model))
    ok(acl.rt.destroy_stream(stream))
    ok(acl.rt.reset_device(0))
    ok(acl.finalize())
    return labels


if __name__ == "__main__":
    main(sys.argv[1], [np.ones((1, 8), np.float32)])
