"""Running a program from its file, with limits: what ``python program.py`` does, on a simulated device."""

from __future__ import annotations

import contextlib
import ctypes
import re
import runpy
import signal
import sys
import threading
import traceback
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cann_env.acl import api
from cann_env.acl.state.simulator import EndlessError
from cann_env.acl.times import times_of_programs
from cann_env.device import load_device
from cann_env.options import RunOptions, Submission
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType, ModuleType
    from typing import TextIO

    from cann_env.acl.state.simulator import Simulator
    from cann_env.device.spec import DeviceSpec

SECONDS: Final = 60.0
"""Real time that a program may take, unless said otherwise."""

SIMULATED_SECONDS: Final = 3600.0
"""Simulated time that a program may take, unless said otherwise."""

_ASKED: Final = re.compile(r"^cann-env: device=(?P<device>\S+)(?P<options>(?: \w+=\w+)+)$", re.MULTILINE)
_HEAD: Final = 4096
"""Where a program says what it was made for, and how many characters are looked at."""

_CALLS: Final = ("rt", "util", "mdl", "op", "media", "blas", "himpi", "fv", "prof", "tdt")
"""Modules of the binding, as far as they are there."""


class ProgramError(InputError):
    """A program that could not be run to its end.

    Attributes:
        run: What it did until then.
    """

    def __init__(self, message: str, run: Simulator) -> None:
        self.run = run
        super().__init__(message)


def _options(words: str) -> RunOptions:
    """What the words of a program's first lines say of the runtime.

    Raises:
        InputError: Names a word that is no option, or a value that it cannot have.
    """
    said = dict(word.split("=") for word in words.split())
    known = {field.name for field in fields(RunOptions)}
    for name in said:
        if name not in known:
            raise InputError(f"the program's first lines ask for {name!r}, no option of a run; leave it out")
    given: dict[str, Any] = {name: int(text) if text.isdecimal() else text for name, text in said.items()}
    return RunOptions(**given)


def run_program(
    path: str | Path,
    device: str | DeviceSpec | None = None,
    *,
    args: Sequence[str] = (),
    submission: str | None = None,
    devices: int = 8,
    seconds: float = SECONDS,
    simulated_seconds: float = SIMULATED_SECONDS,
    output: TextIO | None = None,
) -> Simulator:
    """Run a program as ``python path args...`` would; its ``import acl`` gets the simulator.

    Args:
        path: The program.
        device: As :func:`cann_env.acl.simulate` takes it; None for what the program's first lines say.
        args: What it finds in ``sys.argv`` behind its name.
        submission: ``eager`` or ``sink``; None for ``eager``, unless :func:`cann_env.acl.export` wrote the
            program: its first lines say what schedule it carries out, and it runs as
            :func:`cann_env.acl.run_as` would have it - as ``sink`` alone, if ``device`` is another one.
        devices: Devices of the machine.
        seconds: Real time it may take.
        simulated_seconds: Simulated time it may take.
        output: Where its standard output goes; left alone if None.

    Returns:
        The run, as it was when the program ended.

    Raises:
        ProgramError: It raised something, ended with a code other than 0, or did not end in time.
        InputError: There is no such file, or no such device.
    """
    where = Path(path)
    if not where.is_file():
        raise InputError(f"program {str(path)!r} does not exist; pass the path of a Python file")
    asked = _ASKED.search(where.read_text("utf-8", "replace")[:_HEAD])
    options = None
    if asked is not None and submission is None:
        named = device or asked["device"]
        device, submission = load_device(named) if isinstance(named, str) else named, Submission.SINK
        options = _options(asked["options"]) if device.name == asked["device"] else None
    run = api.simulate(device, devices=devices, submission=submission or "eager", options=options)
    run.latest_ns = round(simulated_seconds * 1e9)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_modules())
        stack.enter_context(_arguments(where, args))
        stack.enter_context(times_of_programs())
        if output is not None:
            stack.enter_context(contextlib.redirect_stdout(output))
        message = _execute(where, seconds)
    run = api.simulator()
    if message:
        raise ProgramError(message, run)
    return run


def _execute(where: Path, seconds: float) -> str:
    """Run it; what went wrong, or nothing."""
    try:
        with _alarm(seconds):
            runpy.run_path(str(where), run_name="__main__")
    except EndlessError as error:
        why = str(error) or f"the program is still running after {seconds:g} s"
        return f"{where.name}: {why}{_line_of(error, where)}"
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            return ""
        return f"{where.name} ended with {leaving.code!r}{_line_of(leaving, where)}"
    except Exception as error:
        return f"{where.name} raised {type(error).__name__}: {error}{_line_of(error, where)}"
    return ""


def _line_of(error: BaseException, where: Path) -> str:
    """The innermost line of the program itself."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f" (line {error.lineno})"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(where) and frame.lineno is not None
    ]
    return f" (at {where.name}:{lines[-1]})" if lines else ""


@contextlib.contextmanager
def _modules() -> Iterator[None]:
    """``acl`` and its modules are the simulator's."""
    import cann_env.acl as package

    names: dict[str, ModuleType] = {"acl": package}
    for part in _CALLS:
        found = getattr(package, part, None)
        if found is not None:
            names[f"acl.{part}"] = found
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


@contextlib.contextmanager
def _arguments(where: Path, args: Sequence[str]) -> Iterator[None]:
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(where), *args]
    sys.path.insert(0, str(where.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise :class:`EndlessError` in the program when its time is over."""
    message = f"the program is still running after {seconds:g} s"
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):

        def ring(number: int, frame: FrameType | None) -> None:
            del number, frame
            raise EndlessError(message)

        before: Any = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return
    # Only the main thread has signals; another is told between two of its instructions.
    own = ctypes.c_ulong(threading.get_ident())
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    timer = threading.Timer(seconds, raise_in, (own, ctypes.py_object(EndlessError)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
