"""The rest of the attention that people wrote is graded as it is."""

from __future__ import annotations

import pytest

from tests.check.expected import EXPECTED, Expected
from tests.check.test_found import QUICK, check, modules_of_one_file

__all__ = ["modules_of_one_file"]
REST = [one for one in EXPECTED if one not in QUICK]


@pytest.mark.parametrize("expected", REST, ids=lambda one: one.block)
def test_a_block_that_was_found_is_graded_as_it_is(expected: Expected) -> None:
    check(expected)
