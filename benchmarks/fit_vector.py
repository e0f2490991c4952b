"""Fits the cost model of vector kernels to recordings, and says how well it does on those left out."""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from kernel_samples import MATMUL_LIKE, load_samples

from cann_env.device.cost_vector import VectorModel, alone_ns, vector_model
from cann_env.device.load import load_device
from cann_env.device.residency import found_bytes
from cann_env.device.work import VectorWork, work_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernel_samples import Sample

import os

CAP = float(os.environ.get("CAP", "0.5"))
ATTENTION = "FlashAttention"
OWN = ("mixed_efficiency", "one_way", "launch_ns", "phase_ns", "fill_ns", "arithmetic", "port_bytes")
SHARES = ("mixed_efficiency", "one_way", "written")
PRIOR = float(os.environ.get("PRIOR", "0.004"))  # weight of the common value against all samples of a chip
GUESS = {
    "mixed_efficiency": 0.72,
    "one_way": 0.98,
    "written": 0.78,
    "launch_ns": 1400.0,
    "phase_ns": 1000.0,
    "fill_ns": 3000.0,
    "request_ns": 250.0,
    "arithmetic": 1.0,
}


@dataclass(frozen=True, slots=True)
class Row:
    sample: Sample
    work: VectorWork
    found: int
    model: VectorModel


def with_types(samples: list[Sample]) -> list[Sample]:
    """Outputs of a table that names no types for them get the type under which they are read next."""
    result = list(samples)
    for i, s in enumerate(samples):
        if s.blocks_known:
            continue
        outs = []
        for o in s.kernel.outputs:
            n = np.prod(o.shape)
            later = (
                p.dtype
                for t in samples[i + 1 : i + 5]
                if t.file == s.file
                for p in t.kernel.inputs
                if np.prod(p.shape) == n
            )
            outs.append(replace(o, dtype=next(later, o.dtype)))
        result[i] = replace(s, kernel=replace(s.kernel, outputs=tuple(outs)))
    return result


def is_vector(sample: Sample) -> bool:
    k = sample.kernel
    return (
        sample.core not in ("AI_CPU", "MIX_AIC")
        and k.op not in MATMUL_LIKE
        and not k.op.startswith(ATTENTION)
        and not (sample.core == "AI_CORE" and k.kernel_class.value == "cube")
    )


def base_model(chip: str) -> VectorModel:
    model = vector_model(load_device(chip))
    assert model is not None
    return model


def rows_of(samples: Sequence[Sample]) -> list[Row]:
    files = defaultdict(list)
    for s in samples:
        files[s.file].append(s)
    rows = []
    for inside in files.values():
        chip = inside[0].chip
        base = base_model(chip)
        for s, f in zip(inside, found_bytes([s.kernel for s in inside], int(base.l2_bytes))):
            if is_vector(s) and s.duration_ns > 0:
                rows.append(Row(s, work_of(s.kernel), f, base))
    return rows


