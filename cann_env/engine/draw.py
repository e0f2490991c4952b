"""Which of a run's graphs an episode plays: a counter goes in, a number comes out, and nothing is kept.

Words of 32 bits in integers of 64, so that no product overflows, compiled or not.
"""

from __future__ import annotations

from cann_env.engine.jit import kernel

_WORD = 0xFFFFFFFF
_FACTOR = 0x45D9F3B  # the product of a word and this fits into 63 bits


@kernel
def mix(word: int) -> int:
    """A word of 32 bits that tells nothing of the given one; no two give the same."""
    word = (((word >> 16) ^ word) * _FACTOR) & _WORD
    word = (((word >> 16) ^ word) * _FACTOR) & _WORD
    return (word >> 16) ^ word


@kernel
def instance_number(first: int, second: int, episode: int, instances: int) -> int:
    """The number of an episode's graph, from 0 to ``instances - 1``.

    Args:
        first: A word of 32 bits that stands for the run and the environment.
        second: Another one.
        episode: From 0.
        instances: How many graphs the run has, at least 1.
    """
    word = mix(second ^ (episode & _WORD))
    return mix(first ^ word ^ (episode >> 32)) % instances
