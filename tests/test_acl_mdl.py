"""Models behind the interface: what they say of themselves, sizes, memory, order, values; captured graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx_files import INT64, node, write_model

import cann_env.acl as acl
from cann_env.acl import codes
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

H2D, D2H, FLOAT = acl.ACL_MEMCPY_HOST_TO_DEVICE, acl.ACL_MEMCPY_DEVICE_TO_HOST, 11
WEIGHT = np.arange(32, dtype=np.float32).reshape(8, 4)


def value(result: tuple[Any, ...]) -> Any:
    """The value of a call that has to work."""
    *values, code = result
    assert code == acl.ACL_SUCCESS, acl.get_recent_err_msg()
    return values[0] if len(values) == 1 else tuple(values)


def works(code: int) -> None:
    assert code == acl.ACL_SUCCESS, acl.get_recent_err_msg()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``y = relu(x w)``, of 8 numbers 4."""
    file = tmp_path_factory.mktemp("models") / "small.onnx"
    nodes = [node("MatMul", "x w", "z"), node("Relu", "z", "y")]
    return write_model(file, nodes, {"x": ["batch", 8]}, ["y"], {"w": WEIGHT})


@pytest.fixture(autouse=True)
def run():
    simulator = acl.simulate("ascend910b2", devices=2)
    works(acl.init())
    works(acl.rt.set_device(0))
    acl.define_kernel("slow", writes=(0,), duration_ns=1_000_000, dtype="float32")
    return simulator


class Loaded:
    """A model with memory for one execution."""

    def __init__(self, path: Path) -> None:
        self.model = value(acl.mdl.load_from_file(str(path)))
        self.desc = acl.mdl.create_desc()
        works(acl.mdl.get_desc(self.desc, self.model))
        self.inputs, self.source = self._set(acl.mdl.get_num_inputs, acl.mdl.get_input_size_by_index)
        self.outputs, self.target = self._set(acl.mdl.get_num_outputs, acl.mdl.get_output_size_by_index)

    def _set(self, count: Any, size_of: Any) -> tuple[int, list[int]]:
        memory = [value(acl.rt.malloc(size_of(self.desc, i), 0)) for i in range(count(self.desc))]
        return dataset([(address, size_of(self.desc, i)) for i, address in enumerate(memory)]), memory

    def give(self, x: np.ndarray) -> None:
        works(acl.rt.memcpy(self.source[0], x.nbytes, acl.util.numpy_to_ptr(x), x.nbytes, H2D))

    def taken(self, shape: tuple[int, ...] = (1, 4)) -> np.ndarray:
        y = np.full(shape, np.nan, np.float32)
        works(acl.rt.memcpy(acl.util.numpy_to_ptr(y), y.nbytes, self.target[0], y.nbytes, D2H))
        return y


def dataset(memory: list[tuple[int, int]]) -> int:
    made = acl.mdl.create_dataset()
    for address, size in memory:
        assert value(acl.mdl.add_dataset_buffer(made, acl.create_data_buffer(address, size))) == made
    return made


def test_a_model_says_what_it_takes_and_gives(path: Path) -> None:
    loaded = Loaded(path)
    desc = loaded.desc
    assert value(acl.mdl.get_input_dims(desc, 0)) == {"name": "x", "dimCount": 2, "dims": [1, 8]}
    assert value(acl.mdl.get_output_dims(desc, 0)) == {"name": "y:0:y", "dimCount": 2, "dims": [1, 4]}
    assert acl.mdl.get_input_size_by_index(desc, 0) == 32
    assert acl.mdl.get_output_size_by_index(desc, 0) == 16
    assert acl.mdl.get_input_data_type(desc, 0) == acl.ACL_FLOAT
    assert acl.mdl.get_output_format(desc, 0) == acl.ACL_FORMAT_ND
    assert value(acl.mdl.get_input_index_by_name(desc, "x")) == 0
    assert value(acl.mdl.get_output_index_by_name(desc, "y")) == 0
    assert acl.mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data")[1] != 0
    assert acl.mdl.get_dataset_num_buffers(loaded.inputs) == 1
    assert acl.mdl.get_dataset_buffer(loaded.inputs, 1) == 0
    assert acl.mdl.get_input_dims(desc, 1) == ({}, codes.INVALID_PARAM)


