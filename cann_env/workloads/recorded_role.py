"""What commands of an imported graph stand for, and the choices of an import."""

from __future__ import annotations

import enum


class Durations(enum.StrEnum):
    """How long commands take: as recorded, or what the cost model says of their operator and tensors.

    Collectives, waits for other devices and delays keep their recorded length either way.
    """

    RECORDED = "recorded"
    MODELLED = "modelled"


class Dependencies(enum.StrEnum):
    """What commands wait for.

    ``recorded``: those before them on their stream, and what events show. ``inferred``: whoever last wrote a
    tensor equal to one they read (a guess by shape and type); streams order nothing then.
    """

    RECORDED = "recorded"
    INFERRED = "inferred"


class Role(enum.StrEnum):
    """What a command of an imported graph stands for.

    ``work``: a task of this device alone. ``peer``: a collective or a wait for another device, whose length
    says nothing about this one. ``delay``: idle time that nothing explains. ``profiler``: idle time that the
    profiler put in, or that a device which no file describes takes between tasks.
    """

    WORK = "work"
    PEER = "peer"
    DELAY = "delay"
    PROFILER = "profiler"

    @property
    def is_external(self) -> bool:
        """Whether it is a wait for something outside of the device."""
        return self in (Role.PEER, Role.DELAY)
