"""Limits and errors as on the device: which code, at which limit, and that a failed call changes nothing."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
import pytest

import cann_env.acl as acl
from cann_env.acl import codes
from cann_env.device import device_names, load_device

SPEC = load_device("ascend910b2")


def calls() -> dict[str, Any]:
    """Every call of the interface, by the name that programs use."""
    found = {}
    for prefix in ("", "rt.", "util.", "mdl.", "op.", "media.", "prof."):
        module = acl if not prefix else getattr(acl, prefix[:-1], None)
        for name, value in vars(module or object()).items() if module else ():
            if hasattr(value, "__signature_of__"):
                found[prefix + name] = value
    return found


CALLS = calls()
EARLY = {name for name, function in CALLS.items() if not function.gives_code or function.works_before_init}
"""Calls that need no ``acl.init``."""

CODES = {value for name, value in vars(codes).items() if name.isupper() and isinstance(value, int)}


class World:
    """A run with one of everything, and arguments that fit."""

    def __init__(self) -> None:
        self.run = acl.simulate(SPEC, devices=2)
        acl.init()
        acl.rt.set_device(0)
        rt = acl.rt
        acl.define_kernel("fill", writes=(0,), dtype="uint8", function=lambda out: out.fill(1))
        acl.define_kernel("long", writes=(0,), duration_ns=1_000_000)
        binary = rt.binary_load_from_file("kernels.o")[0]
        fill, long = (rt.binary_get_function(binary, name)[0] for name in ("fill", "long"))
        stream, event, old, late = (
            rt.create_stream()[0], rt.create_event_ex_with_flag(0)[0], rt.create_event()[0],
            rt.create_event_ex_with_flag(0)[0],
        )  # fmt: skip
        memory, host = rt.malloc(4096, 0)[0], rt.malloc_host(4096)[0]
        pool = rt.mem_pool_create(0)[0]
        context = rt.get_context()[0]
        pooled = rt.mem_pool_malloc_async(pool, 512, stream)[0]
        managed = rt.mem_alloc_managed(4096)[0]
        command = acl.create_command()[0]
        acl.set_command_args(command, fill, 1, [memory])
        rt.record_event(event, stream)
        rt.record_event(old, stream)
        rt.launch_kernel(long, 1, [memory], None, stream)
        rt.record_event(late, stream)
        self.fitting = {
            "stream": stream, "event": event, "start_event": event, "end_event": event, "memory": memory,
            "function": fill, "kernel": fill, "binary": binary, "notify": rt.create_notify(0)[0],
            "pool": pool, "context": context, "device_id": 0, "device": 0, "ptr": memory, "dev_ptr": memory,
            "src": host, "dst": memory, "host_ptr": host, "command": command, "size": 512, "count": 512,
            "dest_max": 512, "max_count": 512, "value": 1, "kind": 1, "policy": 0, "flag": 0, "priority": 0,
            "blocks": 1, "args": [memory], "timeout": 1, "mode": 0, "attr": 0, "name": "fill",
            "path": "kernels.o", "width": 16, "height": 4, "dpitch": 32, "spitch": 32, "location": 0,
            "block_type": 1, "thread_id": 0, "user_data": 0, "amount": 100, "time_ns": 1, "cmo_type": 0,
            "min_bytes_to_keep": 0, "props": 0, "cfg": None, "advise": 0, "flags": 0,
        }  # fmt: skip
        special = {
            "mem_pool_get_attr": {"attr": "used"}, "mem_pool_free_async": {"ptr": pooled},
            "mem_managed_prefetch_async": {"ptr": managed}, "mem_managed_advise": {"ptr": managed},
            "operation": {"kind": "collective"}, "set_device_res_limit": {"kind": 0},
        }  # fmt: skip
        self.special = special
        spare = rt.create_stream()[0]
        gone_event, gone_notify = rt.create_event()[0], rt.create_notify(0)[0]
        gone_memory, gone_pool = rt.malloc(64, 0)[0], rt.mem_pool_create(0)[0]
        rt.destroy_stream(spare)
        rt.destroy_event(gone_event)
        rt.destroy_notify(gone_notify)
        rt.free(gone_memory)
        rt.mem_pool_destroy(gone_pool)
        assert self.run.message == ""
        self.bad = [
            None, -1, -(1 << 70), 1 << 31, 1 << 63, 1 << 80, 1.5, float("nan"), "stream", b"bytes", "", [],
            [None], {}, {"scheme": 3}, (1, 2), object(), True, np.float32(2.5), spare, gone_event,
            gone_notify, gone_memory, gone_pool,
        ]  # fmt: skip

    def arguments(self, name: str, function: Any) -> dict[str, Any]:
        names = list(inspect.signature(function.__signature_of__).parameters.values())[1:]
        fitting = {**self.fitting, **self.special.get(name.rpartition(".")[2], {})}
        return {
            p.name: fitting.get(p.name, None if p.default is inspect.Parameter.empty else p.default)
            for p in names
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        }


def digest(run: Any) -> str:
    """Everything that a call may change, but the list of calls and what is told about them."""
    parts: list[Any] = [
        [run.clock_ns, run.initialised, run.count, sorted(run.contexts), sorted(run.things), len(run.log)],
        [sorted(run.notifies), sorted(run.graveyard), sorted(run.workers), run.current],
        [len(run.minds.accesses), run.minds.clock],
        [(s.handle, s.work, s.pending, len(s.unresolved), s.waits) for s in run.streams.values()],
        [(s.thread, s.failure_mode, s.cores, s.priority) for s in run.streams.values()],
        [(e.handle, e.record and e.record.number, len(e.waits), len(e.waiting)) for e in run.events.values()],
        [(n.handle, len(n.records), len(n.waiting)) for n in run.notifies.values()],
        [(p.handle, p.used, p.reserved, len(p.live), len(p.places), p.served) for p in run.pools.values()],
        [(d.number, d.used_bytes, d.peak_bytes, d.works, d.limits) for d in run.devices.values()],
        [(a.number, a.size, a.freed, a.space.value, a.racy) for a in run.memory.allocations],
        [(len(c.parts), len(c.work)) for c in run.things.values() if hasattr(c, "parts")],
        [(w.begun, w.ended, w.submitted_ns) for w in run.log],
    ]
    return json.dumps(parts)


def code_of(result: Any) -> int:
    return result[-1] if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_give_a_code_and_change_nothing(name: str) -> None:
    function = CALLS[name]
    world = World()
    arguments = world.arguments(name, function)
    trials = [{key: k} for key in arguments for k in range(len(world.bad))]
    trials += [dict.fromkeys(arguments, k) for k in range(len(world.bad))]
    for trial in trials:
        given = {**arguments, **{key: world.bad[k] for key, k in trial.items()}}
        if "thread" in name and callable(given.get("function")):
            continue
        world.run.settle()
        before = digest(world.run)
        world.run.message = ""
        result = function(**given)
        code = code_of(result) if function.gives_code else codes.RT_PARAM_INVALID if world.run.message else 0
        assert isinstance(code, int), (name, given, result)
        assert code in CODES, (name, given, code)
        if code == codes.SUCCESS:
            world = World()
            arguments = world.arguments(name, function)
            continue
        waited = "timeout" in name and code in (codes.RT_STREAM_SYNC_TIMEOUT, codes.RT_EVENT_SYNC_TIMEOUT)
        assert waited or digest(world.run) == before, (name, given, code)
        assert world.run.message


@pytest.mark.parametrize("name", [name for name in CALLS if name not in EARLY])
def test_before_init_and_after_finalize_calls_are_refused(name: str) -> None:
    world = World()
    arguments = world.arguments(name, CALLS[name])
    assert acl.finalize() == codes.SUCCESS
    assert code_of(CALLS[name](**arguments)) == codes.UNINITIALIZE
    acl.simulate(SPEC)
    assert code_of(CALLS[name](**arguments)) == codes.UNINITIALIZE


@pytest.mark.parametrize("device", device_names())
def test_a_stream_leaked_in_every_pass_fails_at_the_limit(device: str) -> None:
    run = acl.simulate(device)
    acl.init()
    acl.rt.set_device(0)
    most = run.spec.limits.max_streams
    for _ in range(most - 1):  # the default stream counts
        assert acl.rt.create_stream()[1] == codes.SUCCESS
    assert acl.rt.create_stream() == (acl.rt.create_stream()[0], codes.RT_RESOURCE_ALLOC_FAIL)
    assert acl.rt.create_context(0)[1] == codes.RT_NO_STREAM_RESOURCE  # its default stream
    assert len(run.contexts) == 1
    assert acl.rt.set_device(1) == codes.SUCCESS  # another device has streams of its own
    assert acl.rt.create_stream()[1] == codes.SUCCESS
    acl.rt.set_device(0)
    assert acl.rt.destroy_stream(max(h for h, s in run.streams.items() if s.device == 0)) == codes.SUCCESS
    assert acl.rt.create_stream()[1] == codes.SUCCESS


def small(**limits: int) -> Any:
    from dataclasses import replace

    return replace(SPEC, limits=replace(SPEC.limits, **limits))


def begin(device: Any) -> Any:
    run = acl.simulate(device)
    acl.init()
    acl.rt.set_device(0)
    return run


def test_a_queue_that_is_full_makes_the_host_wait() -> None:
    run = begin(small(queue_depth=2))
    acl.define_kernel("long", writes=(0,), duration_ns=1_000_000)
    long = acl.rt.binary_get_function(acl.rt.binary_load_from_file("k.o")[0], "long")[0]
    memory = acl.rt.malloc(64, 0)[0]
    for _ in range(4):
        acl.rt.launch_kernel(long, 1, [memory], None, 0)
    assert 2_000_000 <= run.clock_ns < 3_000_000


def test_one_event_more_than_there_are() -> None:
    begin(small(max_events=3))
    kept = [acl.rt.create_event()[0] for _ in range(3)]
    assert acl.rt.create_event()[1] == codes.RT_NO_EVENT_RESOURCE
    newer = acl.rt.create_event_ex_with_flag(0)
    assert newer[1] == codes.SUCCESS  # takes its number when it is recorded
    assert acl.rt.record_event(newer[0], 0) == codes.RT_NO_EVENT_RESOURCE
    acl.rt.destroy_event(kept[0])
    assert acl.rt.record_event(newer[0], 0) == codes.SUCCESS
    assert acl.rt.record_event(newer[0], 0) == codes.SUCCESS  # again, with the number it has
    assert acl.rt.create_event()[1] == codes.RT_NO_EVENT_RESOURCE


def test_one_notify_more_than_there_are() -> None:
    run = begin(small(max_notifies=2))
    kept = [acl.rt.create_notify(0)[0] for _ in range(2)]
    assert acl.rt.create_notify(0)[1] == codes.RT_NO_NOTIFY_RESOURCE
    assert sorted(run.notifies) == sorted(kept)
    acl.rt.destroy_notify(kept[0])
    assert acl.rt.create_notify(0)[1] == codes.SUCCESS


def test_memory_of_the_device_is_finite_and_that_of_the_host_is_not() -> None:
    run = begin(SPEC)
    step = 1 << 30
    total = run.spec.memory.hbm_bytes
    held = []
    while (answer := acl.rt.malloc(step, acl.ACL_MEM_MALLOC_HUGE_FIRST))[1] == codes.SUCCESS:
        held.append(answer[0])
    assert answer[1] == codes.RT_MEMORY_ALLOCATION
    assert total - 2 * step < len(held) * step <= total
    free = acl.rt.get_mem_info(acl.ACL_HBM_MEM)[0]
    pool = acl.rt.mem_pool_create(0)[0]
    assert acl.rt.mem_pool_malloc_async(pool, free + 512, 0)[1] == codes.RT_MEMORY_ALLOCATION
    assert acl.rt.mem_pool_create(free + 1)[1] == codes.RT_MEMORY_ALLOCATION
    assert acl.rt.get_mem_info(acl.ACL_HBM_MEM)[0] == free
    assert acl.rt.malloc_host(1 << 20)[1] == codes.SUCCESS
    assert acl.rt.free(held[0]) == codes.SUCCESS
    assert acl.rt.malloc(step, acl.ACL_MEM_MALLOC_HUGE_FIRST)[1] == codes.SUCCESS


def test_contexts_and_devices() -> None:
    run = acl.simulate(SPEC, devices=2)
    assert acl.rt.create_stream()[1] == codes.UNINITIALIZE
    acl.init()
    assert acl.init() == codes.REPEAT_INITIALIZE
    for call in (acl.rt.create_stream, acl.rt.create_event, acl.rt.get_context, acl.rt.get_device):
        assert code_of(call()) == codes.RT_CONTEXT_NULL
    assert acl.rt.malloc(64, 0)[1] == codes.RT_CONTEXT_NULL
    assert acl.rt.synchronize_device() == codes.RT_CONTEXT_NULL
    assert acl.rt.set_device(2) == codes.RT_INVALID_DEVICE_ID
    assert acl.rt.create_context(-1)[1] == codes.RT_INVALID_DEVICE_ID
    assert acl.rt.set_device(0) == codes.SUCCESS
    stream = acl.rt.create_stream()[0]
    other = acl.rt.create_context(0)[0]
    event = acl.rt.create_event_ex_with_flag(0)[0]
    memory = acl.rt.malloc(64, 0)[0]
    for code in (
        acl.rt.synchronize_stream(stream),
        acl.rt.destroy_stream(stream),
        acl.rt.record_event(event, stream),
        acl.rt.stream_wait_event(stream, event),
        acl.rt.memset_async(memory, 64, 0, 64, stream),
        acl.rt.stream_query(stream)[1],
    ):
        assert code == codes.RT_STREAM_CONTEXT
    assert not run.log
    assert acl.rt.destroy_context(other) == codes.SUCCESS
    assert acl.rt.create_stream()[1] == codes.RT_CONTEXT_NULL


def test_what_the_message_says() -> None:
    """Object, value, limit, and what to do."""
    begin(small(max_streams=2))
    acl.rt.create_stream()
    acl.rt.create_stream()
    said = acl.get_recent_err_msg()
    assert "[207005]" in said
    assert "2 streams" in said
    assert "Destroy streams that are done" in said