def test_an_execution_costs_one_launch_and_its_time_is_the_engines(path: Path, run) -> None:
    """::

    stream  --record-- MatMul -- Relu --record--

    """
    loaded, stream = Loaded(path), value(acl.rt.create_stream())
    x = np.arange(8, dtype=np.float32).reshape(1, 8) - 4
    loaded.give(x)
    first, last = (value(acl.rt.create_event_ex_with_flag(acl.ACL_EVENT_TIME_LINE)) for _ in range(2))
    works(acl.rt.record_event(first, stream))
    before = run.clock_ns
    works(acl.mdl.execute_async(loaded.model, loaded.inputs, loaded.outputs, stream))
    assert run.clock_ns - before == run.spec.host.launch_kernel_ns
    works(acl.rt.record_event(last, stream))
    works(acl.rt.synchronize_stream(stream))
    product, relu = run.log[-2:]
    assert (product.label, relu.label) == ("small/z", "small/y")
    assert product.finish_ns <= relu.start_ns
    assert value(acl.rt.event_elapsed_time(first, last)) * 1e6 >= relu.finish_ns - product.start_ns
    np.testing.assert_array_equal(loaded.taken(), np.maximum(x @ WEIGHT, 0))


def test_inputs_are_read_when_it_starts_and_results_are_there_when_it_ends(path: Path) -> None:
    loaded, stream = Loaded(path), value(acl.rt.create_stream())
    loaded.give(np.ones((1, 8), np.float32))
    slow = value(acl.rt.binary_get_function(value(acl.rt.binary_load_from_file("k.o")), "slow"))
    works(acl.rt.launch_kernel(slow, 1, [value(acl.rt.malloc(64, 0))], None, stream))
    works(acl.mdl.execute_async(loaded.model, loaded.inputs, loaded.outputs, stream))
    loaded.give(np.full((1, 8), 2, np.float32))  # before the execution starts, unordered: a race
    assert not loaded.taken().any()
    works(acl.rt.synchronize_stream(stream))
    np.testing.assert_array_equal(loaded.taken(), [2 * WEIGHT.sum(0)])
    assert {hazard.kind.value for hazard in acl.hazards()} == {"write-after-read", "read-after-write"}


def test_executions_of_one_model_on_two_streams_do_not_overlap(path: Path, run) -> None:
    loaded = Loaded(path)
    for stream in [value(acl.rt.create_stream()) for _ in range(2)]:
        works(acl.mdl.execute_async(loaded.model, loaded.inputs, loaded.outputs, stream))
    works(acl.rt.synchronize_device())
    first, second = run.log[-4:-2], run.log[-2:]
    assert first[0].stream != second[0].stream
    assert second[0].start_ns >= first[-1].finish_ns
    assert acl.hazards() == []


