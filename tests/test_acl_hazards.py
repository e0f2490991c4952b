"""Hazards: all of a corpus of wrong programs are found, as they are meant, and their right twins are clean.

What a hazard says would mend it, is put into the program, and does.
"""

from __future__ import annotations

import pytest
from hazard_programs import mended, mending, named, pairs, run_text

PAIRS = {pair.name: pair for pair in pairs()}


def test_there_are_enough_of_them() -> None:
    assert len(PAIRS) >= 40
    kinds = {kind for pair in PAIRS.values() for kind, *_ in pair.wanted}
    from cann_env.acl import HazardKind

    assert kinds == {kind.value for kind in HazardKind}


@pytest.mark.parametrize("name", PAIRS)
def test_a_wrong_program_is_found_out(name: str, tmp_path) -> None:
    pair = PAIRS[name]
    run, found = run_text(pair.wrong, tmp_path)
    assert named(run, pair.wrong, found) == pair.expected()
    assert all(hazard.fix and hazard.what for hazard in found)


@pytest.mark.parametrize("name", PAIRS)
def test_its_twin_is_clean(name: str, tmp_path) -> None:
    run, found = run_text(PAIRS[name].right, tmp_path)
    assert not found, found
    failed = [call for call in run.calls if call.code not in (0, 507012)]
    assert not failed, (failed, run.message)


@pytest.mark.parametrize("name", PAIRS)
def test_what_would_mend_it_mends_it(name: str, tmp_path) -> None:
    pair = PAIRS[name]
    run, found = run_text(pair.wrong, tmp_path)
    for chosen in [[hazard] for hazard in found if hazard.steps] + [[h for h in found if h.steps]]:
        if not chosen:
            continue
        text = mended(pair.wrong, chosen)
        with mending(run):
            after, left = run_text(text, tmp_path)
        gone = {row for row in named(run, text, chosen)}
        rest = [hazard for hazard in left if "program.py" in hazard.first]
        assert not gone & set(named(after, text, rest)), chosen


@pytest.mark.parametrize("name", PAIRS)
def test_verdicts_do_not_depend_on_how_fast_anything_is(name: str, tmp_path) -> None:
    """On a slower device, with calls that take no time, the same is found."""
    pair = PAIRS[name]
    for text, expected in ((pair.wrong, pair.expected()), (pair.right, [])):
        run, found = run_text(text, tmp_path, device="ascend910b4", submission="sink")
        assert named(run, text, found) == expected
