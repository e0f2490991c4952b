"""The double-stream pipeline: batch after batch is copied in, computed and copied out.

Sizes go in, a :class:`~cann_env.graph.CommandGraph` comes out. While one batch computes, the next can already
be copied in and the one before copied out, if they are put on different streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.graph import Kernel, KernelClass
from cann_env.workloads.checks import check_not_negative, check_sizes
from cann_env.workloads.sketch import Sketch

if TYPE_CHECKING:
    from cann_env.graph import CommandGraph


def pipeline(
    *,
    batches: int,
    input_bytes: int,
    output_bytes: int,
    flops: int,
    blocks: int = 1,
    slots: int = 0,
    callback_ns: int = 0,
    name: str = "pipeline",
) -> CommandGraph:
    """Make ``batches`` times a copy in ``in<i>``, a cube kernel ``run<i>``, a copy out ``out<i>``.

    Args:
        batches: How many.
        input_bytes: Copied in and read by the kernel, for each batch.
        output_bytes: Written by the kernel and copied out, for each batch.
        flops: Operations of the kernel.
        blocks: Blocks of the kernel.
        slots: Pairs of device buffers that the batches share in turn: a batch waits until the one ``slots``
            before it has left them. 0 gives each batch its own, allocated and freed along the way.
        callback_ns: Host function after each copy out, ``post<i>``, that takes this time; 0 for none.
        name: Of the graph.

    Raises:
        InputError: A size is out of range.
    """
    check_sizes(batches=batches, input_bytes=input_bytes, output_bytes=output_bytes, blocks=blocks)
    check_not_negative(flops=flops, slots=slots, callback_ns=callback_ns)
    sketch = Sketch(name)
    for i in range(batches):
        slot = i % slots if slots else i
        source = sketch.upload(f"in{i}", input_bytes, into=f"input{slot}")
        kernel = Kernel(
            name=f"run{i}",
            kernel_class=KernelClass.CUBE,
            blocks=blocks,
            flops=flops,
            bytes_read=input_bytes,
            bytes_written=output_bytes,
        )
        result = sketch.launch(kernel.name, [kernel], [source], output_bytes, into=f"output{slot}")
        done = sketch.download(f"out{i}", result)
        if callback_ns:
            sketch.callback(f"post{i}", callback_ns, [done])
    return sketch.graph()
