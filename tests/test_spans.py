"""Spans are sets of moments: each function against the moments themselves."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cann_env.spans import covered_ns, union, without

_SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(-2, 9)).map(lambda s: (s[0], s[0] + s[1])), max_size=8
)


def moments(spans: list[tuple[int, int]]) -> set[int]:
    return {at for start, finish in spans for at in range(start, finish)}


@given(_SPANS)
def test_a_union_holds_the_same_moments_in_order_and_apart(spans: list[tuple[int, int]]) -> None:
    merged = union(spans)
    assert moments(merged) == moments(spans)
    assert all(before[1] < after[0] for before, after in pairwise(merged))
    assert covered_ns(spans) == len(moments(spans))


@given(_SPANS, _SPANS)
def test_what_is_left_is_in_the_one_and_not_in_the_other(
    spans: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    left = without(union(spans), union(others))
    assert moments(left) == moments(spans) - moments(others)
    assert all(start < finish for start, finish in left)
