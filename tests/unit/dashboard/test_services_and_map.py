"""Sums of services, the order of copies, and leaf connections in the answers of servers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tradewind.api.stream_types import (
    ExternalStream,
    StreamConfig,
    StreamInfo,
    StreamSource,
    StreamSourceInfo,
)
from tradewind.client.services.service_types import EndpointStats, ServiceStats
from tradewind.dashboard.data.map_data import (
    DEPTH_MAX,
    StreamCopy,
    copies_of,
    depths,
    leafs_of,
    place_key,
)
from tradewind.dashboard.data.service_data import figures, loads_of


def stats(service_id: str, *endpoints: EndpointStats) -> ServiceStats:
    return ServiceStats(
        name="orders",
        id=service_id,
        version="1.0.0",
        started=datetime(2026, 1, 1, tzinfo=UTC),
        endpoints=list(endpoints),
    )


def endpoint(requests: int, errors: int, time_ns: int, **more: Any) -> EndpointStats:
    return EndpointStats(
        name="add",
        subject="orders.add",
        num_requests=requests,
        num_errors=errors,
        processing_time=time_ns,
        **more,
    )


def test_endpoints_of_instances_add_up() -> None:
    loads = loads_of(
        [
            stats("b", endpoint(10, 1, 4000, last_error="500: broken")),
            stats("a", endpoint(30, 0, 4000)),
            ServiceStats(name="empty", id="c", version="1", endpoints=None),
        ]
    )
    (found,) = loads.endpoints
    assert (found.instances, found.requests, found.errors, found.average_ns) == (2, 40, 1, 200)
    assert found.last_error == "500: broken"
    assert [each.id for each in loads.instances] == ["c", "a", "b"]
    assert figures(loads) == (40.0, 1.0, 8000.0)
    # A service that has not been asked has no average.
    assert loads_of([stats("a", endpoint(0, 0, 0))]).endpoints[0].average_ns == 0
    # Figures of others may be anything.
    assert loads_of([stats("a", endpoint(-5, -1, -1))]).endpoints[0].requests == 0


def test_copies_of_a_stream_name_their_origin_and_state() -> None:
    external = ExternalStream(api="$JS.hub.API")
    config = StreamConfig(
        name="ALL", sources=[StreamSource(name="EU"), StreamSource(name="EU", external=external)]
    )
    info = StreamInfo(
        config=config, sources=[StreamSourceInfo(name="EU", external=external, lag=5, active=7)]
    )
    here, there = copies_of(info)
    assert (here.key, here.lag) == (place_key("EU"), None)
    assert (there.key, there.lag, there.active_ns) == (place_key("EU", "$JS.hub.API"), 5, 7)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_each_copy_is_right_of_its_origin_unless_there_is_a_circle(
    pairs: list[tuple[int, int]],
) -> None:
    copies = [StreamCopy(f"S{one}", "", f"S{other}", is_mirror=True) for one, other in pairs]
    found = depths(copies)
    assert all(0 <= each <= DEPTH_MAX for each in found.values())
    if all(one < other for one, other in pairs):
        assert all(found[each.key] < found[place_key(each.target)] for each in copies)


def test_leaf_connections_of_servers_that_say_anything() -> None:
    told = {
        "server": {"name": "hub"},
        "data": {
            "leafnodes": 1,
            "leafs": [{"name": "edge", "account": "A", "rtt": "1ms", "in_msgs": 3}, 5, {}],
        },
    }
    found = leafs_of([told, {}, {"data": 5}])
    assert found is not None
    assert [(each.server, each.name, each.messages_in) for each in found] == [
        ("hub", "edge", 3),
        ("hub", "", 0),
    ]
    assert leafs_of([{"data": {"leafnodes": 0}}]) == ()
    assert leafs_of([{}, {"error": "no"}]) is None
