"""How long tradewind.route.sublist takes to find the subscriptions of a subject."""

import functools

from benchmarks.micro.registry import Operation, micro
from benchmarks.workloads import many_filters

MANY = 100_000
LOOKUP_COUNT = 10_000


def _lookup(filters: list[bytes], subjects: list[bytes], *, cache: bool) -> Operation:
    from benchmarks.micro.probes import match, sublist_of

    return functools.partial(match, sublist_of(filters, cache), subjects)


def _spaced(subjects: list[bytes]) -> list[bytes]:
    """Ten thousand of a hundred thousand; the odd distance lets every kind of filter take part."""
    return [subjects[index * 11 % len(subjects)] for index in range(LOOKUP_COUNT)]


@micro("sublist-one-cached", "1 subscription, the same 16 subjects")
def one_cached() -> Operation:
    """What a busy subject costs."""
    return _lookup([b"core.>"], [b"core.%d" % index for index in range(16)], cache=True)


@micro("sublist-one-trie", "1 subscription, without the cache")
def one_trie() -> Operation:
    """What a subject that never repeats costs."""
    return _lookup([b"core.>"], [b"core.%d" % index for index in range(16)], cache=False)


@micro("sublist-100k-cached", "100,000 subscriptions, 10,000 subjects")
def many_cached() -> Operation:
    """More subjects than the cache is meant for."""
    filters, subjects = many_filters(MANY)
    return _lookup(filters, _spaced(subjects), cache=True)


@micro("sublist-100k-trie", "100,000 subscriptions, without the cache")
def many_trie() -> Operation:
    """The trie alone."""
    filters, subjects = many_filters(MANY)
    return _lookup(filters, _spaced(subjects), cache=False)
