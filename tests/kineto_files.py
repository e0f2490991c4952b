"""Small Kineto traces made up for tests: microseconds, one event a line."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PROPERTIES = [
    {"id": 0, "name": "Made-up GPU", "numSms": 10, "maxThreadsPerMultiprocessor": 2048},
    {"id": 1, "name": "Other GPU", "numSms": 20},
]


def span(cat: str, name: str, ts: Any, dur: Any, pid: Any = 0, tid: Any = 7, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(
    name: str, ts: Any, dur: Any, stream: int = 7, correlation: int = 0, **args: Any
) -> dict[str, Any]:
    args = {"device": 0, "stream": stream, "grid": [4, 2, 1], "block": [128, 1, 1]} | args
    if correlation:
        args["correlation"] = correlation
    return span("kernel", name, ts, dur, args["device"], stream, **args)


def call(name: str, ts: Any, correlation: int, dur: Any = 1, thread: int = 50, **args: Any) -> dict[str, Any]:
    return span("cuda_runtime", name, ts, dur, 900, thread, correlation=correlation, **args)


def launched(
    name: str, launch: Any, ts: Any, dur: Any, correlation: int, stream: int = 7
) -> list[dict[str, Any]]:
    return [call("cudaLaunchKernel", launch, correlation), kernel(name, ts, dur, stream, correlation)]


def stream_wait(ts: Any, correlation: int, stream: int, on: int, record: int) -> dict[str, Any]:
    return span(
        "cuda_sync", "Stream Wait Event", ts, 0, 0, stream,
        cuda_sync_kind="Stream Wait Event", stream=stream, wait_on_stream=on, wait_on_cuda_event_id=3,
        wait_on_cuda_event_record_corr_id=record, correlation=correlation, device=0,
    )  # fmt: skip


def write(folder: Path, events: Any, name: str = "made.pt.trace.json", **header: Any) -> Path:
    """A file of these events beside a header; compressed if its name says so."""
    path = folder / name
    text = json.dumps({"schemaVersion": 1, "deviceProperties": PROPERTIES, **header, "traceEvents": events})
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path
