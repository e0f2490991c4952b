"""JSON files of profilers, plain or compressed, with their numbers kept as they are written.

Numbers with a fraction stay text: a float does not hold a time of microseconds since 1970 to the nanosecond.
"""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING

from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

_GZIP = b"\x1f\x8b"


def read_json(path: Path) -> object:
    """The content of a JSON file; compressed or not is told by its first bytes.

    Raises:
        InputError: It cannot be read, or is not JSON: names the line and column.
    """
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8 text") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    try:
        return json.loads(text, parse_float=str)
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise InputError(f"{where}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply to be a profile") from error
    except ValueError as error:  # a whole number of thousands of digits
        raise InputError(f"{path}: not a profile: {error}") from error
