"""Streams that a first publish makes: nothing is lost or made twice, and all has its bounds."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from typing import Any

import pytest
from engine_kit import Peer
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk
from tradewind.testing.gates import User, UserGate

SECOND = 1_000_000_000
K8S = {"name": "k8s", "match": "k8s.*.>", "stream": "k8s_{1}", "max_streams": 3}


class World:
    def __init__(self, disk: SimulatedDisk | None = None, **more: Any) -> None:
        self.disk = disk or SimulatedDisk()
        self.server = InProcessServer(disk=self.disk, **more)
        self.peer = Peer(self.server)

    def own(self, request: str, **body: Any) -> dict[str, Any]:
        ((_, _, data),) = self.peer.ask(f"$TW.API.TEMPLATE.{request}", body or b"")
        document: dict[str, Any] = json.loads(data)
        return document

    def put(self, **changes: Any) -> dict[str, Any]:
        template = {**K8S, **changes}
        return self.own(f"PUT.{template['name']}", **template)

    def names(self) -> list[str]:
        return self.peer.api("STREAM.NAMES").get("streams") or []

    def payloads(self, stream: str) -> list[str]:
        state = self.peer.api(f"STREAM.INFO.{stream}")["state"]
        found = []
        for seq in range(1, state["last_seq"] + 1):
            answer = self.peer.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})
            found.append(answer["message"]["subject"])
        return found


def test_the_first_message_is_stored_and_acknowledged() -> None:
    world = World()
    assert world.peer.ask("k8s.web.pods", b"x")[0][1].startswith(b"NATS/1.0 503")
    assert world.put(config={"max_msgs": 5, "metadata": {"team": "a"}})["success"]
    assert world.own("TRY", subject="k8s.web.pods")["would_create"]
    assert world.names() == []
    assert world.peer.publish("k8s.web.pods") == {"stream": "k8s_web", "seq": 1}
    assert world.peer.publish("k8s.web.a.b") == {"stream": "k8s_web", "seq": 2}
    config = world.peer.api("STREAM.INFO.k8s_web")["config"]
    assert (config["subjects"], config["max_msgs"]) == (["k8s.web.>"], 5)
    assert config["metadata"].items() >= {"team": "a", "tradewind.template": "k8s"}.items()
    (status,) = world.own("LIST")["templates"]
    assert (status["template"]["name"], status["streams"]) == ("k8s", 1)
    assert world.own("TRY", subject="k8s.web.x")["reason"] == (
        "someone already subscribes to this subject"
    )
    assert world.own("TRY", subject="other")["reason"] == "no template matches this subject"


def test_all_that_comes_while_the_stream_is_made_is_stored_in_order() -> None:
    world = World(manual_sync=True)
    send = world.peer.connection.send

    def settle() -> None:
        while world.server.syncer.waiting:
            world.server.syncer.run_all()
            world.server.run_until_idle()

    body = json.dumps(K8S).encode()
    send(b"PUB $TW.API.TEMPLATE.PUT.k8s inbox.t %d\r\n%s\r\n" % (len(body), body))
    settle()
    world.server.workers.is_held = True
    lines = [b"PUB k8s.web.%d inbox.%d 1\r\nx\r\n" % (number, number) for number in range(50)]
    send(b"".join(lines[:20]))
    for line in lines[20:]:
        send(line)
    world.server.workers.is_held = False
    world.server.workers.run_all()
    world.server.run_until_idle()
    settle()
    answers = [json.loads(data) for subject, _, data in world.peer.take() if subject != "inbox.t"]
    assert [answer["seq"] for answer in answers] == list(range(1, 51))
    world.server.manual_sync = False
    assert world.payloads("k8s_web") == [f"k8s.web.{number}" for number in range(50)]


def test_a_message_without_a_reply_is_stored_too() -> None:
    world = World()
    world.put()
    world.peer.connection.send(b"PUB k8s.web.x 1\r\nx\r\n")
    assert world.payloads("k8s_web") == ["k8s.web.x"]


def test_a_template_makes_no_more_streams_than_it_may() -> None:
    world = World()
    world.put()
    for number in range(3):
        assert world.peer.publish(f"k8s.n{number}.x") == {"stream": f"k8s_n{number}", "seq": 1}
    refused = world.peer.publish("k8s.n3.x")
    assert refused is not None
    assert "its limit of 3 streams (max_streams)" in refused["error"]["description"]
    assert world.own("TRY", subject="k8s.n3.x")["would_create"] is False
    # Those that are there go on.
    assert world.peer.publish("k8s.n0.x") == {"stream": "k8s_n0", "seq": 2}
    world.peer.api("STREAM.DELETE.k8s_n0")
    world.server.advance(2)
    assert world.peer.publish("k8s.n3.x") == {"stream": "k8s_n3", "seq": 1}


def test_very_many_different_tokens_are_refused_and_noted_once() -> None:
    world = World()
    world.put()
    for start in range(0, 5000, 1000):
        lines = [b"PUB k8s.t%d.x 1\r\nx\r\n" % number for number in range(start, start + 1000)]
        world.peer.connection.send(b"".join(lines))
    assert len(world.names()) == 3
    warned = [text for text in world.server.log.texts("warn") if "reached its limit" in text]
    assert len(warned) == 1


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (b"k8s." + b"x" * 300 + b".y", "is not a valid stream name"),
        (b"k8s.a/b.y", "is not a valid stream name"),
        (b"k8s.\xff\xfe.y", "characters that are not allowed in a name"),
        (b"k8s.\x7f.y", "characters that are not allowed in a name"),
    ],
    ids=range(4),
)
def test_hostile_tokens_make_no_stream(subject: bytes, text: str) -> None:
    world = World()
    world.put()
    world.peer.connection.send(b"PUB %s inbox.p 1\r\nx\r\n" % subject)
    ((_, _, data),) = world.peer.take()
    assert text in json.loads(data)["error"]["description"]
    assert world.names() == []


def test_the_permissions_of_the_publisher_decide() -> None:
    rules = PermissionRules(publish_deny=("k8s.secret.>", "$TW.API.>"))
    users = [User("admin"), User("app", permissions=rules)]
    world = World(gate=UserGate(users, stranger="admin"))
    world.put()
    app = Peer(world.server, "app", inbox="app")
    app.connection.send(b"PUB k8s.secret.x app.1 1\r\nx\r\n")
    app.connection.send(b"PUB $TW.API.TEMPLATE.DELETE.k8s app.1 0\r\n\r\n")
    assert app.connection.take().count(b"Permissions Violation") == 2
    assert world.names() == []
    assert app.publish("k8s.web.x") == {"stream": "k8s_web", "seq": 1}


def test_another_stream_of_that_name_stays_as_it_is() -> None:
    world = World()
    world.put()
    world.peer.api("STREAM.CREATE.k8s_web", {"name": "k8s_web", "subjects": ["other"]})
    refused = world.peer.publish("k8s.web.x")
    assert refused is not None
    assert "'k8s_web' exists, but does not store this subject" in refused["error"]["description"]


def test_streams_that_nobody_uses_go() -> None:
    world = World()
    world.put(idle=60 * SECOND)
    for name in ("a", "b", "c"):
        world.peer.publish(f"k8s.{name}.x")
    consumer = {"durable_name": "d", "ack_policy": "explicit"}
    body = {"stream_name": "k8s_c", "config": consumer}
    assert "error" not in world.peer.api("CONSUMER.CREATE.k8s_c.d", body)
    world.peer.create("plain")
    world.server.advance(50)
    world.peer.publish("k8s.b.x")
    world.server.advance(30)
    assert world.names() == ["k8s_b", "k8s_c", "plain"]
    world.server.advance(100)
    assert world.names() == ["k8s_c", "plain"]
    assert world.peer.publish("k8s.a.x") == {"stream": "k8s_a", "seq": 1}


def test_streams_stay_while_the_clock_is_ahead_and_go_when_it_is_right() -> None:
    world = World()
    world.put(idle=60 * SECOND)
    world.peer.publish("k8s.a.x")
    world.server.clock.jump_ns(86_400 * SECOND)
    world.peer.publish("k8s.b.x")
    world.server.advance(25)
    assert world.names() == ["k8s_a", "k8s_b"]
    world.server.clock.jump_ns(-86_400 * SECOND)
    world.server.advance(200)
    assert world.names() == []


def test_templates_are_there_after_a_crash_and_go_on_counting() -> None:
    world = World()
    world.put()
    for number in range(3):
        world.peer.publish(f"k8s.n{number}.x")
    again = World(world.disk.crash_losing_unsynced())
    assert again.own("LIST")["templates"][0]["streams"] == 3
    refused = again.peer.publish("k8s.n3.x")
    assert refused is not None
    assert "error" in refused
    assert again.own("DELETE.k8s")["success"]
    last = World(again.disk.crash_losing_unsynced())
    assert "templates" not in last.own("LIST")
    assert last.peer.ask("k8s.n9.x", b"x")[0][1].startswith(b"NATS/1.0 503")
    assert len(last.names()) == 3


def test_power_failure_at_any_step_keeps_what_was_acknowledged() -> None:
    base = World()
    base.put()
    before = base.disk.crash_losing_unsynced()
    for step in range(1, 100):
        world = World(before.crash_losing_unsynced())
        world.disk.stop_at = world.disk.steps + step
        answer: dict[str, Any] | None = None
        with suppress(PowerLoss):
            answer = world.peer.publish("k8s.web.x")
        again = World(world.disk.crash(seed=step))
        assert len(again.own("LIST")["templates"]) == 1
        if answer is not None and "error" not in answer:
            assert answer == {"stream": "k8s_web", "seq": 1}
            assert again.payloads("k8s_web") == ["k8s.web.x"]
            break
        assert again.peer.publish("k8s.web.y")
    assert step > 5


def test_power_failure_leaves_the_old_templates_or_the_new_ones() -> None:
    base = World()
    base.put()
    before = base.disk.crash_losing_unsynced()
    for step in range(1, 50):
        world = World(before.crash_losing_unsynced())
        world.disk.stop_at = world.disk.steps + step
        try:
            world.put(max_streams=7)
        except PowerLoss:
            pass
        else:
            break
        again = World(world.disk.crash(seed=step))
        (found,) = again.own("LIST")["templates"]
        assert found["template"]["max_streams"] in (3, 7)
    assert step > 3


def test_a_full_disk_is_told_to_the_publisher_and_passes() -> None:
    world = World()
    world.put()
    world.disk.fail("write", "*k8s_web*", error=errno.ENOSPC, times=1 << 30)
    refused = world.peer.publish("k8s.web.x")
    assert refused is not None
    assert "error" in refused
    world.disk.clear_faults()
    assert world.peer.publish("k8s.web.x") == {"stream": "k8s_web", "seq": 1}


def test_a_file_that_cannot_be_read_is_named_and_left_alone() -> None:
    disk = SimulatedDisk()
    disk.make_directory(f"{disk.root}/jetstream/$G/streams")
    path = f"{disk.root}/jetstream/$G/tradewind.templates"
    disk.put_durable_file(path, b"[{]")
    world = World(disk)
    assert any("cannot read the templates" in text for text in world.server.log.texts("error"))
    assert world.peer.create("S")["config"]["name"] == "S"
    assert disk.content_of(path) == b"[{]"


def test_requests_that_were_dropped_are_not_waited_for() -> None:
    limits = JetStreamOptions(request_queue_limit=3)
    world = World(options=ServerOptions(server_name="in-process", jetstream=limits))
    world.put()
    world.server.workers.is_held = True
    body = b'{"name":"S","subjects":["s"]}'
    world.peer.connection.send(b"PUB $JS.API.STREAM.CREATE.S i.c %d\r\n%s\r\n" % (len(body), body))
    world.peer.connection.send(b"PUB k8s.web.x inbox.p 1\r\nx\r\n")
    for _ in range(4):
        world.peer.connection.send(b"PUB $JS.API.INFO inbox.i 0\r\n\r\n")
    world.server.workers.is_held = False
    world.server.workers.run_all()
    world.server.run_until_idle()
    world.peer.take()
    answers = world.peer.ask("k8s.web.x", b"x")
    assert json.loads(answers[-1][2])["stream"] == "k8s_web"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"match": "k8s.web"}, "match must be a pattern such as k8s.*.>"),
        ({"match": "k8s..>"}, "match must be a pattern such as k8s.*.>"),
        ({"match": "*.>"}, "match must begin with a plain token"),
        ({"match": "$JS.*.>"}, "match must begin with a plain token"),
        ({"match": "_INBOX.*"}, "match must begin with a plain token"),
        ({"stream": "k8s"}, "stream: a name with {1} to {1}"),
        ({"stream": "k8s_{2}"}, "stream: a name with {1} to {1}"),
        ({"stream": "k8s.{1}"}, "stream must not contain blanks, dots"),
        ({"max_streams": 0}, "max_streams: from 1 to 10000"),
        ({"max_streams": 2**63 - 1}, "max_streams: from 1 to 10000"),
        ({"idle": 5}, "idle: 0, or from 1 second"),
        ({"idle": 2**63 - 1}, "idle: 0, or from 1 second"),
        ({"config": {"name": "x"}}, "config must not contain name, subjects"),
        ({"config": {"subjects": ["x"]}}, "config must not contain name, subjects"),
        ({"config": {"max_age": 5}}, "max age needs to be"),
        ({"name": "a b"}, ""),
    ],
    ids=range(16),
)
def test_a_template_that_is_wrong_is_refused_with_what_would_be_right(
    changes: dict[str, Any], text: str
) -> None:
    world = World()
    for dry_run in (True, False):
        template = {**K8S, **changes, "dry_run": dry_run}
        name = "k8s" if " " in template["name"] else template["name"]
        answer = world.own(f"PUT.{name}", **template)
        assert text in answer["error"]["description"]
    assert "templates" not in world.own("LIST")


def test_two_templates_never_have_the_same_subject() -> None:
    world = World()
    world.put()
    answer = world.put(name="other", match="k8s.web.*", stream="o_{1}")
    assert "match overlaps with template 'k8s'" in answer["error"]["description"]
    assert world.put(name="other", match="docker.*", stream="o_{1}")["success"]
    assert world.put(match="k8s.*.*.>")["success"]
    assert world.put(match="k9s.*.>", dry_run=True)["success"]
    assert world.own("LIST")["templates"][0]["template"]["match"] == "k8s.*.*.>"
    assert "template does not exist: 'x'" in world.own("DELETE.x")["error"]["description"]


tokens = st.sampled_from(["a", "b", "c", "d"])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(tokens, tokens, st.booleans()), max_size=15), st.integers(1, 3))
def test_streams_are_those_of_a_naive_model(
    publishes: list[tuple[str, str, bool]], most: int
) -> None:
    world = World()
    world.put(match="k8s.*.*", stream="s-{2}-{1}", max_streams=most)
    model: dict[str, list[str]] = {}
    for first, second, crashes in publishes:
        name, subject = f"s-{second}-{first}", f"k8s.{first}.{second}"
        if name not in model and len(model) < most:
            model[name] = []
        answer = world.peer.publish(subject)
        assert answer is not None
        if name in model:
            model[name].append(subject)
            assert answer == {"stream": name, "seq": len(model[name])}
        else:
            assert "max_streams" in answer["error"]["description"]
        if crashes:
            world = World(world.disk.crash_losing_unsynced())
    assert {name: world.payloads(name) for name in world.names()} == model


def test_an_account_has_a_quota_for_all_its_templates() -> None:
    world = World()
    world.put()
    world.put(name="tenants", match="tenants.*", stream="tenant_{1}")
    world.server.engine.accounts["$G"].template_streams_max = 2
    world.peer.create("OTHER", subjects=["other"])  # does not count
    assert world.peer.publish("k8s.a.x")["stream"] == "k8s_a"
    assert world.peer.publish("tenants.a")["stream"] == "tenant_a"
    refused = world.peer.publish("tenants.b")["error"]["description"]
    assert "their limit of 2 streams (max_template_streams)" in refused
    assert world.peer.publish("k8s.a.y")["seq"] == 2
    assert "max_template_streams" in world.own("TRY", subject="tenants.b")["reason"]
    world.peer.api("STREAM.DELETE.k8s_a")
    world.server.advance(2)
    assert world.peer.publish("tenants.b")["stream"] == "tenant_b"
