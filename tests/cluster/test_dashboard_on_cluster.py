"""The dashboard before a cluster: who leads, what a form changes, and pages without a leader."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cluster_kit import LocalCluster, patiently, remove_stream, replicated_stream
from dashboard.conftest import Web, area_of, hidden_fields
from harness import wait_for
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.web.serving import DashboardSettings, running_dashboard

NO_LEADER = "There is no leader at the moment"
# What the page of a stream says as soon as its servers can tell that themselves.
STREAM_WITHOUT_LEADER = "It has no leader"


def says_no_leader(text: str) -> bool:
    return NO_LEADER in text or STREAM_WITHOUT_LEADER in text


@pytest.fixture
def web(cluster: LocalCluster) -> Iterator[Web]:
    """A visitor of a dashboard that knows all nodes."""
    options = ConnectOptions(servers=cluster.url)
    with running_dashboard(DashboardSettings(options, port=0)) as dashboard:
        visitor = Web(dashboard.url)
        with visitor.client:
            yield visitor


def test_a_stream_with_three_copies_is_made_shown_changed_and_purged(
    web: Web, cluster: LocalCluster
) -> None:
    with replicated_stream(cluster, "OTHER", "other.>") as nats:
        manager = nats.jetstream_manager()
        fields = {"name": "FORM", "subjects": "form.>", "num_replicas": 3}
        assert "Stream FORM was created." in web.send("/new-stream", **fields)
        refused = web.send("/new-stream", 409, name="X", subjects="x", num_replicas=6)
        assert "The server says: maximum replicas is 5." in refused
        for number in range(5):
            nats.jetstream().publish("form.x", b"%d" % number, msg_id=f"form-{number}")

        leader = cluster.leader_of(nats, "FORM").node.name
        wait_for(lambda: "Messages 5" in web.text("/streams/FORM"))
        text = web.text("/streams/FORM")
        assert "3 servers keep a copy." in text
        assert f"Leader {leader} Replicas" in text
        names = {node.node.name for node in cluster.nodes}
        assert all(name in text.partition("Replicas ")[2] for name in names - {leader})
        wait_for(lambda: "FORM form.> 5" in web.text("/streams"))
        wait_for(lambda: "OTHER other.> 0" in web.text("/streams"))

        page = web.page("/streams/FORM/edit?as=json")
        changed = json.dumps({**json.loads(area_of(page)), "max_msgs": 77})
        base = hidden_fields(page)["base"]
        assert "was changed" in web.send("/streams/FORM/apply", config=changed, base=base)
        assert manager.streams.info("FORM").config.max_msgs == 77

        made = web.send("/streams/FORM/new-consumer", name="work", ack_policy="explicit")
        assert "Consumer work was created." in made
        led_by = patiently(lambda: manager.consumers.info("FORM", "work")).cluster.leader
        page_of_work = "/streams/FORM/consumers/work"
        wait_for(lambda: f"Leader {led_by} Replicas" in web.text(page_of_work))

        assert "It removes 5 messages" in web.send("/streams/FORM/purge")
        assert "5 messages of FORM were removed." in web.send("/streams/FORM/purge-now")
        assert "was deleted" in web.send("/streams/FORM/delete", typed="FORM")


@pytest.mark.timeout(400)
def test_pages_say_that_there_is_no_leader_and_go_on_when_there_is_one(
    web: Web, cluster: LocalCluster
) -> None:
    with replicated_stream(cluster, "LEAD", "lead.>") as nats:
        nats.jetstream().publish("lead.1", b"1")
        nats.jetstream_manager().consumers.add("LEAD", durable_name="work")
        wait_for(lambda: "LEAD lead.> 1" in web.text("/streams"))
        wait_for(lambda: "Messages 1" in web.text("/streams/LEAD"))
        # The leader last: the other two alone could elect one of them.
        leader = cluster.leader_of(nats, "LEAD")
        next(node for node in cluster.nodes if node is not leader).kill()
        leader.kill()
        wait_for(
            lambda: says_no_leader(web.text("/streams/LEAD")),
            explain=lambda: web.text("/streams/LEAD"),
        )
        # What was seen before stays beside it.
        assert "Messages 1" in web.text("/streams/LEAD")
        wait_for(lambda: NO_LEADER in web.text("/streams/LEAD/consumers/work"))
        wait_for(lambda: NO_LEADER in web.send("/new-stream", 503, name="Y", subjects="y"))
        wait_for(lambda: NO_LEADER in web.text("/streams"))
        cluster.start()
        wait_for(lambda: not says_no_leader(web.text("/streams/LEAD")))
        wait_for(lambda: NO_LEADER not in web.text("/streams"))
        nats.jetstream().publish("lead.1", b"2", msg_id="two", timeout=60)
        wait_for(lambda: "Messages 2" in web.text("/streams/LEAD"))


def test_a_stream_whose_only_server_is_away_hides_no_other(web: Web, cluster: LocalCluster) -> None:
    with replicated_stream(cluster, "STAYS", "stays.>") as nats:
        streams = nats.jetstream_manager().streams
        patiently(lambda: streams.add(name="SINGLE", subjects=["single.>"], num_replicas=1))
        try:
            wait_for(lambda: "SINGLE single.> 0" in web.text("/streams"))
            cluster.leader_of(nats, "SINGLE").kill()

            def hides_no_other() -> bool:
                """The same server may have led the other stream, which has a leader again soon."""
                text = web.text("/streams")
                return f"SINGLE {NO_LEADER}" in text and "STAYS stays.> 0" in text

            wait_for(hides_no_other)
        finally:
            cluster.start()
            remove_stream(streams, "SINGLE")
