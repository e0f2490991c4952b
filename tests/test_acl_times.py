"""Programs that measure time, and that handle callbacks with threads of Python's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_env.acl.checks.hazards import hazards
from cann_env.acl.program import run_program

if TYPE_CHECKING:
    from pathlib import Path

    from cann_env.acl.simulator import Simulator

BEGIN = """\
import threading, time
import acl
import numpy as np
rt = acl.rt
acl.init(); rt.set_device(0)
stream = rt.create_stream()[0]
h, d = rt.malloc_host(4096)[0], rt.malloc(4096, 0)[0]
view = acl.util.ptr_to_numpy(h, (4096,), "uint8")
"""
END = """
rt.free(d); rt.free_host(h); rt.destroy_stream(stream); rt.reset_device(0); acl.finalize()
"""
POLLING = """
running, seen = True, []
def poll():
    begin = time.perf_counter()
    while running and time.perf_counter() - begin < 60:
        rt.process_report(200)
        time.sleep(0.05)
thread = threading.Thread(target=poll)
thread.start()
rt.subscribe_report(thread.ident, stream)
begin = time.perf_counter()
rt.memset_async(d, 4096, 5, 4096, stream)
rt.memcpy_async(h, 4096, d, 4096, 2, stream)
def handle(seconds):
    time.sleep(seconds)
    seen.append(int(view[9]))
rt.launch_callback(handle, 2.0, {blocks}, stream)
rt.synchronize_stream(stream)
took = time.perf_counter() - begin
"""
OVER = """
running = False
thread.join()
assert seen == [5], seen
rt.unsubscribe_report(thread.ident, stream)
"""


def run(text: str, folder: Path) -> Simulator:
    """Run a program that is to have no hazards."""
    path = folder / "program.py"
    path.write_text(BEGIN + text + END)
    made = run_program(path, "ascend910b2", seconds=20)
    assert hazards(made, ended=True) == []
    return made


def test_a_thread_of_python_handles_callbacks(tmp_path: Path) -> None:
    """It is handed them at their time, and the stream waits for it; asking passes no time."""
    text = POLLING.format(blocks=1) + "assert abs(took - 2) < 0.001, took\n" + OVER
    times = {run(text, tmp_path).clock_ns for _ in range(3)}
    assert len(times) == 1
    assert 2.0e9 < times.pop() < 2.001e9


def test_one_that_its_stream_does_not_wait_for(tmp_path: Path) -> None:
    """The program knows that it is over once the thread is."""
    run(POLLING.format(blocks=0) + OVER + "view[:] = 1\n", tmp_path)


def test_a_program_joins_the_thread_whose_callback_ends_it(tmp_path: Path) -> None:
    """While it waits for the thread, time passes, so that the callback comes."""
    run(
        """
done = []
def poll():
    while not done:
        rt.process_report(100)
thread = threading.Thread(target=poll)
thread.start()
rt.subscribe_report(thread.ident, stream)
rt.launch_callback(done.append, 1, 0, stream)
thread.join()
assert done == [1]
rt.unsubscribe_report(thread.ident, stream)
""",
        tmp_path,
    )


def test_clocks_are_simulated(tmp_path: Path) -> None:
    """What a program measures is what the device took, to the nanosecond."""
    made = run(
        """
begin, whole = time.perf_counter_ns(), time.time()
rt.memcpy_async(d, 4096, h, 4096, 1, stream)
rt.synchronize_stream(stream)
took = time.perf_counter_ns() - begin
assert abs((time.time() - whole) * 1e9 - took) < 1000
rt.memset(d, 4096, 0, took % 4096)
""",
        tmp_path,
    )
    setting = made.log[-1].touches[0].range
    calls = {call.call: call for call in made.calls}
    took = calls["rt.synchronize_stream"].end_ns - calls["rt.memcpy_async"].start_ns
    assert setting.size == took % 4096