def blocks_of(row: Row) -> int:
    if row.sample.blocks_known:
        return row.sample.kernel.blocks
    return max(1, min(row.model.cores, max(row.work.read_bytes, row.work.written_bytes) // 1024))


def predict(row: Row, values: dict[str, float]) -> float:
    values = {k: min(v, 1.0) if k in SHARES else v for k, v in values.items()}
    port = values.pop("port_bytes", 32.0)
    return alone_ns(
        replace(row.model, port_rate=port * row.model.clock_ghz, **values),
        row.work,
        blocks_of(row),
        row.found,
    )


def fit(
    rows: Sequence[Row],
    guess: dict[str, float] = GUESS,
    rounds: int = 25,
    rest: dict[str, float] | None = None,
) -> dict[str, float]:
    """Least absolute error of the logarithm, by reweighted least squares with damping."""
    groups: dict[object, list[float]] = defaultdict(list)
    kept = {}
    for row in rows:
        key = row.work, row.found, blocks_of(row), row.sample.file, row.sample.kernel.op
        groups[key].append(log(row.sample.duration_ns))
        kept[key] = row
    keys = list(groups)
    target = np.array([median(groups[k]) for k in keys])
    # Repeated kernels count, but no more than the square root of their number, or one layer would rule.
    weight = np.array([len(groups[k]) ** 0.5 for k in keys])
    names = list(guess)

    def misfit(x):
        values = (rest or {}) | dict(zip(names, np.exp(x)))
        return np.array([log(predict(kept[k], values)) for k in keys]) - target

    start = x = np.log(np.array(list(guess.values())))
    pull = PRIOR * weight.sum() if rest else 0.0
    weight = np.append(weight, np.full(len(names), pull))

    def residual(x):
        return np.append(misfit(x), x - start)

    r = residual(x)
    cost, damp = float((weight * np.abs(r)).sum()), 1e-2
    for _ in range(rounds):
        jac = np.stack([(residual(x + step) - r) / 0.01 for step in np.eye(len(x)) * 0.01], 1)
        w = weight / np.maximum(np.abs(r), 0.03)
        a = jac.T @ (jac * w[:, None])
        step = np.linalg.solve(a + damp * np.diag(np.diag(a) + 1e-9), -jac.T @ (w * r))
        nx = x + np.clip(step, -0.4, 0.4)
        nr = residual(nx)
        ncost = float((weight * np.abs(nr)).sum())
        if ncost < cost:
            done = cost - ncost < 1e-4 * cost
            x, r, cost, damp = nx, nr, ncost, max(damp / 3, 1e-6)
            if done:
                break
        else:
            damp *= 4
            if damp > 1e5:
                break
    return dict(zip(names, np.exp(x)))


def errors(rows, values):
    return [abs(predict(r, values) / r.sample.duration_ns - 1) for r in rows]


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("data", type=Path)
    ap.add_argument("--ops", action="store_true")
    ap.add_argument("--shapes", default="")
    a = ap.parse_args()
    rows = rows_of(with_types(load_samples(a.data)))
    files = list(dict.fromkeys(r.sample.file for r in rows))
    common = fit(rows)
    own = {
        c: common
        | fit([r for r in rows if r.sample.chip == c], {k: common.get(k, 32.0) for k in OWN}, rest=common)
        for c in dict.fromkeys(r.sample.chip for r in rows)
    }
    print("all:", {k: round(float(v), 3) for k, v in common.items()})
    for c, v in own.items():
        print(c, {k: round(float(v[k]), 3) for k in OWN})
    pooled = []
    for file in files:
        mine = [r for r in rows if r.sample.file == file]
        big = [r for r in mine if r.sample.duration_ns > 5000]
        small = [r for r in mine if r.sample.duration_ns <= 5000]
        values = fit([r for r in rows if r.sample.file != file])
        same = [r for r in rows if r.sample.file != file and r.sample.chip == mine[0].sample.chip]
        if same:
            values = values | fit(same, {k: values.get(k, 32.0) for k in OWN}, rest=values)
        e = errors(big, values)
        pooled += e
        tot = sum(predict(r, values) for r in mine) / sum(r.sample.duration_ns for r in mine) - 1
        print(
            f"{file:32} n{len(big):5} left out {median(e):.3f} fitted {median(errors(big, own[mine[0].sample.chip])):.3f} small {median(errors(small, values)):.3f} total {tot:+.3f}",
            {k: round(float(v), 2) for k, v in values.items()},
        )
    print(f"pooled {median(pooled):.3f}")
    if a.ops or a.shapes:
        g = defaultdict(list)
        for r in rows:
            if a.shapes and a.shapes not in r.sample.file:
                continue
            k = r.sample.kernel
            g[
                (r.sample.file[:8], k.op, *((k.inputs[:2], k.outputs[:1], k.blocks) if a.shapes else ()))
            ].append(r)
        for k, v in sorted(g.items(), key=lambda kv: -sum(r.sample.duration_ns for r in kv[1])):
            m = median(r.sample.duration_ns for r in v) / 1e3
            p = median(predict(r, own[r.sample.chip]) for r in v) / 1e3
            s = (
                " ".join(
                    "x".join(map(str, o.shape)) + o.dtype[:1] + o.dtype[-2:]
                    for o in (*v[0].sample.kernel.inputs[:2], *v[0].sample.kernel.outputs[:1])
                )
                if a.shapes
                else ""
            )
            w = v[0].work
            print(
                f"{k[0]} {k[1]:24} n{len(v):4} {m:9.1f} pred {p:9.1f} {p / m - 1:+.2f} med|e| {median(errors(v, own[v[0].sample.chip])):.2f} r{w.read_bytes / 1e6:.1f} f{median(r.found for r in v) / 1e6:.1f} w{w.written_bytes / 1e6:.1f} {s}"
            )


main()
