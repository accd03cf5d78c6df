"""A sweep fails like the tests that it stands for."""

from __future__ import annotations

import inspect

import pytest
from sweeps import sweep


def test_every_value_is_tried_and_those_that_fail_are_named() -> None:
    tried = []

    @sweep("number", range(5), ids=lambda number: f"n{number}")
    def check(number: int) -> None:
        tried.append(number)
        assert number not in (1, 3)

    with pytest.raises(AssertionError) as failure:
        check()
    assert tried == [0, 1, 2, 3, 4]
    assert failure.value.__notes__ == ["2 of 5 values fail, this first:\n'n1'\n'n3'"]


def test_fixtures_are_those_that_are_no_values() -> None:
    seen = []

    @sweep(("left", "right"), [(1, 2), (3, 4)])
    @sweep("factor", [10, 100])
    def check(left: int, right: int, factor: int, fixture: str) -> None:
        seen.append((left, right, factor, fixture))

    assert list(inspect.signature(check).parameters) == ["fixture"]
    check(fixture="f")
    assert len(seen) == 4
    assert seen[-1] == (3, 4, 100, "f")


def test_no_values_and_unknown_names_are_errors() -> None:
    with pytest.raises(AssertionError, match="no values for number"):
        sweep("number", [])
    with pytest.raises(AssertionError, match="number"):

        @sweep("number", [1])
        def check(other: int) -> None:
            pass
