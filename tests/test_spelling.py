"""Mistyped words: the nearest known one is named, and none where none is near."""

from __future__ import annotations

import pytest

from cann_env.options import Submission
from cann_env.spelling import did_you_mean, nearest

KNOWN = ("pipeline", "serving", "serving_onnx", "Random")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("pipelin", "pipeline"),
        ("PIPELINE", "pipeline"),
        ("servng", "serving"),
        ("random", "Random"),
        ("serving-onnx", "serving_onnx"),
        ("transformer", None),
        ("", None),
        (3, None),
        (["pipeline"], None),
    ],
)
def test_the_nearest_word(word: object, meant: str | None) -> None:
    assert nearest(word, KNOWN) == meant
    assert did_you_mean(word, KNOWN) == ("" if meant is None else f"did you mean '{meant}'? ")


def test_members_of_an_enum_are_words() -> None:
    assert did_you_mean("egaer", Submission) == "did you mean 'eager'? "
