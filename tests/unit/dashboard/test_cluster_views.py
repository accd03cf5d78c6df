"""What pages say of streams in a cluster: who leads, which copies are behind, and origins."""

from __future__ import annotations

import msgspec
import pytest

from tradewind.api.stream_types import ClusterInfo, StreamInfo
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import NoLeaderError
from tradewind.dashboard.data.problems import problem_of
from tradewind.dashboard.look.elements import tag
from tradewind.dashboard.views.stream_views import cluster_facts, origin_card


def shown(cluster: dict[str, object] | None) -> str:
    made = None if cluster is None else msgspec.convert(cluster, ClusterInfo)
    return " ".join(f"{label} {tag('b', child)}" for label, child in cluster_facts(made))


def test_each_copy_is_well_behind_or_away() -> None:
    text = shown(
        {
            "leader": "a",
            "raft_group": "S-R3F-x",
            "replicas": [
                {"name": "b", "current": True, "active": 1},
                {"name": "c", "current": False, "active": 1},
                {"name": "d", "current": False, "offline": True, "active": 1},
            ],
        }
    )
    assert "Leader <b>a</b>" in text
    assert all(f">{peer}</span>" in text for peer in ("b", "c (behind)", "d (away)"))


def test_a_group_without_a_leader_says_so_and_a_single_server_nothing() -> None:
    assert "none at the moment" in shown({"name": "c3", "raft_group": "S-R3F-x"})
    assert shown(None) == ""
    assert shown({"name": "edge"}) == ""


@pytest.mark.parametrize(
    "error",
    [
        NoLeaderError("no leader at the moment: no answer"),
        JetStreamApiError(503, 10008, "JetStream system temporarily unavailable"),
    ],
)
def test_both_ways_to_learn_that_nobody_leads_are_one_problem(error: Exception) -> None:
    problem = problem_of(error)
    assert problem.kind == "away"
    assert problem.text.startswith("There is no leader at the moment")


def test_origins_with_the_same_name_in_several_domains_are_kept_apart() -> None:
    places = [{"api": f"$JS.device-{number}.API", "deliver": ""} for number in (1, 2)]
    info = msgspec.convert(
        {
            "config": {
                "name": "ALL",
                "sources": [{"name": "READINGS", "external": place} for place in places],
            },
            "sources": [
                {"name": "READINGS", "external": place, "lag": lag, "active": -1}
                for place, lag in zip(places, (7, 0), strict=True)
            ],
        },
        StreamInfo,
    )
    text = str(origin_card(info))
    assert text.index("device-1") < text.index("7 behind") < text.index("device-2")
    assert "up to date" in text[text.index("device-2") :]
