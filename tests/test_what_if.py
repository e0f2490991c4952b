"""What if: edits that the engine plays again, computed by hand; refusals; undo, redo and reset."""

from __future__ import annotations

import random

import pytest
from episodes import Host
from toys import hand_schedule, toy_chain, toy_squeeze, vector

from cann_env.graph import CommandGraph
from cann_env.program import compile_graph
from cann_env.render.timeline import WhatIf
from cann_env.render.timeline.answers import Answers
from cann_env.scenario import load_scenario, scenario_names
from cann_env.schedulers import run_scheduler
from cann_env.units import InputError
from cann_env.validate import validate

TWO = CommandGraph("two", (vector("a"), vector("b")))
"""Two kernels of 110 ns that do not need each other."""


def starts(schedule) -> dict[str, int]:
    return {schedule.graph.commands[run.command].name: run.start_ns for run in schedule.commands}


def test_a_stream_of_its_own_saves_the_other_kernel_and_the_gap() -> None:
    """``a`` 0-110 and ``b`` 111-221 on one stream; on two both end at 110: 111 ns less."""
    host = Host(TWO).issue("a", 0)
    what_if = WhatIf(host.program, host.issue("b", 0).schedule())
    assert what_if.schedule.makespan_ns == 221
    edited = what_if.move("b", 1)
    assert starts(edited.schedule) == {"a": 0, "b": 0}
    assert (edited.schedule.makespan_ns, what_if.change_ns) == (110, -111)
    assert edited.streams == (0, 1)
    assert edited.change == "b to stream 1"
    assert not validate(edited.schedule)


def test_one_stream_for_both_costs_the_same() -> None:
    host = Host(TWO).issue("a", 0)
    what_if = WhatIf(host.program, host.issue("b", 1).schedule())
    assert what_if.schedule.makespan_ns == 110
    what_if.move("b", 0)
    assert (what_if.schedule.makespan_ns, what_if.change_ns) == (221, 111)


def test_a_queue_can_be_put_in_another_order() -> None:
    """``b`` in front of ``a``: their times change places."""
    host = Host(TWO).issue("a", 0)
    what_if = WhatIf(host.program, host.issue("b", 0).schedule())
    assert starts(what_if.move("b", 0, before="a").schedule) == {"b": 0, "a": 111}
    assert starts(what_if.move("b", 0, after="a").schedule) == {"a": 0, "b": 111}
    assert starts(what_if.drop("b", 0, 0).schedule) == {"b": 0, "a": 111}


def test_what_was_decided_at_a_completion_is_decided_at_it_again() -> None:
    """``c`` is submitted when ``a`` is done: at 110, and at 221 once ``a`` queues behind ``b``."""
    graph = CommandGraph("three", (vector("a"), vector("b"), vector("c")))
    host = Host(graph).issue("b", 0).issue("a", 1).until(110)
    what_if = WhatIf(host.program, host.issue("c", 0).schedule())
    assert starts(what_if.schedule) == {"a": 0, "b": 0, "c": 111}
    edited = what_if.move("a", 0)
    assert starts(edited.schedule) == {"b": 0, "a": 111, "c": 222}


def squeeze() -> WhatIf:
    """Two kernels on one stream; the weights of the second are asked for when the first is done."""
    host = Host(toy_squeeze(2)).issue("k0")
    fetched = next(move.finish_ns for move in Host(toy_squeeze(1)).issue("k0").schedule().transfers)
    host.until(fetched).until(fetched + 110)
    return WhatIf(host.program, host.prefetch("w1").issue("k1").schedule())


def test_a_prefetch_that_is_asked_for_earlier_hides_behind_the_kernel() -> None:
    """A prefetch of 64 bytes takes 5 + 64 = 69 ns, the kernel 110: asked for before it, it costs nothing.

    ::

        w1 asked for when k0 is done:  | fetch w0 | k0 110 | w1 69 | k1 110
        earlier, at the start:         | fetch w0 + w1 behind it | k1 follows k0 after the gap of 1 ns
    """
    what_if = squeeze()
    before = starts(what_if.schedule)
    assert before["k1"] == before["k0"] + 110 + 69
    edited = what_if.shift_prefetch("w1", -(before["k0"] + 110))
    after = starts(edited.schedule)
    assert after["k1"] == after["k0"] + 110 + 1
    assert what_if.undo().schedule is what_if.before.schedule
    assert not validate(edited.schedule)


