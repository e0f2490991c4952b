"""Readers of project files: text goes in, a :class:`~cann_env.workloads.project.Project` comes out.

Formats: PSPLIB single mode (``.sm``; Kolisch and Sprecher, European Journal of Operational Research 96,
1997), Patterson (``.rcp``; Management Science 30, 1984), the job-shop text of the OR-Library (``.jsp``,
``.txt``; Beasley, Journal of the Operational Research Society 41, 1990), and job-shop JSON as the package
job_shop_lib writes it. Errors name the place, the line, and what would be right.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from cann_env.graph_checks import LONGEST_NS
from cann_env.units import InputError
from cann_env.workloads.project import UNIT_NS, Activity, Optimum, Project

if TYPE_CHECKING:
    from collections.abc import Sequence


_MOST_UNITS = 10**6  # an engine keeps a word or more for each
_MOST_MACHINES = 1000
_LONGEST = LONGEST_NS // UNIT_NS


@dataclass(frozen=True, slots=True)
class _Row:
    """The whole numbers of one line, and where it stands."""

    where: str
    numbers: tuple[int, ...]

    def fail(self, problem: str) -> NoReturn:
        raise InputError(f"{self.where}: {problem}")

    def check(self, count: int, what: str, least: int = 0, most: int = _LONGEST) -> None:
        """Refuse a row of another length, or with a number below ``least`` or above ``most``."""
        if len(self.numbers) != count:
            self.fail(f"has {len(self.numbers)} numbers; {what} takes {count}")
        if min(self.numbers, default=least) < least:
            self.fail(f"has the number {min(self.numbers)}; write {what} in numbers of at least {least}")
        if max(self.numbers, default=most) > most:
            self.fail(f"has the number {max(self.numbers)}; write {what} in numbers of at most {most}")


def _numbers(where: str, words: Sequence[str]) -> tuple[int, ...]:
    for word in words:
        if not re.fullmatch(r"-?[0-9]{1,18}", word):
            shown = word if len(word) < 30 else f"{word[:20]}..."
            raise InputError(f"{where}: {shown!r} is not a whole number of at most 18 digits")
    return tuple(map(int, words))


# --- PSPLIB single mode -------------------------------------------------------------------------------


def read_sm(text: str, source: str) -> Project:
    """Read a single-mode PSPLIB file.

    Args:
        text: Content of the file.
        source: What the place is called in messages; its last part names the project.

    Raises:
        InputError: The text is cut short or malformed, has several modes or resources that are used up, or a
            number is out of range.
    """
    lines = text.splitlines()
    jobs = _field(
        lines, source, r"jobs \(incl\. supersource/sink \)\s*:\s*(\d+)", "jobs (incl. supersource/sink )"
    )
    resources = _field(lines, source, r"- renewable\s*:\s*(\d+)", "- renewable")
    for kind in ("nonrenewable", "doubly constrained"):
        if _field(lines, source, rf"- {kind}\s*:\s*(\d+)", f"- {kind}"):
            raise InputError(f"{source} has {kind} resources; only renewable ones are read")
    precedences = _section(lines, source, "PRECEDENCE RELATIONS:", 1, jobs)
    requests = _section(lines, source, "REQUESTS/DURATIONS:", 2, jobs)
    (capacities,) = _section(lines, source, "RESOURCEAVAILABILITIES:", 1, 1)
    capacities.check(resources, "a line of availabilities", most=_MOST_UNITS)
    after = _predecessors(precedences, jobs)
    activities = []
    for job, row in enumerate(requests, start=1):
        row.check(resources + 3, "a line of requests (job, mode, duration, units of each resource)")
        if row.numbers[:2] != (job, 1):
            row.fail(f"is of job {row.numbers[0]}, mode {row.numbers[1]}; job {job}, mode 1 is next")
        _check_units(row, row.numbers[3:], capacities.numbers)
        activities.append(
            Activity(
                name=f"job {job}",
                duration=row.numbers[2],
                units=row.numbers[3:],
                after=tuple(sorted(after[job - 1])),
            )
        )
    return Project(name=_name(source), capacities=capacities.numbers, activities=tuple(activities))


def _field(lines: Sequence[str], source: str, pattern: str, name: str) -> int:
    for i, line in enumerate(lines, start=1):
        if found := re.search(pattern, line):
            return _numbers(f"{source}, line {i}", [found[1]])[0]
    raise InputError(f"{source} has no line '{name} : <number>'; is it a PSPLIB single-mode file (.sm)?")


def _section(lines: Sequence[str], source: str, title: str, headings: int, count: int) -> list[_Row]:
    """Rows of numbers of a section, which begin some lines of headings behind its title."""
    start = next((i for i, line in enumerate(lines) if line.strip().startswith(title)), None)
    if start is None:
        raise InputError(f"{source} has no section {title!r}; the file is cut short or of another format")
    first = start + 1 + headings
    rows = []
    for i in range(first, min(first + count, len(lines))):
        if lines[i].startswith("*"):
            break
        where = f"{source}, line {i + 1}"
        rows.append(_Row(where, _numbers(where, lines[i].split())))
    if len(rows) < count:
        raise InputError(
            f"{source}, line {first + len(rows) + 1}: section {title!r} ends after {len(rows)} lines of "
            f"numbers; it has {count}"
        )
    return rows


def _predecessors(rows: Sequence[_Row], jobs: int) -> list[set[int]]:
    after: list[set[int]] = [set() for _ in range(jobs)]
    for job, row in enumerate(rows, start=1):
        if len(row.numbers) < 3 or row.numbers[0] != job:
            row.fail(f"is not of job {job}; write: job, modes, successors, then each successor")
        if row.numbers[1] != 1:
            row.fail(f"job {job} has {row.numbers[1]} modes; only single-mode files are read")
        row.check(3 + max(row.numbers[2], 0), f"job {job} with {row.numbers[2]} successors")
        for later in row.numbers[3:]:
            if not 1 <= later <= jobs:
                row.fail(f"names the successor {later}; jobs go from 1 to {jobs}")
            after[later - 1].add(job - 1)
    return after


def _check_units(row: _Row, units: Sequence[int], capacities: Sequence[int]) -> None:
    for i, (wanted, capacity) in enumerate(zip(units, capacities, strict=True), start=1):
        if wanted > capacity:
            row.fail(f"asks for {wanted} of resource {i}, which has {capacity}; write at most that")


# --- Patterson ----------------------------------------------------------------------------------------


class _Tokens:
    """Whole numbers one after another, whatever the lines."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        lines = enumerate(text.splitlines(), start=1)
        self._words = [(word, i) for i, line in lines for word in _uncommented(line).split()]
        self._at = 0

    @property
    def where(self) -> str:
        """The place of the number taken last."""
        return f"{self._source}, line {self._words[max(self._at - 1, 0)][1] if self._words else 1}"

    def take(self, what: str, least: int = 0, most: int | None = None) -> int:
        """The next number, which must lie in a range."""
        if self._at >= len(self._words):
            raise InputError(f"{self.where}: the file ends where {what} should be; it is cut short")
        word, _ = self._words[self._at]
        self._at += 1
        (number,) = _numbers(self.where, [word])
        if number < least or (most is not None and number > most):
            limit = f"at least {least}" if most is None else f"from {least} to {most}"
            raise InputError(f"{self.where}: {what} is {number}; it must be {limit}")
        return number

    def end(self) -> None:
        """Refuse anything that is left."""
        if self._at < len(self._words):
            word, line = self._words[self._at]
            raise InputError(f"{self._source}, line {line}: {word!r} stands behind the end; remove it")


