"""Profiles, marks and dumps: programs that ask for them run as they do without."""

from __future__ import annotations

import warnings

import pytest

import cann_env.acl as acl
from cann_env.acl import codes


@pytest.fixture(autouse=True)
def _run() -> None:
    acl.simulate("ascend910b2")
    acl.init()
    acl.rt.set_device(0)


def test_a_profile_is_accepted_and_says_once_that_none_is_written() -> None:
    with pytest.warns(UserWarning, match=r"writes no profile: acl\.save_trace") as told:
        assert acl.prof.init("profile") == codes.SUCCESS
        assert acl.prof.init("profile") == codes.SUCCESS
    assert len(told) == 1
    assert told[0].filename == __file__
    config = acl.prof.create_config([0], 1, 0, 0x0007)
    assert config > 0
    assert acl.prof.set_config(3, "15") == codes.SUCCESS
    assert acl.prof.start(config) == acl.prof.stop(config) == codes.SUCCESS
    assert acl.prof.destroy_config(config) == codes.SUCCESS
    assert acl.prof.stop(config) == codes.INVALID_PARAM
    assert "was destroyed" in acl.get_recent_err_msg()
    assert acl.prof.finalize() == codes.SUCCESS


def test_a_profile_of_a_device_that_is_not_there_is_none() -> None:
    assert acl.prof.create_config([0, 99], 0, 0, 1) == 0
    assert "99" in acl.get_recent_err_msg()


def test_marks_and_spans() -> None:
    stamp = acl.prof.create_stamp()
    assert acl.prof.set_stamp_trace_message(stamp, "load", 4) == codes.SUCCESS
    assert acl.prof.push(stamp) == acl.prof.pop() == acl.prof.mark(stamp) == codes.SUCCESS
    span, code = acl.prof.range_start(stamp)
    assert code == acl.prof.range_stop(span) == codes.SUCCESS
    assert acl.prof.destroy_stamp(stamp) is None
    assert acl.prof.range_start(stamp) == (0, codes.INVALID_PARAM)


def test_what_reads_profiles_is_refused() -> None:
    with pytest.warns(UserWarning, match="not simulated"):
        assert acl.prof.model_subscribe(1, 2) == codes.RT_FEATURE_NOT_SUPPORT


def test_a_dump_is_accepted_and_says_that_none_is_written() -> None:
    assert acl.mdl.init_dump() == codes.SUCCESS
    with pytest.warns(UserWarning, match="writes no dump"):
        assert acl.mdl.set_dump("acl.json") == codes.SUCCESS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert acl.mdl.set_dump("acl.json") == codes.SUCCESS
    assert acl.mdl.set_dump(None) == codes.INVALID_PARAM
    assert acl.mdl.finalize_dump() == codes.SUCCESS