def test_undo_redo_and_reset_are_exact() -> None:
    host = Host(TWO).issue("a", 0)
    given = host.issue("b", 0).schedule()
    what_if = WhatIf(host.program, given)
    edited = what_if.move("b", 1)
    assert what_if.undo().schedule is given
    assert (what_if.can_undo, what_if.can_redo, what_if.change_ns) == (False, True, 0)
    assert what_if.redo() is edited
    assert what_if.reset().schedule is given
    assert what_if.redo() is edited
    back = what_if.move("b", 0)
    assert back.schedule == given
    what_if.undo()
    what_if.move("a", 2)
    assert not what_if.can_redo
    with pytest.raises(InputError, match="no edit to do again"):
        what_if.redo()
    what_if.reset()
    with pytest.raises(InputError, match="no edit to undo"):
        what_if.undo()


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda w: w.move("a", 0), "'a' is on stream 0 already"),
        (lambda w: w.move("a", 4), "there are streams 0 to 3"),
        (lambda w: w.move("z", 1), "has no command 'z'"),
        (lambda w: w.move("c", 0, before="b"), "it needs 'b', which is submitted later"),
        (lambda w: w.move("a", 0, after="b"), "'b', which needs it, is submitted sooner"),
        (lambda w: w.move("a", 1, before="b"), "that one is on stream 0"),
        (lambda w: w.move("a", 0, before="a"), "that is itself"),
        (lambda w: w.move("a", 0, before="b", after="c"), "name one of them"),
        (lambda w: w.shift_prefetch("w", -5), "has no buffer 'w'"),
    ],
)
def test_what_is_not_possible_is_refused_with_the_reason(edit, reason: str) -> None:
    host = Host(toy_chain(3)).issue("a").issue("b")
    what_if = WhatIf(host.program, host.issue("c").schedule())
    with pytest.raises(InputError, match=reason):
        edit(what_if)
    assert not what_if.can_undo


def test_prefetches_that_make_no_sense_are_refused() -> None:
    what_if = squeeze()
    with pytest.raises(InputError, match="would stay where it is"):
        what_if.shift_prefetch("w1", 0)
    with pytest.raises(InputError, match="cannot be that late"):
        what_if.shift_prefetch("w1", 10_000)
    with pytest.raises(InputError, match="has no prefetch number 1"):
        what_if.shift_prefetch("w1", -5, 1)
    with pytest.raises(InputError, match="has no prefetch number 0"):
        what_if.shift_prefetch("w0", -5)


def test_streams_that_are_implied_cannot_be_chosen() -> None:
    host = Host(TWO, window="startable").issue("a")
    what_if = WhatIf(host.program, host.issue("b").schedule())
    with pytest.raises(InputError, match="'startable'"):
        what_if.move("b", 2)


def test_schedules_that_nobody_decided_are_refused() -> None:
    shown = hand_schedule(TWO, [("a", 0, 0, 0, 110), ("b", 1, 0, 0, 110)])
    with pytest.raises(InputError, match="holds no decisions"):
        WhatIf(None, shown)


def test_a_schedule_of_another_program_is_refused() -> None:
    host = Host(toy_chain(2)).issue("a").issue("b")
    with pytest.raises(InputError, match="is one of graph 'chain', not of 'two'"):
        WhatIf(Host(TWO).program, host.schedule())


def test_answers_are_documents_or_errors() -> None:
    host = Host(TWO).issue("a", 0)
    answers = Answers(host.issue("b", 0).schedule(), labels=("mine", ""))
    reply = answers.answer({"op": "move", "command": 1, "stream": 1, "at_ns": None})
    edited, before = reply["document"]["schedules"]
    assert (edited["label"], before["label"]) == ("mine what if", "mine as it was")
    assert (edited["makespan_ns"], before["makespan_ns"], reply["change_ns"]) == (110, 221, -111)
    assert (reply["can_undo"], reply["can_redo"], reply["notes"]) == (True, False, [])
    assert len(answers.answer({"op": "undo"})["document"]["schedules"]) == 1
    for wrong in (None, {"op": "burn"}, {"op": "move", "command": "1", "stream": 0}, {"op": "undo"}):
        assert set(answers.answer(wrong)) == {"error"}


@pytest.mark.slow
@pytest.mark.parametrize("name", scenario_names())
@pytest.mark.parametrize("scheduler", ["round_robin", "eager+aggressive", "chained+migration"])
def test_edits_of_the_scenarios_pass_the_judge_and_can_be_taken_back(name: str, scheduler: str) -> None:
    """Unchanged decisions make the same schedule; whatever is allowed makes one that the judge accepts."""
    scenario = load_scenario(name)
    if "+" in scheduler and scenario.options.prefetches == 0:
        pytest.skip("the scenario has no slots for prefetches")
    program = compile_graph(scenario.graph(), scenario.device, scenario.options)
    given = run_scheduler(program, scheduler)
    what_if = WhatIf(program, given)
    draw = random.Random(f"{name} {scheduler}")
    fetched = [call.target for call in given.host if call.call == "prefetch"]
    done = 0
    for _ in range(8):
        try:
            what_if.move(draw.randrange(len(given.commands)), draw.randrange(scenario.options.streams))
            done += 1
            if fetched:
                what_if.shift_prefetch(draw.choice(fetched), draw.choice([-1, 1]) * given.makespan_ns // 9)
        except InputError:
            continue
    assert done
    assert not validate(what_if.schedule)
    while what_if.can_undo:
        what_if.undo()
    assert what_if.schedule is given
