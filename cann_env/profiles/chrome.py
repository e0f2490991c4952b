"""Files of Chrome trace events: JSON, plain or compressed with gzip."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from cann_env.units import InputError

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something stands, as text for messages."""

    file: str
    index: int
    key: str = ""

    def __str__(self) -> str:
        return f"{self.file}, traceEvents[{self.index}]{'.' if self.key else ''}{self.key}"


def load_trace(path: str | Path) -> tuple[dict[str, Any], list[Any]]:
    """Read a Chrome trace: what stands beside the events, and the events.

    Args:
        path: JSON, plain or compressed with gzip: an object with ``traceEvents``, or the bare list of events.

    Raises:
        InputError: The file cannot be read, is not JSON, or holds no list of events.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode("utf-8-sig")
    except OSError as error:  # gzip's complaints are among them
        raise InputError(f"{file}: cannot be read as a trace: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise InputError(f"{file}: is cut off or damaged: {error}; copy it again") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: is not UTF-8 text: byte {error.start}: {error.reason}") from error
    try:
        tree = json.loads(text, parse_float=Decimal, strict=False)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{file}: is not JSON: {where}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: is not a trace: {error}") from error
    if isinstance(tree, list):
        return {}, tree
    events = tree.get("traceEvents") if isinstance(tree, dict) else None
    if not isinstance(events, list):
        raise InputError(f"{file}: holds no list of events; a trace has one under 'traceEvents'")
    return {key: value for key, value in tree.items() if key != "traceEvents"}, events