def _uncommented(line: str) -> str:
    return "" if line.lstrip().startswith("#") else line


def read_rcp(text: str, source: str) -> Project:
    """Read a Patterson file; see :func:`read_sm`.

    It has the number of activities and of resources, the availabilities, then for each activity its duration,
    its units of each resource, the number of its successors and the successors, counted from 1.
    """
    tokens = _Tokens(text, source)
    count = tokens.take("the number of activities", 1)
    resources = tokens.take("the number of resources")
    capacities = tuple(
        tokens.take(f"the availability of resource {i + 1}", 0, _MOST_UNITS) for i in range(resources)
    )
    durations, units = [], []
    after: dict[int, set[int]] = {}  # by need: the file may say that there are more than it holds
    for i in range(count):
        durations.append(tokens.take(f"the duration of activity {i + 1}", 0, _LONGEST))
        units.append(
            tuple(
                tokens.take(f"what activity {i + 1} holds of resource {k}", 0, capacity)
                for k, capacity in enumerate(capacities, start=1)
            )
        )
        for _ in range(tokens.take(f"the number of successors of activity {i + 1}", 0, count)):
            after.setdefault(tokens.take(f"a successor of activity {i + 1}", 1, count) - 1, set()).add(i)
    tokens.end()
    activities = tuple(
        Activity(
            name=f"job {i + 1}", duration=durations[i], units=units[i], after=tuple(sorted(after.get(i, ())))
        )
        for i in range(count)
    )
    return Project(name=_name(source), capacities=capacities, activities=activities)


# --- job shops ----------------------------------------------------------------------------------------


def read_job_shop(text: str, source: str) -> Project:
    """Read a job shop as text; see :func:`read_sm`.

    Lines that begin with ``#`` are left out. The first numbers are jobs and machines; then for each job one
    pair of machine, counted from 0, and duration for each of its operations, as many as there are machines.
    """
    tokens = _Tokens(text, source)
    jobs = tokens.take("the number of jobs", 1)
    machines = tokens.take("the number of machines", 1)
    shop = [
        [
            (
                tokens.take(f"a machine of job {j}", 0, machines - 1),
                tokens.take(f"a duration of job {j}", 0, _LONGEST),
            )
            for _ in range(machines)
        ]
        for j in range(jobs)
    ]
    tokens.end()
    return job_shop(_name(source), shop, machines)


