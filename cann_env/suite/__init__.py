"""Suites: the instances on which schedulers are compared, read from ``configs/suites/*.toml``."""

from cann_env.suite.case import Asked, Instance, SuiteCase
from cann_env.suite.load import Suite, load_suite, suite_names

__all__ = ["Asked", "Instance", "Suite", "SuiteCase", "load_suite", "suite_names"]
