"""Every request of JetStream, by every way a client can send it, under rules about it.

The cases follow from the table of endpoints: a request that has no row here fails the test. What
counts is what happens: whether the request is answered, and whether streams and consumers change.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from helpers_ops import LOOPBACK, login, next_message, publish, request

from harness import RawClient, ServerProcess, wait_for
from leaf_kit import RawLeaf
from tradewind.api.endpoint_row import PREFIX, ApiEndpoint
from tradewind.api.endpoints import NATS_ENDPOINTS

CONSUMER = {"name": "c", "durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 7}


class Deed(msgspec.Struct, frozen=True):
    """How one request is made. `changes`: something is different when it is done. STREAM and CONFIG
    in a body stand for the stream of the case and its configuration.
    """

    body: Any = ""
    changes: bool = False
    consumer: str = "c"
    is_new: bool = False  # it is about a stream that is not there yet


def _consumer(name: str, **more: Any) -> dict[str, Any]:
    return {"stream_name": "STREAM", "config": {**CONSUMER, "name": name, **more}}


# In the words of nats-server: only it decides about those of a cluster, which are refused here.
DEEDS: dict[str, Deed] = {
    "account_info": Deed(),
    "stream_create": Deed("CONFIG", changes=True, is_new=True),
    "stream_update": Deed("CHANGED", changes=True),
    "stream_names": Deed(),
    "stream_list": Deed(),
    "stream_info": Deed(),
    "stream_delete": Deed(changes=True),
    "stream_purge": Deed(changes=True),
    "stream_msg_get": Deed({"seq": 1}),
    "stream_msg_delete": Deed({"seq": 1}, changes=True),
    "stream_snapshot": Deed({"deliver_subject": "chunks"}),
    "stream_restore": Deed({"config": "CONFIG", "state": {}}, is_new=True),
    "stream_peer_remove": Deed({"peer": "x"}),
    "stream_peer_evacuate": Deed({"peer": "x"}),
    "stream_cancel_move": Deed(),
    "stream_leader_stepdown": Deed(),
    "consumer_create_ephemeral": Deed(
        {"stream_name": "STREAM", "config": {"ack_policy": "explicit"}}, changes=True
    ),
    "consumer_create": Deed(_consumer("new", durable_name="new"), changes=True, consumer="new"),
    "consumer_create_filtered": Deed(
        _consumer("new", durable_name="new", filter_subject="FILTER"), changes=True, consumer="new"
    ),
    "consumer_create_durable": Deed(
        _consumer("new", durable_name="new"), changes=True, consumer="new"
    ),
    "consumer_names": Deed(),
    "consumer_list": Deed(),
    "consumer_info": Deed(),
    "consumer_delete": Deed(changes=True),
    "consumer_pause": Deed({"pause_until": "2099-01-01T00:00:00Z"}, changes=True),
    "consumer_unpin": Deed({"group": "g"}),
    "consumer_reset": Deed({"seq": 2}, changes=True),
    "consumer_leader_stepdown": Deed(),
    "consumer_next": Deed({"batch": 1, "no_wait": True}, changes=True),
    "direct_get": Deed({"seq": 1}),
    "direct_get_last": Deed(),
}
# Of a cluster: whether a single server answers them at all is not looked at here.
UNANSWERED = {
    each.name for each in NATS_ENDPOINTS if each.needs_cluster and each.name != "stream_cancel_move"
}
# Whoever may send what: what is denied or allowed is the request itself ("deed"), or another name.
WAYS: dict[str, str] = {
    "plain": PREFIX,
    "domain": "$JS.HUB.API.",
    "mapping": "mapped.",
    "import": "of.a.",
    "leaf": PREFIX,
}
OTHER_NAMES = ["$JS.HUB.API.>", "mapped.>"]


def pattern(endpoint: ApiEndpoint, prefix: str = PREFIX) -> str:
    words = ["*" if word in ("$s", "$c") else word for word in endpoint.subject.split(".")]
    return prefix + ".".join(">" if word == "$rest" else word for word in words)


def users(prefix: str, mark: str) -> str:
    found = [f"{{user: {mark}_free, password: pw}}"]
    for each in NATS_ENDPOINTS:
        subject = json.dumps(pattern(each, prefix))
        for name, rule in (("deny", "deny"), ("only", "allow")):
            found.append(
                f"{{user: {mark}_{name}_{each.name}, password: pw,"
                f" permissions: {{publish: {{{rule}: [{subject}]}}}}}}"
            )
    rule = f"{{publish: {{allow: {json.dumps(OTHER_NAMES)}}}}}"
    found.append(f"{{user: {mark}_names, password: pw, permissions: {rule}}}")
    return "\n".join(found)


CONFIG = f"""
jetstream {{ store_dir: "FOLDER", domain: HUB }}
leafnodes {{ listen: "127.0.0.1:-1" }}
accounts {{
  A {{
    jetstream: enabled
    users: [ {users(PREFIX, "a")} ]
    mappings: {{ "mapped.>": "$JS.API.>" }}
    exports: [ {{service: "$JS.API.>", response_type: stream}} ]
  }}
  B {{
    users: [ {users("of.a.", "b")} ]
    imports: [ {{service: {{account: A, subject: "$JS.API.>"}}, to: "of.a.>"}} ]
  }}
}}
"""
_numbers = itertools.count(1)


class Case:
    """A stream of its own for one request, with two messages and a consumer."""

    def __init__(self, admin: RawClient, deed: Deed) -> None:
        self.admin, self.deed = admin, deed
        self.stream = f"S{next(_numbers)}"
        self.config = {
            "name": self.stream,
            "subjects": [f"{self.stream}.>"],
            "storage": "memory",
            "allow_direct": True,
        }
        if deed.is_new:
            return
        self.ask(f"STREAM.CREATE.{self.stream}", self.config)
        body = {"stream_name": self.stream, "config": CONSUMER}
        self.ask(f"CONSUMER.CREATE.{self.stream}.c", body)
        for _ in range(2):
            request(admin, f"{self.stream}.x", "m")

    def ask(self, subject: str, body: Any = "") -> dict[str, Any]:
        text = body if isinstance(body, str) else json.dumps(body)
        answer: dict[str, Any] = json.loads(request(self.admin, PREFIX + subject, text)[1])
        return answer

    def subject(self, endpoint: ApiEndpoint, prefix: str) -> str:
        rest = f"{self.stream}.x"
        subject = endpoint.subject_for(self.stream, self.deed.consumer, rest)
        return prefix + subject.removeprefix(PREFIX)

    @property
    def body(self) -> str:
        text = self.deed.body if isinstance(self.deed.body, str) else json.dumps(self.deed.body)
        changed = {**self.config, "description": "changed"}
        for word, meant in (("CONFIG", self.config), ("CHANGED", changed)):
            text = text.replace(f'"{word}"', json.dumps(meant))
            if text == word:
                text = json.dumps(meant)
        return text.replace("STREAM", self.stream).replace("FILTER", f"{self.stream}.x")

    def state(self) -> Any:
        """All that a request could have changed."""
        info = self.ask(f"STREAM.INFO.{self.stream}", {"deleted_details": True})
        if "error" in info:
            return None
        consumers = self.ask(f"CONSUMER.LIST.{self.stream}")["consumers"] or []
        shown = [
            (one["config"].get("durable_name", "?"), one["delivered"], one["config"])
            for one in consumers
        ]
        return info["config"], info["state"], sorted(shown, key=str)

    def close(self) -> None:
        self.ask(f"STREAM.DELETE.{self.stream}")


def is_answered(client: RawClient, subject: str, body: str, *, waits: bool) -> bool:
    """Whether somebody answers a request; nobody does if it is refused. Without `waits`, refusals
    only are looked for.
    """
    inbox = f"answers.{next(_numbers)}"
    client.send(f"SUB {inbox} 1\r\n{publish(subject, body, inbox)}PING\r\n")
    while (line := client.next_line()) != b"PONG":
        if line.startswith(b"-ERR 'Permissions Violation"):
            return False
        words = line.split(b" ")
        assert words[0] in (b"MSG", b"HMSG"), line
        client.read_exact(int(words[-1]) + 2)
        return True
    if waits:
        next_message(client)
    return True


def is_answered_over_leaf(peer: RawLeaf, subject: str, body: str, *, waits: bool) -> bool:
    """The same over a leaf connection, which a refusal closes."""
    peer.quiet_ping()
    inbox = f"answers.{next(_numbers)}"
    # Streams that are read directly are a queue group, which a server names.
    to = f"+ {inbox} _sys_" if ".DIRECT." in subject else inbox
    peer.send(f"LS+ {inbox}\r\nLMSG {subject} {to} {len(body)}\r\n{body}\r\nPING\r\n")
    is_ponged = False
    while not is_ponged or waits:
        line = peer.read_line()
        if not line or line.startswith(b"-ERR 'Permissions Violation"):
            return False
        if line == b"PING":
            peer.send("PONG\r\n")
        elif line.startswith((b"LMSG ", b"HMSG ")):
            peer.read_exact(int(line.split(b" ")[-1]) + 2)
            if inbox.encode() in line or b"$JS.ACK" in line:
                return True
        is_ponged = is_ponged or line == b"PONG"
    return True


@pytest.fixture(scope="module")
def server(shared_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    path = folder / "server.conf"
    path.write_text(CONFIG.replace("FOLDER", str(folder)))
    process = ServerProcess(shared_kind, [*LOOPBACK, "-c", str(path)])
    try:
        yield process.wait_ready()
    finally:
        process.stop()


@pytest.fixture(scope="module")
def admin(server: ServerProcess) -> Iterator[RawClient]:
    with login(server, "a_free", "pw", no_responders=True) as client:
        yield client


def leaf_port(server: ServerProcess) -> int:
    found = server.wait_for_log(r"Listening for leafnode connections on \S+:(\d+)")
    return int(found[1])


def attempt(
    server: ServerProcess, way: str, user: str, subject: str, body: str, *, waits: bool
) -> bool:
    if way == "leaf":
        with RawLeaf(leaf_port(server)) as peer:
            peer.login(name=f"{user}{next(_numbers)}", user=user, **{"pass": "pw"})
            return is_answered_over_leaf(peer, subject, body, waits=waits)
    with login(server, user, "pw", no_responders=True) as client:
        return is_answered(client, subject, body, waits=waits)


def rules_of(way: str, endpoint: ApiEndpoint) -> dict[str, bool]:
    """The users of a way, and whether each may do it."""
    mark = "b" if way == "import" else "a"
    found = {
        f"{mark}_free": True,
        f"{mark}_deny_{endpoint.name}": False,
        f"{mark}_only_{endpoint.name}": True,
    }
    if way in ("domain", "mapping"):
        found["a_names"] = False
    return found


def test_every_request_has_a_row() -> None:
    assert {each.name for each in NATS_ENDPOINTS} == set(DEEDS)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("endpoint", NATS_ENDPOINTS, ids=lambda each: each.name)
def test_a_request_does_what_it_may_and_nothing_else(
    server: ServerProcess, admin: RawClient, endpoint: ApiEndpoint, way: str
) -> None:
    deed = DEEDS[endpoint.name]
    for user, is_allowed in rules_of(way, endpoint).items():
        case = Case(admin, deed)
        before = case.state()
        answered = attempt(
            server,
            way,
            user,
            case.subject(endpoint, WAYS[way]),
            case.body,
            waits=is_allowed and endpoint.name not in UNANSWERED,
        )
        assert answered == is_allowed, (user, way)
        if is_allowed and deed.changes:
            wait_for(changed_from(case, before), (user, way))
        elif not is_allowed:
            assert case.state() == before, (user, way)
        case.close()


def changed_from(case: Case, before: Any) -> Callable[[], bool]:
    return lambda: case.state() != before
