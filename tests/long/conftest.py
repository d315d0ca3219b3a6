"""Grades are given the time that they take here, too."""

from tests.core.check.conftest import all_the_time_it_takes

__all__ = ["all_the_time_it_takes"]
