"""Schedule generation, compiled: from priorities of tasks to start times on cumulative resources.

The two schemes of the literature on resource-constrained project scheduling and a population search on top.
A project goes in as one flat int64 array, start times come out; :mod:`cann_env.schedulers.search` makes the
one and uses the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cann_env.generation import population as at
from cann_env.generation.project import Q_RESOURCES, Q_TASKS, project_of
from cann_env.generation.schemes import FAR, scratch_words
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cann_env.engine import Image
    from cann_env.tasks import Tasks

__all__ = ["Population", "generate"]

_LARGEST, _SMALLEST = 60, 20
_EAGER = 400
_BIAS = 250
_SHAKE = 200
_PATIENCE = 200


class Population:
    """A search over schedules of a project that can be gone on with; the same seed gives the same schedules.

    Args:
        tasks: The project.
        seed: Of the random numbers.
        bound: A makespan that no schedule undercuts: the search ends there.

    Raises:
        InputError: A task holds more of a resource than there is.
    """

    def __init__(self, tasks: Tasks, *, seed: int = 0, bound: int = 0) -> None:
        _check(tasks)
        self._forwards, self._backwards = project_of(tasks), project_of(tasks, backwards=True)
        count = int(self._forwards[Q_TASKS])
        size = min(max(_LARGEST - max(count - 60, 0) * 7 // 12, _SMALLEST), _LARGEST)
        self._scratch = np.zeros(scratch_words(count, int(self._forwards[Q_RESOURCES])), np.int64)
        self._image = np.zeros(at.search_words(count, size), np.int64)
        self._tasks = tasks
        image = self._image
        image[at.E_SIZE] = size
        image[at.E_RANDOM] = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1) | 1
        image[at.E_BOUND] = max(bound, int((tasks.tail_ns + tasks.release_ns).max()))
        image[at.E_BEST] = FAR
        image[at.E_BIAS] = _BIAS
        image[at.E_EAGER] = _EAGER
        image[at.E_MUTATE] = max(1, round(1500 / count))
        image[at.E_SHAKE] = _SHAKE
        image[at.E_PATIENCE] = _PATIENCE

    @property
    def generated(self) -> int:
        """Schedules so far, backward ones included."""
        return int(self._image[at.E_COUNT])

    @property
    def makespan(self) -> int:
        """Of the best schedule."""
        return int(self._image[at.E_BEST])

    @property
    def starts(self) -> Image:
        """(n,) starts of the best schedule."""
        return self._part(int(self._image[at.E_AT_BEST]))

    @property
    def done(self) -> bool:
        """Whether the bound is reached: there is no better schedule."""
        return self.makespan <= int(self._image[at.E_BOUND])

    def _part(self, first: int) -> Image:
        return self._image[first : first + len(self._tasks.duration_ns)].copy()

    def run(self, schedules: int) -> None:
        """Generate so many more schedules, or fewer if the bound is reached."""
        self._image[at.E_LIMIT] = self.generated + schedules
        at.evolve(self._forwards, self._backwards, self._image, self._scratch)

    def members(self) -> list[Image]:
        """Starts of all forward schedules of the present population, the shortest first; none twice."""
        if self.generated == 0:
            return []
        image, count = self._image, len(self._tasks.duration_ns)
        size = int(image[at.E_SIZE])
        first, lengths = int(image[at.E_AT_POOL]), int(image[at.E_AT_LENGTH])
        rows = image[first : first + size * count].reshape(size, count)
        order = np.argsort(image[lengths : lengths + size], kind="stable")
        distinct = {rows[i].tobytes(): rows[i].copy() for i in order if image[lengths + i] < FAR}
        return list(distinct.values())

    def justified(self, starts: Image) -> Image:
        """Starts of a schedule pushed to the right, each task as late as resources and successors allow."""
        scratch = np.zeros(at.search_words(starts.size, 0), np.int64)
        first = at.E_HEADER + 2 * starts.size
        scratch[first : first + starts.size] = starts
        at.justify(self._forwards, self._backwards, scratch, self._scratch)
        return scratch[first : first + starts.size].copy()


def generate(tasks: Tasks, keys: Sequence[int] | Image, *, scheme: str = "serial") -> Image:
    """Starts that a scheme generates from keys, the smallest of the eligible tasks first.

    Args:
        tasks: The project.
        keys: (n,) whole numbers.
        scheme: ``serial`` or ``parallel``.

    Raises:
        InputError: The scheme is not known, or a task holds more of a resource than there is.
    """
    if scheme not in ("serial", "parallel"):
        raise InputError(f"schedule generation scheme {scheme!r} is not known; write 'serial' or 'parallel'")
    _check(tasks)
    project = project_of(tasks)
    count = int(project[Q_TASKS])
    scratch = np.zeros(scratch_words(count, int(project[Q_RESOURCES])), np.int64)
    image = np.zeros(at.search_words(count, 0), np.int64)
    first = at.E_HEADER + count
    image[first : first + count] = keys
    at.generate(project, image, scratch, int(scheme == "parallel"))
    return image[first + count : first + 2 * count].copy()


def _check(tasks: Tasks) -> None:
    over = np.argwhere(tasks.demand > tasks.capacity)
    if len(over):
        task, resource = (int(i) for i in over[0])
        raise InputError(
            f"task {task} holds {int(tasks.demand[task, resource])} of {tasks.resources[resource]!r}; there "
            f"are {int(tasks.capacity[resource])}"
        )