REFUSED = {
    "no such file": (lambda m, path: acl.mdl.load_from_file("n.om")[1], codes.GE_MODEL_PATH_INVALID, "n.on"),
    "no such model": (
        lambda m, path: acl.mdl.execute(99, m.inputs, m.outputs), codes.GE_MODEL_ID_INVALID, "99",
    ),
    "no such dataset": (
        lambda m, path: acl.mdl.execute(m.model, 99, m.outputs), codes.INVALID_PARAM, "dataset 99",
    ),
    "buffers": (
        lambda m, path: acl.mdl.execute(m.model, dataset([]), m.outputs), codes.GE_PARAM_INVALID, "1 inputs",
    ),
    "input": (
        lambda m, path: acl.mdl.execute(m.model, dataset([(m.source[0], 31)]), m.outputs),
        codes.GE_PARAM_INVALID,
        "input 0 ('x') has a buffer of 31 bytes; it takes 32",
    ),
    "output": (
        lambda m, path: acl.mdl.execute(m.model, m.inputs, dataset([(m.target[0], 12)])),
        codes.GE_PARAM_INVALID,
        "output 0 ('y') has a buffer of 12 bytes; it takes 16",
    ),
    "host memory": (
        lambda m, path: acl.mdl.execute(
            m.model, dataset([(acl.util.bytes_to_ptr(bytes(32)), 32)]), m.outputs
        ),
        codes.GE_PARAM_INVALID,
        "memory of the host",
    ),
    "fixed sizes": (
        lambda m, path: acl.mdl.set_dynamic_batch_size(m.model, m.inputs, 1, 2),
        codes.GE_PARAM_INVALID,
        "fixed",
    ),
    "work memory": (
        lambda m, path: acl.mdl.load_from_file_with_mem(str(path), m.source[0], 8, 0, 0)[1],
        codes.GE_MODEL_ADDRESS_INVALID,
        "work_size is 8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_executed_is_refused_and_named(case: str, path: Path, run) -> None:
    call, code, words = REFUSED[case]
    loaded = Loaded(path)
    before = len(run.log), run.devices[0].used_bytes, len(run.streams)
    assert call(loaded, path) == code
    assert words in acl.get_recent_err_msg()
    assert (len(run.log), run.devices[0].used_bytes, len(run.streams)) == before


def test_a_model_that_does_not_fit_takes_nothing(tmp_path: Path, run) -> None:
    weight = np.zeros((1024, 1024), np.float32)
    file = write_model(
        tmp_path / "big.onnx", [node("MatMul", "x w", "y")], {"x": [1, 1024]}, ["y"], {"w": weight}
    )
    free, _ = value(acl.rt.get_mem_info(acl.ACL_HBM_MEM))
    works(acl.rt.malloc(free - (4 << 20), acl.ACL_MEM_MALLOC_HUGE_ONLY)[1])
    left = value(acl.rt.get_mem_info(acl.ACL_HBM_MEM))
    assert acl.mdl.load_from_file(str(file)) == (0, codes.RT_MEMORY_ALLOCATION)
    assert value(acl.rt.get_mem_info(acl.ACL_HBM_MEM)) == left


def test_a_model_gives_its_memory_back_once(path: Path) -> None:
    before = value(acl.rt.get_mem_info(acl.ACL_HBM_MEM))
    model = value(acl.mdl.load_from_file(str(path)))
    assert value(acl.rt.get_mem_info(acl.ACL_HBM_MEM)) < before
    works(acl.mdl.unload(model))
    assert value(acl.rt.get_mem_info(acl.ACL_HBM_MEM)) == before
    assert acl.mdl.unload(model) == codes.GE_MODEL_ID_INVALID
    assert "was destroyed at test_acl_mdl.py" in acl.get_recent_err_msg()


def test_a_model_that_stays_loaded_is_a_leak(path: Path) -> None:
    value(acl.mdl.load_from_file(str(path)))
    works(acl.finalize())
    (leak,) = acl.hazards()
    assert "model" in leak.what
    assert "acl.mdl.unload" in leak.fix


def test_an_offline_model_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "net.om").write_bytes(b"IMOD" + bytes(256))
    assert acl.mdl.load_from_file(str(tmp_path / "net.om"))[1] == codes.PARSE_MODEL
    assert "pass the ONNX file" in acl.get_recent_err_msg()
    nodes = [node("Relu", "x", "y")]
    write_model(tmp_path / "net.onnx", nodes, {"x": [1]}, ["y"])
    value(acl.mdl.load_from_file(str(tmp_path / "net.om")))  # the one beside it is


def test_results_of_a_large_model_are_zeros_with_a_warning(path: Path) -> None:
    acl.simulate(values=31)  # a product of 8 x 4 takes 32
    works(acl.init())
    works(acl.rt.set_device(0))
    loaded = Loaded(path)
    loaded.give(np.ones((1, 8), np.float32))
    with pytest.warns(UserWarning, match="zeros: it takes 32 multiply-adds"):
        works(acl.mdl.execute(loaded.model, loaded.inputs, loaded.outputs))
    assert not loaded.taken().any()


def test_shapes_are_said_for_an_execution(path: Path) -> None:
    loaded = Loaded(path)
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    memory = value(acl.rt.malloc(64, 0)), value(acl.rt.malloc(32, 0))
    works(acl.rt.memcpy(memory[0], 64, acl.util.numpy_to_ptr(x), 64, H2D))
    inputs, outputs = dataset([(memory[0], 64)]), dataset([(memory[1], 32)])
    desc = acl.create_tensor_desc(acl.ACL_FLOAT, [2, 8], acl.ACL_FORMAT_ND)
    assert value(acl.mdl.set_dataset_tensor_desc(inputs, desc, 0)) == inputs
    works(acl.mdl.execute(loaded.model, inputs, outputs))
    assert value(acl.mdl.get_cur_output_dims(loaded.desc, 0))["dims"] == [2, 4]
    y = np.zeros((2, 4), np.float32)
    works(acl.rt.memcpy(acl.util.numpy_to_ptr(y), 32, memory[1], 32, D2H))
    np.testing.assert_array_equal(y, x @ WEIGHT)
    wrong = acl.create_tensor_desc(acl.ACL_FLOAT, [2, 9], acl.ACL_FORMAT_ND)
    value(acl.mdl.set_dataset_tensor_desc(inputs, wrong, 0))
    assert acl.mdl.execute(loaded.model, inputs, outputs) == codes.GE_SHAPE_INVALID


def test_all_sizes_are_chosen_from_sets(tmp_path: Path) -> None:
    file = write_model(
        tmp_path / "two.onnx", [node("Add", "a b", "c")], {"a": ["n", 2], "b": ["n", "m"]}, ["c"]
    )
    gears = acl.convert_model(file, tmp_path / "two.om", dynamic_dims="1,1,2;3,3,2")
    loaded = Loaded(gears)
    assert value(acl.mdl.get_input_dims(loaded.desc, 1))["dims"] == [-1, -1]
    assert acl.mdl.get_input_size_by_index(loaded.desc, 1) == 24
    assert value(acl.mdl.get_input_dynamic_gear_count(loaded.desc, -1)) == 2
    sets = value(acl.mdl.get_input_dynamic_dims(loaded.desc, -1, 2))
    assert [one["dims"] for one in sets] == [[1, 2, 1, 2], [3, 2, 3, 2]]
    index = value(acl.mdl.get_input_index_by_name(loaded.desc, "ascend_mbatch_shape_data"))
    code = acl.mdl.execute(loaded.model, loaded.inputs, loaded.outputs)
    assert code == codes.GE_DYNAMIC_INPUT_LENGTH_INVALID  # nothing was chosen
    works(acl.mdl.set_input_dynamic_dims(loaded.model, loaded.inputs, index, sets[0]))
    works(acl.mdl.execute(loaded.model, loaded.inputs, loaded.outputs))
    other = {"name": "", "dimCount": 4, "dims": [2, 2, 2, 2]}
    assert acl.mdl.set_input_dynamic_dims(loaded.model, loaded.inputs, index, other) == codes.GE_SHAPE_INVALID


def test_wrong_options_of_a_conversion_are_told(path: Path, tmp_path: Path) -> None:
    for options, words in (
        ({"input_shape": "x"}, "name:size"),
        ({"input_shape": "z:1,8"}, "'z'"),
        ({"input_shape": "x:1,8,1"}, "3 dimensions"),
        ({"dynamic_batch_size": "1,two"}, "two"),
        ({"dynamic_batch_size": "1", "dynamic_dims": "1"}, "one of them"),
    ):
        with pytest.raises(InputError, match=words):
            acl.convert_model(path, tmp_path / "x.om", **options)
        assert not (tmp_path / "x.om").exists()


def test_a_model_without_kernels_moves_its_result(tmp_path: Path) -> None:
    file = write_model(
        tmp_path / "view.onnx",
        [node("Reshape", "x s", "y")],
        {"x": [2, 4]},
        ["y"],
        {"s": np.array([8], np.int64)},
    )
    loaded = Loaded(file)
    x = np.arange(8, dtype=np.float32)
    loaded.give(x)
    works(acl.mdl.execute(loaded.model, loaded.inputs, loaded.outputs))
    np.testing.assert_array_equal(loaded.taken((8,)), x)


def test_types_of_inputs_and_outputs_are_those_of_the_file(tmp_path: Path) -> None:
    file = write_model(tmp_path / "i.onnx", [node("Add", "a a", "b")], {"a": (INT64, (3,))}, ["b"])
    loaded = Loaded(file)
    assert acl.mdl.get_input_data_type(loaded.desc, 0) == acl.ACL_INT64
    assert acl.mdl.get_input_size_by_index(loaded.desc, 0) == 24


def test_calls_that_are_not_simulated_refuse() -> None:
    with pytest.warns(UserWarning, match="acl.media.dvpp_jpeg_decode_async is not simulated"):
        assert acl.media.dvpp_jpeg_decode_async(1, 2, 3, 4, 5) == codes.RT_FEATURE_NOT_SUPPORT
    with pytest.warns(UserWarning, match=r"acl\.rt\.malloc_physical"):
        handle, code = acl.rt.malloc_physical(64, {}, 0)
    assert (handle, code) == (None, codes.RT_FEATURE_NOT_SUPPORT)
    assert not hasattr(acl.util, "vector_to_ptr")  # as on a device
