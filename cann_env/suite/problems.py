"""Members of a suite whose optima are known: problems from the literature, and planted ones.

Both bring the device they run on and options under which neither streams nor the window bind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from numpy.random import PCG64, Generator, SeedSequence

from cann_env.suite.case import Instance, SuiteCase
from cann_env.suite.members import named_family
from cann_env.units import InputError
from cann_env.workloads.checks import check_not_empty, check_not_negative, check_shares, check_sizes
from cann_env.workloads.from_psplib import from_psplib, problem_names
from cann_env.workloads.planted import planted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from cann_env.suite.case import Asked, Setting
    from cann_env.workloads.project import PosedProblem

_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


@dataclass(frozen=True, slots=True, kw_only=True)
class PsplibMember:
    """Problems of PSPLIB, from files that the caller has.

    Attributes:
        family: Of its cases; ``{set}`` may be used.
        sets: Names of archives or folders in the caller's folder, without their endings.
        instances: How many problems of each set, taken at equal distances; 0 for all.
    """

    kind: ClassVar[str] = "psplib"

    family: str
    sets: tuple[str, ...]
    instances: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_not_empty("sets", self.sets)
        check_not_negative(instances=self.instances)

    def cases(self, asked: Asked, setting: Setting) -> Iterator[SuiteCase]:
        """Problems of each set; those with a published optimum bring it.

        Raises:
            InputError: No data were given, or a set is not among them.
        """
        if asked.data is None:
            raise InputError(
                f"the problems of {', '.join(self.sets)} are not shipped; give the folder that holds "
                f"{self.sets[0]}.tar.gz, or a folder {self.sets[0]} of .sm files, as --data PATH"
            )
        for each in self._sets(asked.data):
            for name in _some(_names(asked.data, each), self.instances):
                yield SuiteCase(
                    family=named_family(self.family, {"set": each}),
                    name=Path(name.rpartition(":")[2]).stem,
                    make=partial(_read, name, setting.options),
                )

    def _sets(self, data: Path) -> tuple[str, ...]:
        """All, or the one that was given as an archive."""
        if not data.is_file():
            return self.sets
        given = tuple(each for each in self.sets for ending in _ARCHIVES if data.name == each + ending)
        if not given:
            raise InputError(
                f"{str(data)!r} is none of the sets {', '.join(self.sets)}; write the folder that holds "
                f"{self.sets[0]}.tar.gz, or that file"
            )
        return given


def _names(data: Path, wanted: str) -> tuple[str, ...]:
    """Problems of a set: in the archive that was given, or in an archive or a folder beneath."""
    for archive in (data, *(data / f"{wanted}{ending}" for ending in _ARCHIVES)):
        if archive.is_file():
            return problem_names(archive)
    folder = data / wanted
    if folder.is_dir():
        found = sorted(folder.glob("*.sm"), key=lambda path: (len(path.name), path.name))
        if found:
            return tuple(str(path) for path in found)
    raise InputError(
        f"no set {wanted!r} in {str(data)!r}; it needs a file {wanted}.tar.gz, or a folder {wanted} of .sm "
        "files"
    )


def _some(names: Sequence[str], count: int) -> Sequence[str]:
    """So many names at equal distances; all if 0."""
    if count in (0, len(names)):
        return names
    if count > len(names):
        raise InputError(
            f"'instances' is {count}, but there are {len(names)}; write at most that, or 0 for all"
        )
    return [names[i * len(names) // count] for i in range(count)]


def _read(name: str, options: Mapping[str, Any]) -> Instance:
    return _instance(from_psplib(name), options)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedMember:
    """Problems made around a schedule that nothing can beat, see :func:`~cann_env.workloads.planted.planted`.

    Attributes:
        family: Of its cases; ``{kernels}`` and ``{loads}`` may be used.
        kernels: How many kernels a problem has.
        loads: Shares of the kernels that read cold weights.
        aic, aiv: Cores that are cut; 0 leaves a pool out.
        length: Units of time of the planted schedule.
        instances: How many problems of each size and share.
        seed: Of the problems.
    """

    kind: ClassVar[str] = "planted"

    family: str
    kernels: tuple[int, ...]
    loads: tuple[float, ...] = (0.0,)
    aic: int = 8
    aiv: int = 0
    length: int = 1000
    instances: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for key in ("kernels", "loads"):
            check_not_empty(key, getattr(self, key))
        check_not_negative(aic=self.aic, aiv=self.aiv, seed=self.seed)
        check_sizes(instances=self.instances, length=self.length)
        if not self._cores():
            raise InputError("'aic' and 'aiv' are both 0; write at least 1 for one of them")
        for kernels in self.kernels:
            check_sizes(kernels=kernels)
        for share in self.loads:
            check_shares(loads=share)

    def cases(self, asked: Asked, setting: Setting) -> Iterator[SuiteCase]:
        """Problems of each size, with each share of loads."""
        cores = " ".join(f"{count} {pool}" for pool, count in self._cores().items())
        for kernels in self.kernels:
            for share in self.loads:
                words = {"kernels": str(kernels), "loads": f"loads {share:g}" if share else "no loads"}
                for episode in range(self.instances):
                    yield SuiteCase(
                        family=named_family(self.family, words),
                        name=f"planted {kernels} {words['loads']} {cores} #{episode}",
                        make=partial(
                            self._make, kernels, share, (self.seed + asked.seed, episode), setting.options
                        ),
                    )

    def _cores(self) -> dict[str, int]:
        return {pool: count for pool, count in (("aic", self.aic), ("aiv", self.aiv)) if count}

    def _make(
        self, kernels: int, loads: float, draw: tuple[int, int], options: Mapping[str, Any]
    ) -> Instance:
        rng = Generator(PCG64(SeedSequence((kernels, *draw))))
        made = planted(rng, kernels=kernels, cores=self._cores(), length=self.length, loads=loads)
        return _instance(made.problem, options)


def _instance(problem: PosedProblem, options: Mapping[str, Any]) -> Instance:
    return Instance(problem.graph, problem.device, replace(problem.options, **options), problem.optimum_ns)