def read_job_shop_json(text: str, source: str, member: str = "") -> tuple[Project, Optimum]:
    """Read a job shop as JSON: an object with ``duration_matrix`` and ``machines_matrix``, a row a job.

    Args:
        text: Content of the file: such an object, or one that holds several by name.
        source: What the place is called in messages.
        member: Which of several.

    Returns:
        The job shop, and what its ``metadata`` says of its optimum.

    Raises:
        InputError: The text is no JSON, or not of that form; names the key.
    """
    try:
        found: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{source}, line {error.lineno}: this is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{source}: this JSON holds too many digits or nests too deep; write a number an operation"
        ) from error
    if isinstance(found, dict) and "duration_matrix" not in found:
        if member not in found:
            raise InputError(
                f"{source} holds no job shop {member!r}; write {source}:<name> with one of "
                f"{', '.join(map(str, list(found)[:8]))}"
            )
        found, source = found[member], f"{source}:{member}"
    durations = _matrix(found, "duration_matrix", source, _LONGEST)
    machines = _matrix(found, "machines_matrix", source, _MOST_MACHINES - 1)
    if list(map(len, durations)) != list(map(len, machines)):
        raise InputError(
            f"{source}: duration_matrix and machines_matrix differ in shape; write one of each an operation"
        )
    shop = [list(zip(*rows, strict=True)) for rows in zip(machines, durations, strict=True)]
    count = 1 + max((machine for row in machines for machine in row), default=0)
    name = str(found.get("name") or _name(source))
    return job_shop(name, shop, count), _known(found.get("metadata") or {}, source)


def _matrix(found: Any, key: str, source: str, most: int) -> list[list[int]]:
    rows = found.get(key) if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise InputError(
            f"{source}: {key} is missing or no list of lists; write a list a job, a number an operation"
        )
    for i, row in enumerate(rows):
        for number in row:
            if type(number) is not int or not 0 <= number <= most:
                raise InputError(
                    f"{source}: {key}[{i}] holds {number!r}; write whole numbers from 0 to {most}"
                )
    return rows


def _known(metadata: object, source: str) -> Optimum:
    if not isinstance(metadata, dict):
        raise InputError(f"{source}: metadata is {metadata!r}; write an object, e.g. with the key optimum")
    values: dict[str, int | None] = {}
    for key in ("optimum", "lower_bound", "upper_bound"):
        value = values[key] = metadata.get(key)
        if value is not None and (type(value) is not int or value < 0):
            raise InputError(f"{source}: metadata.{key} is {values[key]!r}; write a whole number or null")
    least, best = values["lower_bound"], values["upper_bound"]
    if None not in (least, best) and (least or 0) > (best or 0):
        raise InputError(f"{source}: metadata.lower_bound {least} is above metadata.upper_bound {best}")
    if values["optimum"] is not None:
        return Optimum(least=values["optimum"], best=values["optimum"])
    return Optimum(least=least, best=best)


def job_shop(name: str, shop: Sequence[Sequence[tuple[int, int]]], machines: int) -> Project:
    """A job shop: each machine a resource of one unit, each job a chain.

    Args:
        name: Of the project.
        shop: For each job its operations, machine and duration.
        machines: How many there are.
    """
    activities: list[Activity] = []
    for j, operations in enumerate(shop):
        for k, (machine, duration) in enumerate(operations):
            units = tuple(int(machine == other) for other in range(machines))
            after = (len(activities) - 1,) if k else ()
            name_of = f"job {j} step {k}"
            activities.append(Activity(name=name_of, duration=duration, units=units, after=after))
    return Project(name=name, capacities=(1,) * machines, activities=tuple(activities))


# --- optima -------------------------------------------------------------------------------------------


def read_optima(text: str, source: str) -> dict[str, Optimum]:
    """Read a table of optima, ``name,value`` a line under a heading; ``lo..hi`` or ``..hi`` if it is open.

    Raises:
        InputError: Names the line that is of another form, or names a problem twice.
    """
    optima: dict[str, Optimum] = {}
    for i, line in enumerate(text.splitlines()[1:], start=2):
        if not line.strip():
            continue
        name, _, value = (part.strip() for part in line.partition(","))
        found = re.fullmatch(r"(?:(\d*)\.\.)?(\d+)", value)
        if not name or not found or name in optima:
            raise InputError(
                f"{source}, line {i}: {line!r} is not of the form name,value with a value such as 43, 82..87 "
                "or ..87, each name once"
            )
        best = int(found[2])
        least = best if found[1] is None else int(found[1]) if found[1] else None
        if (least or 0) > best:
            raise InputError(f"{source}, line {i}: the bound {least} is above the schedule of {best}")
        optima[name] = Optimum(least=least, best=best)
    return optima


def _name(source: str) -> str:
    """Last part of a path or of the member of an archive, without its ending."""
    return re.split(r"[/\\:]", source)[-1].rsplit(".", 1)[0]
