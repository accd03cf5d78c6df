"""Watches of a sublist that goes as a whole."""

from __future__ import annotations

import gc

import pytest

from tradewind.route.sublist import Sublist


def test_watch_that_is_collected_before_its_sublist_is_not_found_any_more() -> None:
    """The garbage collector takes what is in a cycle in an order of its own."""
    sublist = Sublist(1)
    handle = sublist.add(b"a.b")
    sublist.watch(b"a.b", b"", sublist.has_interest)  # a cycle
    (watches,) = [one for one in gc.get_referents(sublist) if isinstance(one, dict)]
    watches.clear()  # as the collector does with a dictionary
    sublist.discard(handle)
    assert not sublist.has_interest(b"a.b")
    del sublist
    gc.collect()


@pytest.mark.slow
def test_watched_sublist_goes_with_the_collector() -> None:
    gc.collect()  # those that other tests have left
    before = sum(isinstance(one, Sublist) for one in gc.get_objects())
    for _ in range(3):
        sublist = Sublist(1)
        sublist.keep(b"a.b")
        sublist.watch(b"a.b", b"", sublist.has_interest)
    del sublist
    gc.collect()
    assert sum(isinstance(one, Sublist) for one in gc.get_objects()) == before
