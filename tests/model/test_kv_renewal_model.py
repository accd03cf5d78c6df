"""Renewing keys by reading them, with clocks that are wrong by any amount, against naive rules."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tradewind.client.kv.renewals import PERIODS_PER_TTL, Renewals
from tradewind.durations import SECOND_NS

YEAR_SECONDS = 365 * 86_400.0
ttls = st.floats(1, 86_400)
# The client's clock less that of the server.
offsets = st.one_of(
    st.just(0.0), st.floats(-100_000, 100_000), st.floats(-YEAR_SECONDS, YEAR_SECONDS)
)


def renewed_at(ttl: float, offset: float, reads: list[float]) -> list[float]:
    """The moments at which reads at these moments renew a key that is written at 0."""
    renewals = Renewals()
    written = 0.0
    moments = []
    for now in reads:
        age_ns = int((now + offset - written) * SECOND_NS)
        if renewals.begin_if_due("k", int(ttl * SECOND_NS), age_ns, 1000.0 + now):
            written = now
            moments.append(now)
    return moments


@given(ttl=ttls, offset=offsets, gaps=st.lists(st.floats(0, 0.35), min_size=1, max_size=60))
def test_key_that_is_read_often_enough_never_expires(
    ttl: float, offset: float, gaps: list[float]
) -> None:
    reads = list(itertools.accumulate(gap * ttl for gap in gaps))
    written = 0.0
    renewals = renewed_at(ttl, offset, reads)
    for now in reads:
        assert now - written <= ttl
        if now in renewals:
            written = now


@given(ttl=ttls, offset=offsets, gaps=st.lists(st.floats(0, 0.5), max_size=60))
def test_reads_write_at_most_once_per_tenth_of_the_time_to_live(
    ttl: float, offset: float, gaps: list[float]
) -> None:
    reads = list(itertools.accumulate(gap * ttl for gap in gaps))
    moments = renewed_at(ttl, offset, reads)
    period = ttl / PERIODS_PER_TTL
    for before, after in itertools.pairwise(moments):
        assert after - before >= period * 0.999


def test_memory_of_renewals_is_bounded() -> None:
    renewals = Renewals(keys_max=10)
    for number in range(1000):
        assert renewals.begin_if_due(str(number), SECOND_NS, -1, 1.0)
    assert len(renewals._renewed_at) == 10
    assert not renewals.begin_if_due("999", SECOND_NS, -1, 1.05)
