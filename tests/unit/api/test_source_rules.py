"""Origins of streams: overlapping prefixes and cycles, compared with the plain rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_clock import thread_seconds
from tradewind.api.errors import ApiError
from tradewind.api.source_rules import check_mirror_and_sources
from tradewind.api.stream_types import ExternalStream, StreamConfig, StreamSource
from tradewind.subjects import collide

NAMES = ["A", "B", "C", "D"]
SUBJECTS = st.sampled_from(["a", "a.>", "*.>", "b.*", "a.b.>", "b.a.b.>", "a.a.>", "c"])
PREFIXES = st.sampled_from(["a", "b", "a.b", "b.a", "x"])
SOURCES = st.builds(
    lambda name, subject: StreamSource(name=name, filter_subject=subject),
    st.sampled_from(NAMES),
    st.one_of(st.just(""), SUBJECTS),
)
STREAMS = st.fixed_dictionaries(
    {
        name: st.builds(
            lambda sources, subjects, name=name: StreamConfig(
                name=name, subjects=subjects, sources=sources
            ),
            st.lists(SOURCES, max_size=4, unique_by=lambda one: (one.name, one.filter_subject)),
            st.lists(SUBJECTS, max_size=2),
        )
        for name in NAMES
    }
)


def refusal(config: StreamConfig, streams: Mapping[str, StreamConfig]) -> str:
    try:
        check_mirror_and_sources(config, streams, pedantic=False)
    except ApiError as error:
        return str(error)
    return ""


def has_cycle(config: StreamConfig, streams: Mapping[str, StreamConfig]) -> bool:
    """As nats-server looks for one, stream after stream."""
    to_visit, visited = [config], set()
    while to_visit:
        current = to_visit.pop(0)
        visited.add(current.name)
        for source in current.sources:
            wanted = source.filter_subject
            if source.name not in visited:
                to_visit.append(streams[source.name])
            elif not wanted or any(collide(own, wanted) for own in current.subjects):
                return True
    return False


@given(STREAMS)
def test_cycle_is_found_where_the_plain_rule_finds_it(streams: dict[str, StreamConfig]) -> None:
    config = streams["A"]
    assert ("detected cycle" in refusal(config, streams)) == has_cycle(config, streams)


@given(st.lists(SUBJECTS, max_size=4), st.lists(PREFIXES, min_size=1, max_size=3))
def test_prefix_overlaps_where_the_plain_rule_says_so(
    subjects: list[str], prefixes: list[str]
) -> None:
    streams = {"B": StreamConfig(name="B", subjects=subjects)}
    sources = [
        StreamSource(name=f"E{number}", external=ExternalStream(api="J.API", deliver=prefix))
        for number, prefix in enumerate(prefixes)
    ]
    config = StreamConfig(name="A", sources=[StreamSource(name="B"), *sources])
    first = next(
        (
            (prefix, subject)
            for prefix in prefixes
            for subject in subjects
            if collide(subject, f"{prefix}.{subject}")
        ),
        None,
    )
    expected = (
        "stream external delivery prefix {} overlaps with stream subject {} (10022)".format(*first)
        if first is not None
        else ""
    )
    assert refusal(config, streams) == expected


def many_prefixes(count: int) -> None:
    streams = {"B": StreamConfig(name="B", subjects=[f"b{n}.>" for n in range(count)])}
    sources = [
        StreamSource(name=f"E{n}", external=ExternalStream(api="J.API", deliver=f"d{n}"))
        for n in range(count)
    ]
    config = StreamConfig(name="A", sources=[StreamSource(name="B"), *sources])
    assert refusal(config, streams) == ""


def many_filters(count: int) -> None:
    subjects = [f"b{n}" for n in range(count)]
    sources = [StreamSource(name="A", filter_subject=f"a{n}") for n in range(count)]
    assert refusal(StreamConfig(name="A", subjects=subjects, sources=sources), {}) == ""


def many_ways(count: int) -> None:
    streams = {
        name: StreamConfig(
            name=name,
            sources=[StreamSource(name=target, filter_subject=f"a{n}") for n in range(count)],
        )
        for name, target in (("A", "B"), ("B", "C"))
    }
    streams["C"] = StreamConfig(name="C", subjects=["c"])
    assert refusal(streams["A"], streams) == ""


@pytest.mark.slow
@pytest.mark.parametrize("work", [many_prefixes, many_filters, many_ways])
def test_work_grows_with_the_lists_and_not_with_their_product(
    work: Callable[[int], None],
) -> None:
    def takes_thrice_at_most(times: int) -> bool:
        once = thread_seconds(lambda: work(1000), times=times)
        return thread_seconds(lambda: work(2000), times=times) < 3 * once

    # What others do on the machine slows single measurements down, so more of them decide.
    assert any(takes_thrice_at_most(times) for times in (3, 9))
