"""How a call of the interface is made: the current run, the line of the program, host time, return codes."""

from __future__ import annotations

import functools
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cann_env.acl import codes
from cann_env.acl.codes import Refused
from cann_env.acl.facts import GIVES_ALONE, Facts, put_facts, room_of
from cann_env.acl.state.simulator import DEFAULT_DEVICE, VALUES, Simulator
from cann_env.acl.state.work import HostCall
from cann_env.options import Submission
from cann_env.schedulers.policy import EpisodeError
from cann_env.units import AclError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cann_env.device.spec import DeviceSpec
    from cann_env.options import RunOptions

_ROOM: Final = str(Path(__file__).parent) + os.sep
DEVICE_VARIABLE: Final = "CANN_ENV_DEVICE"
"""Environment variable that names the device which programs run on."""

_OF_ARGUMENTS: Final = (
    TypeError,
    ValueError,
    OverflowError,
    AttributeError,
    KeyError,
    IndexError,
    MemoryError,
)
"""What an argument of a wrong type raises on its way."""

FREE: Final = ""
"""In place of a host cost: the call takes no time that is known."""


class _Run:
    """The current run of this process, and whether failures are raised instead of returned."""

    simulator: Simulator | None = None
    strict = False


def simulator() -> Simulator:
    """The current run; one on the default device if none was begun."""
    if _Run.simulator is None:
        _Run.simulator = Simulator(os.environ.get(DEVICE_VARIABLE, DEFAULT_DEVICE))
    return _Run.simulator


def simulate(
    device: str | DeviceSpec | None = None,
    *,
    devices: int = 8,
    submission: str = "eager",
    values: int = VALUES,
    options: RunOptions | None = None,
) -> Simulator:
    """Begin a new run; all handles and addresses of the one before are gone.

    Args:
        device: Name or path of a device file, or a device; the environment variable ``CANN_ENV_DEVICE`` or
            ``ascend910b2`` if None.
        devices: Devices of the machine.
        submission: ``eager`` if calls take host time, ``sink`` if they take none.
        values: Most multiply-adds of a model whose results are computed; those of larger ones are zeros.
        options: With ``sink``, how the runtime behaves: the memory it has, what it evicts, its pools and how
            many prefetches move at once; the rest is the program's to decide. None for the runtime's own way.

    Raises:
        InputError: There is no such device, or one of the others is none of the above.
    """
    if devices < 1:
        raise InputError(f"devices is {devices}; a machine has at least 1")
    if submission not in tuple(Submission):
        raise InputError(f"submission is {submission!r}; write one of {', '.join(Submission)}")
    if options is not None and Submission(submission) is not Submission.SINK:
        raise InputError(f"options go with submission 'sink'; submission is {submission!r}")
    named = device or os.environ.get(DEVICE_VARIABLE, DEFAULT_DEVICE)
    if not isinstance(values, int) or values < 0:
        raise InputError(f"values is {values!r}; write multiply-adds from 0, which computes nothing")
    _Run.simulator = Simulator(named, devices, Submission(submission), values, options)
    return _Run.simulator


@contextmanager
def strict() -> Iterator[None]:
    """Within it, a call that fails raises :class:`~cann_env.units.AclError` instead of returning its code."""
    before = _Run.strict
    _Run.strict = True
    try:
        yield
    finally:
        _Run.strict = before


def site() -> str:
    """File and line of the program that called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_ROOM) or frame.f_code.co_filename == functools.__file__
    ):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def call(
    results: int = 0,
    cost: str = FREE,
    *,
    initialised: bool = True,
    failed: object = None,
    c_name: str | None = None,
    article: str = "",
    differs: str = "",
) -> Callable[[Any], Any]:
    """Make a function a call of the interface.

    The function gets the run as its first argument, and returns what the call gives beside the code: nothing,
    one value, or a tuple of ``results``. Failures become return codes, with ``failed`` for each value.

    Args:
        results: Values beside the code.
        cost: Field of the device's host costs, or of its memory's, that says how long the host takes.
        initialised: Whether ``acl.init`` must have been called.
        c_name: Its name in C, where :func:`name_in_c` does not find it; empty if CANN has no such call.
        article: Its name in the article on the runtime, if that has it.
        differs: What is not as on a device, for the table of calls.
        failed: In place of each value of a call that failed.
    """
    facts = Facts(c_name, article, differs, results)
    answer = functools.partial(_answer, results=results, failed=failed)
    return _maker(cost, initialised, answer, facts, coded=True)


def getter(
    failed: object = 0,
    cost: str = FREE,
    *,
    initialised: bool = False,
    c_name: str | None = None,
    differs: str = "",
) -> Callable[[Any], Any]:
    """Make a function a call that gives its value alone, without a code: ``failed`` if it failed.

    What was wrong is then told by ``acl.get_recent_err_msg`` only.
    """
    facts = Facts(c_name, "", differs, GIVES_ALONE)
    return _maker(cost, initialised, lambda code, value: failed if code else value, facts, coded=False)


def _maker(
    cost: str, initialised: bool, answer: Callable[[int, Any], Any], facts: Facts, *, coded: bool
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        name = f"{room_of(function)}.{function.__name__}"

        @functools.wraps(function)
        def made(*args: Any, **named: Any) -> Any:
            run = simulator()
            with run.turn():
                run.limit()
                begin, line, known = run.clock_ns, site(), len(run.memory.allocations)
                code, value = codes.SUCCESS, None
                try:
                    if initialised and not run.initialised:
                        raise Refused(
                            codes.UNINITIALIZE, f"{name} was called before acl.init (or after finalize)"
                        )
                    value = function(run, *args, **named)
                    if cost != FREE:
                        run.pay(cost)
                except AclError as error:
                    code = _failed(run, error, name, line)
                except (EpisodeError, InputError) as error:
                    code = _failed(run, Refused(codes.RT_PARAM_INVALID, str(error)), name, line)
                except _OF_ARGUMENTS as error:
                    if hasattr(error, "of_program"):
                        raise
                    why = f"an argument is wrong: {error}"
                    code = _failed(run, Refused(codes.RT_PARAM_INVALID, why), name, line)
                if code != codes.SUCCESS:
                    run.memory.undo(known)
                run.calls.append(HostCall(name, begin, run.clock_ns, line, code))
            return answer(code, value)

        made.__signature_of__ = function  # type: ignore[attr-defined]
        made.gives_code = coded  # type: ignore[attr-defined]
        made.works_before_init = not initialised  # type: ignore[attr-defined]
        return put_facts(made, facts)

    return wrap


def _failed(run: Simulator, error: AclError, name: str, line: str) -> int:
    run.message = f"{name} at {line}: {error}"
    run.last_error = error.code
    for late in (run.late, run.memory.late):
        if late is not None:
            run.evidence.misuse(*late, line)
    run.late = run.memory.late = None
    if _Run.strict:
        raise error
    return error.code


def _answer(code: int, value: Any, results: int, failed: object) -> Any:
    if results == 0:
        return code
    if code != codes.SUCCESS:
        return *(failed,) * results, code
    if results == 1:
        return value, code
    return *value, code
