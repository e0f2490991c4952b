"""Kineto traces that are garbage are refused by file, index and key, what is no trace by what it is."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest

from cann_env.profiles.kineto import read_kineto
from cann_env.units import InputError
from tests.kineto_files import kernel, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"ts": None}, r"traceEvents\[1\]\.ts: None is not a time"),
        ({"ts": "noon"}, r"traceEvents\[1\]\.ts: 'noon' is not a time"),
        ({"dur": -4}, r"traceEvents\[1\]\.dur: -4 is a negative duration"),
        ({"dur": None}, r"traceEvents\[1\]\.dur: None is not a time"),
        ({"name": 7}, r"traceEvents\[1\]\.name: 7 is not the name"),
        ({"args": [1]}, r"traceEvents\[1\]\.args: \[1\] is not an object"),
        ({"args": {"device": 0, "stream": "fast"}}, r"traceEvents\[1\]\.args\.stream: 'fast'"),
        ({"args": {"device": "x"}}, r"traceEvents\[1\]\.args\.device: 'x'"),
        ({"args": {"correlation": 1.5}}, r"traceEvents\[1\]\.args\.correlation"),
        ({"args": {"grid": "all"}}, r"traceEvents\[1\]\.args\.grid: 'all' is not a grid"),
        ({"args": {"grid": [-1]}}, r"traceEvents\[1\]\.args\.grid: -1 is not a size"),
        ({"tid": "main", "args": {}}, r"traceEvents\[1\]\.tid: 'main' is not the number of a stream"),
        ({"pid": "gpu", "args": {"stream": 1}}, r"traceEvents\[1\]\.pid: 'gpu' is not the number"),
    ],
)
def test_a_broken_event_is_named_by_file_index_and_key(
    tmp_path: Path, change: dict[str, Any], match: str
) -> None:
    with pytest.raises(InputError, match=r"made\.pt\.trace\.json, " + match):
        read_kineto(write(tmp_path, [kernel("a", 0, 1), kernel("b", 2, 1) | change]))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "is not JSON: line 1, column 1"),
        (b'{"traceEvents": [\n{"ph": "X",]}', "is not JSON: line 2, column 12"),
        (b'{"events": []}', "no list of events"),
        (b'{"traceEvents": {}}', "no list of events"),
        (b"7", "no list of events"),
        (b"[7]", r"traceEvents\[0\]: 7 is not an event"),
        (b"\xff\xfe{}", "is not UTF-8 text: byte 0"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9], "is cut off or damaged"),
        (b"\x1f\x8b" + b"garbage" * 5, "cannot be read as a trace"),
        (b"[" * 100_000, "is not a trace"),
        (b'{"traceEvents": []}', "no work of a GPU"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, data: bytes, match: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"bad\.json.*{match}"):
        read_kineto(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: cannot be read as a trace: No such file"):
        read_kineto(tmp_path / "none.json")
