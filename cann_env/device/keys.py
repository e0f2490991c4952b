"""The table of a device file's keys: the unit each is written in and the values it may take.

One row a key, by its dotted name in the file. A row's last word with its unit's suffix is the field it
fills: ``memory.malloc`` in a unit of time fills ``malloc_ns``. :mod:`cann_env.device.load` reads files
by this table alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cann_env.device.spec import CLASSES, LINKS, POOLS
from cann_env.units import parse_bandwidth, parse_size_bytes, parse_time_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from decimal import Decimal

DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "hfloat32",
    "float64",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "bool",
)
"""Types of arithmetic a class may have a rate for."""

KERNEL_CLASSES = CLASSES[:4]
"""Classes that run on cores and so have a cost model; the rest are engines."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A family of units that measure one thing.

    Attributes:
        scale: Factor to the unit of the field, by the word written in the file.
        suffix: What the field's name adds to the key's.
        whole: Fields hold whole numbers; otherwise floats.
    """

    scale: Mapping[str, int]
    suffix: str = ""
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """Which values are allowed, and the words that say so."""

    accepts: Callable[[Decimal], bool]
    words: str


@dataclass(frozen=True, slots=True)
class Key:
    """One row: the dotted name in the file, its unit, its bound, and whether a file may leave it out."""

    path: str
    unit: Unit
    bound: Bound
    optional: bool = False

    @property
    def field(self) -> str:
        """The field of the dataclass that this key fills."""
        return self.path.rpartition(".")[2] + self.unit.suffix


def _scale(parse: Callable[[str], int], words: str) -> dict[str, int]:
    return {word: parse(f"1 {word}") for word in words.split()}


def _count(word: str) -> Unit:
    return Unit({word: 1})


TIME = Unit(_scale(parse_time_ns, "ns us ms s"), "_ns")
SIZE = Unit(_scale(parse_size_bytes, "B kB MB GB KiB MiB GiB"), "_bytes")
BANDWIDTH = Unit(_scale(parse_bandwidth, "MB/s GB/s TB/s GiB/s TiB/s"), "_bytes_per_s")
FREQUENCY = Unit({"Hz": 1, "MHz": 10**6, "GHz": 10**9}, "_hz")
FLAG = Unit({"bool": 1})
SHARE = Unit({"fraction": 1}, whole=False)
FLOP_RATE = Unit({"flop/cycle": 1}, whole=False)
BYTE_RATE = Unit({"B/cycle": 1}, whole=False)
RATIO = Unit({"times": 1}, whole=False)

POSITIVE = Bound(lambda value: value > 0, "greater than zero")
NOT_NEGATIVE = Bound(lambda value: value >= 0, "zero or more")
AT_LEAST_ONE = Bound(lambda value: value >= 1, "one or more")
FRACTION = Bound(lambda value: 0 < value <= 1, "in (0, 1]")

_POOL_WORD = {
    "aic": "cores",
    "aiv": "cores",
    "aicpu": "cores",
    "callback": "threads",
    "hcom": "operations",
    "h2d": "channels",
    "d2h": "channels",
    "sdma": "channels",
}


PRODUCT = "classes.cube.product"
"""Table of the keys that say how products of matrices go."""

_PRODUCT_RATES = ("load", "read", "store", "unfold")
_PRODUCT_SHARES = (
    "exposed",
    "resident",
    "convolution_efficiency",
    "input_gradient_efficiency",
    "filter_gradient_efficiency",
)


STREAMING = "classes.vector.streaming"
"""Table of the keys that say how vector work on tensors goes."""


def _chip() -> list[Key]:
    pools = [Key(f"pools.{pool}", _count(_POOL_WORD[pool]), NOT_NEGATIVE) for pool in POOLS]
    return [Key("dies", _count("dies"), POSITIVE), Key("clock", FREQUENCY, POSITIVE), *pools]


def _class(name: str) -> list[Key]:
    top = f"classes.{name}"
    rows = [
        Key(f"{top}.demand.{pool}", _count(_POOL_WORD[pool]), NOT_NEGATIVE, optional=True) for pool in POOLS
    ]
    rows.append(Key(f"{top}.max_active", _count("streams"), POSITIVE))
    if name in KERNEL_CLASSES or name == "sdma":
        rows.append(Key(f"{top}.bytes_per_cycle", BYTE_RATE, POSITIVE))
    if name in KERNEL_CLASSES:
        rows += [
            Key(f"{top}.flops_per_cycle.{dtype}", FLOP_RATE, POSITIVE, optional=True) for dtype in DTYPES
        ]
        rows.append(Key(f"{top}.compute_efficiency", SHARE, FRACTION))
        rows.append(Key(f"{top}.launch_base", TIME, NOT_NEGATIVE))
        rows.append(Key(f"{top}.launch_per_block", TIME, NOT_NEGATIVE))
    return rows


def _product() -> list[Key]:
    """What the cube class says of products of matrices: all of it, or nothing."""
    rows = [Key(f"{PRODUCT}.{name}_bytes_per_cycle", BYTE_RATE, POSITIVE, True) for name in _PRODUCT_RATES]
    rows += [Key(f"{PRODUCT}.{name}", SHARE, FRACTION, True) for name in _PRODUCT_SHARES]
    rows.append(Key(f"{PRODUCT}.turned", RATIO, AT_LEAST_ONE, True))
    rows.append(Key(f"{PRODUCT}.fill", TIME, NOT_NEGATIVE, True))
    return rows


def _streaming() -> list[Key]:
    """What the vector class says of work on tensors: all of it, or nothing."""
    shares = ("mixed_efficiency", "one_way", "written", "held")
    return [
        Key(f"{STREAMING}.port_bytes_per_cycle", BYTE_RATE, POSITIVE, True),
        *(Key(f"{STREAMING}.{name}", SHARE, FRACTION, True) for name in shares),
        Key(f"{STREAMING}.arithmetic", RATIO, POSITIVE, True),
        *(
            Key(f"{STREAMING}.{name}", TIME, NOT_NEGATIVE, True)
            for name in ("launch", "phase", "fill", "request")
        ),
    ]


def _link(name: str) -> list[Key]:
    top, optional = f"links.{name}", name == "die"
    rows = [
        Key(f"{top}.bandwidth", BANDWIDTH, POSITIVE, optional),
        Key(f"{top}.efficiency", SHARE, FRACTION, optional),
        Key(f"{top}.latency", TIME, NOT_NEGATIVE, optional),
    ]
    return rows if name == "hbm" else [*rows, Key(f"{top}.shares_hbm", FLAG, NOT_NEGATIVE, optional)]


def _rest() -> list[Key]:
    return [
        Key("memory.hbm", SIZE, POSITIVE),
        Key("memory.l2", SIZE, POSITIVE),
        Key("memory.l2_bandwidth", BANDWIDTH, POSITIVE),
        Key("memory.l2_prefetch_max", SIZE, NOT_NEGATIVE),
        Key("memory.page", SIZE, POSITIVE),
        Key("memory.fault", TIME, NOT_NEGATIVE),
        Key("memory.fault_group_pages", _count("pages"), POSITIVE),
        Key("memory.alignment", SIZE, POSITIVE),
        *(
            Key(f"memory.{call}", TIME, NOT_NEGATIVE)
            for call in ("malloc", "free", "pool_malloc", "pool_free")
        ),
        Key("memory.pool_min_block", SIZE, POSITIVE),
        Key("memory.host_shares_dram", FLAG, NOT_NEGATIVE),
        Key("memory.managed_prefetch", FLAG, NOT_NEGATIVE),
        Key("limits.max_streams", _count("streams"), POSITIVE),
        Key("limits.max_concurrent_streams", _count("streams"), POSITIVE),
        Key("limits.queue_depth", _count("commands"), POSITIVE),
        Key("limits.max_events", _count("events"), POSITIVE),
        Key("limits.max_notifies", _count("notifies"), POSITIVE),
        Key("limits.stream_priorities", _count("levels"), POSITIVE),
        *(Key(f"host.{call}", TIME, NOT_NEGATIVE) for call in HOST_CALLS),
        *(Key(f"dispatch.{part}", TIME, NOT_NEGATIVE) for part in DISPATCH_PARTS),
    ]


HOST_CALLS = (
    "launch_kernel",
    "memcpy_async",
    "launch_callback",
    "record_event",
    "wait_event",
    "prefetch",
    "sync",
)
DISPATCH_PARTS = ("gap", "mix_switch", "record", "wait", "wake")

KEYS: Mapping[str, Key] = {
    key.path: key
    for key in (
        *_chip(),
        *(key for name in CLASSES for key in _class(name)),
        *_product(),
        *_streaming(),
        *(key for name in LINKS for key in _link(name)),
        *_rest(),
    )
}
"""Every key a device file may have, by its dotted name."""
