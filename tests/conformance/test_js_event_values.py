"""Advisories and metrics: the same values on both servers, and no kind of event forgotten.

One script provokes each kind of event that a standalone server sends, on both servers. What they
tell must be equal but for `VOLATILE`. `CASES` has every kind that is named in the binary of
nats-server, with its case here or elsewhere, or with the reason why a standalone server has none.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

from helpers_ops import running

from client_frames import Frame
from conformance.helpers_consumer import MS, SECOND, Peer
from conformance.helpers_js import ApiClient
from harness import COMMANDS, RawClient, ServerProcess

CONFIG = """
server_name: crow
accounts {
  A { jetstream: enabled, users: [ {user: anna, password: p} ] }
  $SYS { users: [ {user: admin, password: p} ] }
}
jetstream {
  store_dir: "STORE", domain: hub, request_queue_limit: LIMIT, limits { batch { timeout: "1s" } }
}
"""
LOGIN = {"user": "anna", "pass": "p", "name": "n", "lang": "py", "version": "1"}
# Different in each run, but of one type: numbers of connections, times, sizes of archives.
VOLATILE = {
    *("id", "timestamp", "start", "end", "rtt", "ack_time", "pinned_id", "created", "ts"),
    *("first_ts", "last_ts", "pause_remaining", "bytes", "dropped", "memory", "storage"),
}
JETSTREAM = "io.nats.jetstream.advisory.v1."
SERVER = "io.nats.server.advisory.v1."
SCRIPT = "the script below"
SYSTEM_EVENTS = "test_system_events.py"
NEEDS_CLUSTER = "only servers of a cluster send it"
NEEDS_OCSP = "Tradewind refuses `ocsp_peer`"
CASES = {
    JETSTREAM + "api_audit": SCRIPT,
    JETSTREAM + "api_limit_reached": "test_too_many_requests_are_told_of",
    JETSTREAM + "consumer_action": SCRIPT,
    JETSTREAM + "consumer_group_pinned": SCRIPT,
    JETSTREAM + "consumer_group_unpinned": SCRIPT,
    JETSTREAM + "consumer_leader_elected": NEEDS_CLUSTER,
    JETSTREAM + "consumer_pause": SCRIPT,
    JETSTREAM + "consumer_quorum_lost": NEEDS_CLUSTER,
    JETSTREAM + "domain_leader_elected": NEEDS_CLUSTER,
    JETSTREAM + "max_deliver": SCRIPT,
    JETSTREAM + "meta_rescue": NEEDS_CLUSTER,
    JETSTREAM + "nak": SCRIPT,
    JETSTREAM + "restore_complete": SCRIPT,
    JETSTREAM + "restore_create": SCRIPT,
    JETSTREAM + "server_out_of_space": "nats-server switches JetStream off; Tradewind does not",
    JETSTREAM + "server_removed": NEEDS_CLUSTER,
    JETSTREAM + "snapshot_complete": SCRIPT,
    JETSTREAM + "snapshot_create": SCRIPT,
    JETSTREAM + "stream_action": SCRIPT,
    JETSTREAM + "stream_batch_abandoned": SCRIPT,
    JETSTREAM + "stream_leader_elected": NEEDS_CLUSTER,
    JETSTREAM + "stream_quorum_lost": NEEDS_CLUSTER,
    JETSTREAM + "terminated": SCRIPT,
    "io.nats.jetstream.metric.v1.consumer_ack": SCRIPT,
    SERVER + "account_connections": SYSTEM_EVENTS,
    SERVER + "client_connect": SYSTEM_EVENTS,
    SERVER + "client_disconnect": SYSTEM_EVENTS,
    SERVER + "ocsp_peer_link_invalid": NEEDS_OCSP,
    SERVER + "ocsp_peer_reject": NEEDS_OCSP,
    "io.nats.server.metric.v1.service_latency": "test_sharing_latency.py",
}
# kind -> how many of them the script provokes; those of the system account are marked.
COUNTS = Counter(
    {
        "api_audit": 22,
        "consumer_ack": 1,
        "consumer_action": 6,
        "consumer_group_pinned": 1,
        "consumer_group_unpinned": 1,
        "consumer_pause": 2,
        "max_deliver": 1,
        "nak": 2,
        "restore_complete": 1,
        "restore_create": 1,
        "snapshot_complete": 1,
        "snapshot_create": 1,
        "stream_action": 9,
        "stream_batch_abandoned": 2,
        "stream_batch_abandoned in the system account": 2,
        "terminated": 3,
    }
)


def test_every_kind_of_event_has_a_case_or_a_reason() -> None:
    """The strings of a Go binary stand one behind the other, so a kind may have a tail."""
    binary = Path(COMMANDS["official"]).read_bytes()
    pattern = rb"(?=(io\.nats\.(?:jetstream|server)\.(?:advisory|metric)\.v1\.[a-z_]+))"
    found = {match.decode() for match in re.findall(pattern, binary)}
    unknown = {one for one in found if not one.startswith(tuple(CASES))}
    assert not unknown
    assert {kind for kind in CASES if not any(one.startswith(kind) for one in found)} == set()
    scripted = {name.partition(" ")[0] for name in COUNTS}
    assert scripted == {kind.rpartition(".")[2] for kind, case in CASES.items() if case == SCRIPT}


class Listener:
    """Hears the events of one account."""

    def __init__(self, server: ServerProcess, user: str, mark: str = "") -> None:
        self.raw = RawClient(server.port).connect(user=user, **{"pass": "p"})
        self.raw.send("SUB $JS.EVENT.> 1\r\n")
        self.raw.ping()
        self._mark = mark

    def next(self) -> tuple[str, str, dict[str, Any]]:
        """Kind, subject and content of the next one."""
        line, _, payload = self.raw.read_message()
        event = json.loads(payload)
        return event["type"].rpartition(".")[2] + self._mark, line.split(" ")[1], event


def settled(value: Any, name: str = "") -> Any:
    """Without what is different in each run; documents in a text are read."""
    if name in VOLATILE and not isinstance(value, dict):
        return f"some {type(value).__name__}"
    if isinstance(value, dict):
        return {key: settled(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [settled(one) for one in value]
    if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        return settled(json.loads(value))
    if name == "server":
        host = re.escape(socket.gethostname().partition(".")[0])
        pattern = rf"N[A-Z2-7]{{55}}|{host}-[A-Z2-7]{{6}}"
        return "some server" if re.fullmatch(pattern, value) else value
    if name == "deliver_subject":
        return re.sub(r"[^.]+\Z", "some token", value)
    return value


class Script:
    """Provokes events, and hears them."""

    def __init__(self, server: ServerProcess) -> None:
        self.listener = Listener(server, "anna")
        self.system = Listener(server, "admin", " in the system account")
        self.js = ApiClient(server, **LOGIN)
        self.peer = Peer.__new__(Peer)
        self.peer.js = self.js
        self.peer.raw = RawClient(server.port).connect(no_responders=True, **LOGIN)
        self.peer.subscribe("inbox")
        self.heard: dict[str, list[tuple[str, dict[str, Any]]]] = {}

    def close(self) -> None:
        for one in (self.listener.raw, self.system.raw, self.peer.raw, self.js.raw):
            one.close()

    def hear(self, kind: str) -> None:
        """Wait until all events of this kind have come."""
        source = self.system if kind.endswith("account") else self.listener
        while len(self.heard.get(kind, ())) < COUNTS[kind]:
            found, subject, event = source.next()
            self.heard.setdefault(found, []).append((subject, settled(event)))

    def play(self) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        self._acknowledgements()
        self._consumers()
        self._batches()
        self._backups()
        self.js.request("STREAM.INFO.NONE", b"{")
        self.js.request("STREAM.NAMES")
        for name in "SBFR":
            self.js.done(f"STREAM.DELETE.{name}")
        for kind in COUNTS:
            self.hear(kind)
        # The events of one stream or consumer come in order, those of several may race.
        return {
            kind: sorted(events, key=lambda one: (one[0], json.dumps(one[1].get("batch"))))
            for kind, events in self.heard.items()
        }

    def _acknowledgements(self) -> None:
        peer, js = self.peer, self.js
        peer.stream("a", "b", "c", "d", "e")
        fields = {"name": "S", "subjects": ["s.>"], "storage": "memory", "description": "d"}
        js.done("STREAM.UPDATE.S", fields)
        peer.consumer(sample_freq="100%")
        frames = peer.fetch(5)
        peer.ack(frames[0])
        self.hear("consumer_ack")
        peer.ack(frames[1], b"+TERM")
        peer.ack(frames[2], b"+TERM it is <bad>")
        peer.ack(frames[3], b"-NAK")
        peer.ack(frames[4], b'-NAK {"delay": 100000000000}')
        self.hear("nak")
        js.done("STREAM.MSG.DELETE.S", {"seq": 5})
        self.hear("terminated")
        js.done("CONSUMER.PAUSE.S.C", {"pause_until": "2090-01-01T00:00:00Z"})
        js.done("CONSUMER.PAUSE.S.C", {})

    def _consumers(self) -> None:
        peer, js = self.peer, self.js
        peer.consumer("M", max_deliver=1, ack_wait=50 * MS)
        peer.fetch(1, "M")
        self.hear("max_deliver")
        policy = {"priority_policy": "pinned_client", "priority_timeout": 60 * SECOND}
        peer.consumer("P", priority_groups=["g"], **policy)
        peer.pull("inbox", "P", group="g", batch=1)
        peer.next()
        self.hear("consumer_group_pinned")
        js.done("CONSUMER.UNPIN.S.P", {"group": "g"})
        self.hear("consumer_group_unpinned")
        for name in "CMP":
            js.done(f"CONSUMER.DELETE.S.{name}")
        self.hear("consumer_action")

    def _batches(self) -> None:
        """One with a gap, and one that is never committed."""
        fields = {"name": "B", "subjects": ["b"], "storage": "memory", "allow_atomic": True}
        self.js.done("STREAM.CREATE.B", fields)
        for batch, sequence in (("gap", 1), ("gap", 3), ("late", 1)):
            header = (
                f"NATS/1.0\r\nNats-Batch-Id: {batch}\r\nNats-Batch-Sequence: {sequence}\r\n\r\n"
            )
            self.peer.raw.send(f"HPUB b inbox {len(header)} {len(header)}\r\n{header}\r\n".encode())
            self.peer.next()
        self.hear("stream_batch_abandoned")

    def _backups(self) -> None:
        peer, js = self.peer, self.js
        js.done("STREAM.CREATE.F", {"name": "F", "subjects": ["f"]})
        peer.publish("f", b"x", "inbox")
        peer.next()
        answer = js.done("STREAM.SNAPSHOT.F", {"deliver_subject": "inbox"})
        chunks: list[Frame] = []
        while (frame := peer.next()).payload:
            chunks.append(frame)
            if frame.reply:
                peer.publish(frame.reply)
        self.hear("snapshot_complete")
        config = {**answer["config"], "name": "R", "subjects": ["r"]}
        request = {"config": config, "state": answer["state"]}
        target = js.done("STREAM.RESTORE.R", request)["deliver_subject"]
        for chunk in [*(one.payload for one in chunks), b""]:
            peer.publish(target, chunk, "inbox")
            peer.next()
        self.hear("restore_complete")


def events_of(kind: str, folder: Path) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    folder.mkdir()
    with running(kind, folder, CONFIG.replace("LIMIT", "0")) as server:
        script = Script(server)
        try:
            return script.play()
        finally:
            script.close()


def test_events_have_the_same_values_on_both_servers(tmp_path: Path) -> None:
    official = events_of("official", tmp_path / "official")
    assert Counter({kind: len(events) for kind, events in official.items()}) == COUNTS
    ours = events_of("tradewind", tmp_path / "tradewind")
    for kind, expected in official.items():
        # As texts: the members have to be in the same order.
        assert [json.dumps(one) for one in ours[kind]] == [json.dumps(one) for one in expected]
    assert ours.keys() == official.keys()


def test_too_many_requests_are_told_of(shared_kind: str, tmp_path: Path) -> None:
    """nats-server also tells of those that another of its threads has dropped: of none, then."""
    with running(shared_kind, tmp_path, CONFIG.replace("LIMIT", "5")) as server:
        system = Listener(server, "admin")
        with system.raw, RawClient(server.port).connect(**LOGIN) as flood:
            deadline = time.monotonic() + 20
            system.raw.socket.settimeout(1)
            for number in range(1_000_000):
                body = f'{{"name":"S{number}","subjects":["s{number}"]}}'
                request = f"PUB $JS.API.STREAM.CREATE.S{number} in {len(body)}\r\n{body}\r\n"
                flood.send(request)
                if number % 100 == 99:
                    try:
                        kind, subject, event = system.next()
                        break
                    except TimeoutError:
                        assert time.monotonic() < deadline
            assert (kind, subject) == ("api_limit_reached", "$JS.EVENT.ADVISORY.API.LIMIT_REACHED")
            assert list(event) == ["type", "id", "timestamp", "server", "domain", "dropped"]
            assert (event["server"], event["domain"]) == ("crow", "hub")
            assert 0 <= event["dropped"] < 100
        server.wait_for_log(r"\[WRN\] JetStream API queue limit reached, dropping \d+ requests")
