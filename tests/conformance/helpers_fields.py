"""Requests of the API field by field, sent to both servers at once, and how their answers differ.

The fields come from the types of `tradewind.api`. Which values are tried is the business of each
test.
"""

from __future__ import annotations

import json
import re
import threading
import types
import typing
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness import RawClient, ServerProcess
from jetstream_servers import keep_streams_folder
from tradewind.api.base import ApiStruct
from tradewind.api.endpoint_row import ApiEndpoint

ABSENT = "absent"
ZERO_TIME = "0001-01-01T00:00:00Z"
# What differs between two runs of one server.
VARYING = {"created", "ts", "first_ts", "last_ts", "time", "last_active", "pinned_ts", "leader"}
VARYING |= {"pause_remaining"}
TIME_STAMP = re.compile(r"(?<=Nats-Time-Stamp: )\S+")
# Endpoints that change nothing, and those that make a consumer and change nothing else.
READING = tuple(
    f"$JS.API.{name}"
    for name in (
        "INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO", "STREAM.MSG.GET", "CONSUMER.NAMES",
        "CONSUMER.LIST", "CONSUMER.INFO", "DIRECT.GET",
    )
)  # fmt: skip
MAKING_CONSUMERS = ("$JS.API.CONSUMER.CREATE.", "$JS.API.CONSUMER.DURABLE.CREATE.")
STREAM = {"name": "Z", "subjects": ["z.>"], "storage": "memory"}
CONSUMER = {"ack_policy": "explicit", "mem_storage": True}
# A parent in which a nested field is tried, with what makes it valid.
PARENTS: dict[str, dict[str, Any]] = {
    "placement": {},
    "mirror": {"name": "O"},
    "sources": {"name": "O"},
    "subject_transform": {"src": "z.*", "dest": "y.$1"},
    "subject_transforms": {"src": "o.*", "dest": "y.$1"},
    "republish": {"src": "z.*", "dest": "y.$1"},
    "external": {"api": "$JS.other.API", "deliver": "other"},
    "consumer": {"name": "c", "deliver_subject": "d"},
    "consumer_limits": {},
    "state": {},
    "lost": {},
    "config": {},
}


@dataclass(frozen=True)
class Case:
    """A request, with what goes before it."""

    label: str
    subject: str
    body: bytes
    before: tuple[tuple[str, bytes], ...] = ()


class Client:
    """Sends requests one after the other and takes their first answers.

    The steps before a case are repeated only if the last case has changed their effect: most are
    refused.
    """

    def __init__(self, server: ServerProcess) -> None:
        self.raw = RawClient(server.port).connect(no_responders=True)
        self.raw.send("SUB chunks 2\r\n")
        self._count = 2
        # What the server has been asked and still has.
        self._there: tuple[tuple[str, bytes], ...] = ()

    def ask(self, subject: str, body: bytes = b"", header: bytes = b"") -> tuple[bytes, bytes]:
        """(header, payload) of the first message that answers."""
        self._count += 1
        sid = str(self._count)
        size = f"{len(header)} {len(header) + len(body)}" if header else f"{len(body)}"
        verb = "HPUB" if header else "PUB"
        self.raw.send(f"SUB r.{sid} {sid}\r\n{verb} {subject} r.{sid} {size}\r\n".encode())
        self.raw.send(header + body + b"\r\n")
        while True:
            line, header, payload = self.raw.read_message()
            words = line.split()
            if words[2] == sid:  # messages keep their subjects
                self.raw.send(f"UNSUB {sid}\r\n")
                return header, payload
            if words[1] == "chunks" and len(words) > 4:
                self.raw.send(f"PUB {words[3]} 0\r\n\r\n")

    def answer(self, case: Case) -> object:
        """The response to a case, of a server that has one stream for it."""
        count = len(self._there)
        assert case.before[:count] == self._there
        for subject, body in case.before[count:]:
            self.ask(subject, body)
        self._there = case.before
        header, payload = self.ask(case.subject, case.body)
        found = normal(payload)
        if isinstance(found, dict) and ".RESTORE." in case.subject and "deliver_subject" in found:
            self.ask(json.loads(payload)["deliver_subject"])
            found["deliver_subject"] = "..."
        is_refused = isinstance(found, dict) and "error" in found
        if not is_refused and not case.subject.startswith(READING):
            self._undo(case.subject, payload)
        return TIME_STAMP.sub("...", header.decode()), found

    def _undo(self, subject: str, payload: bytes) -> None:
        """Remove what a request has changed.

        Should one that was refused have changed something all the same, the next ones show it.
        """
        if subject.startswith(MAKING_CONSUMERS):
            made = json.loads(payload)
            self.ask(f"$JS.API.CONSUMER.DELETE.{made['stream_name']}.{made['name']}")
            self._there = tuple(step for step in self._there if ".CONSUMER." not in step[0])
        else:
            self.clear()

    def clear(self) -> None:
        self.ask("$JS.API.STREAM.DELETE.Z")
        self._there = ()


def normal(payload: bytes) -> object:
    """An answer without what is new every time."""
    try:
        document = json.loads(payload)
    except ValueError:
        return payload
    return without_times(document)


def without_times(value: Any) -> Any:
    if isinstance(value, list):
        return [without_times(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {
        key: "..." if key in VARYING and item != ZERO_TIME else without_times(item)
        for key, item in value.items()
    }
    if {"name", "lag", "active"} <= found.keys():
        # Whether a copy has found its origin yet when the answer is given is a matter of time.
        found = {key: item for key, item in found.items() if key not in ("active", "error")}
    if "config" in found and "delivered" in found and not found["config"].get("durable_name"):
        # The server has made the name up, unless the request has it.
        made_up = len(found["name"]) == 8 and found["name"] != "consumer"
        found["name"] = found["config"]["name"] = "..." if made_up else found["name"]
    return found


# ---------------------------------------------------------------- the cases


def fields(struct: type[ApiStruct], *, depth: int = 0) -> Iterator[tuple[str, ...]]:
    """The paths of all fields; lists of structs are gone into, too."""
    hints = hints_of(struct)
    for name in struct.__struct_fields__:
        yield (name,)
        inner = struct_in(hints[name])
        if inner is not None and depth < 4:
            for path in fields(inner, depth=depth + 1):
                yield (name, *path)


def struct_in(hint: Any) -> type[ApiStruct] | None:
    """The type of objects in a field, if it has some."""
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        return hint if issubclass(hint, ApiStruct) else None
    found = [struct_in(argument) for argument in typing.get_args(hint)]
    return next((struct for struct in found if struct is not None), None)


def hint_of(struct: type[ApiStruct], path: tuple[str, ...]) -> Any:
    """The type of a field."""
    hint: Any = struct
    for name in path:
        owner = struct_in(hint)
        assert owner is not None
        hint = hints_of(owner)[name]
    return hint


@cache
def hints_of(struct: type[ApiStruct]) -> dict[str, Any]:
    return typing.get_type_hints(struct)


def nested(path: tuple[str, ...], value: Any, base: dict[str, Any]) -> dict[str, Any]:
    """`base` with this value at a path."""
    name, rest = path[0], path[1:]
    if not rest:
        return {**base, name: value}
    parent = base.get(name, PARENTS[name])
    is_list = name in ("sources", "subject_transforms")
    if is_list and isinstance(parent, list):
        parent = parent[0]
    inner = nested(rest, value, parent)
    return {**base, name: [inner] if is_list else inner}


def api(name: str, body: dict[str, Any]) -> tuple[str, bytes]:
    return f"$JS.API.{name}", json.dumps(body).encode()


MAKE_STREAM = api("STREAM.CREATE.Z", {**STREAM, "allow_direct": True})
MESSAGES = (("z.a", b"one"), ("z.b", b"two"), ("z.a", b"three"))
MAKE_PULL = api(
    "CONSUMER.CREATE.Z.consumer", {"stream_name": "Z", "config": {**CONSUMER, "name": "consumer"}}
)
MAKE_PINNED = api(
    "CONSUMER.CREATE.Z.consumer",
    {
        "stream_name": "Z",
        "config": {
            **CONSUMER,
            "name": "consumer",
            "priority_groups": ["A"],
            "priority_policy": "pinned_client",
        },
    },
)
STORED = (MAKE_STREAM, *MESSAGES)
# What goes before a request, and a request to which fields are added.
SETTINGS: dict[str, tuple[tuple[tuple[str, bytes], ...], dict[str, Any]]] = {
    "account_info": ((), {}),
    "stream_create": ((), STREAM),
    "stream_update": ((api("STREAM.CREATE.Z", STREAM),), STREAM),
    "stream_names": (STORED, {}),
    "stream_list": (STORED, {}),
    "stream_info": (STORED, {}),
    "stream_delete": (STORED, {}),
    "stream_purge": (STORED, {}),
    "stream_msg_get": (STORED, {"seq": 1}),
    "stream_msg_delete": (STORED, {"seq": 1}),
    "stream_snapshot": (STORED, {"deliver_subject": "chunks"}),
    "stream_restore": ((), {"config": STREAM, "state": {}}),
    "stream_peer_remove": (STORED, {}),
    "stream_peer_evacuate": (STORED, {}),
    "stream_cancel_move": (STORED, {}),
    "stream_leader_stepdown": (STORED, {}),
    "consumer_create_ephemeral": (STORED, {"stream_name": "Z", "config": CONSUMER}),
    "consumer_create": (STORED, {"stream_name": "Z", "config": CONSUMER}),
    "consumer_create_filtered": (
        STORED,
        {"stream_name": "Z", "config": {**CONSUMER, "filter_subject": "z.a"}},
    ),
    "consumer_create_durable": (
        STORED,
        {"stream_name": "Z", "config": {**CONSUMER, "durable_name": "consumer"}},
    ),
    "consumer_names": ((*STORED, MAKE_PULL), {}),
    "consumer_list": ((*STORED, MAKE_PULL), {}),
    "consumer_info": ((*STORED, MAKE_PULL), {}),
    "consumer_delete": ((*STORED, MAKE_PULL), {}),
    "consumer_pause": ((*STORED, MAKE_PULL), {}),
    "consumer_unpin": ((*STORED, MAKE_PINNED), {"group": "A"}),
    "consumer_reset": ((*STORED, MAKE_PULL), {"seq": 2}),
    "consumer_leader_stepdown": ((*STORED, MAKE_PULL), {}),
    "consumer_next": ((*STORED, MAKE_PULL), {"batch": 1, "no_wait": True}),
    "direct_get": (STORED, {"seq": 1}),
    "direct_get_last": (STORED, {}),
}


# Other requests to which fields are added: what means nothing in one may mean something in another.
VARIANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("stream_create", "limits", {**STREAM, "retention": "interest", "max_age": 10**10}),
    ("stream_create", "sealed", {**STREAM, "allow_msg_ttl": True, "allow_rollup_hdrs": True}),
    ("stream_create", "pedantic", {**STREAM, "pedantic": True}),
    ("stream_purge", "keep", {"keep": 1, "filter": "z.a"}),
    ("stream_msg_get", "empty", {}),
    ("stream_msg_get", "next", {"seq": 1, "next_by_subj": "z.*"}),
    ("stream_msg_get", "last", {"last_by_subj": "z.a"}),
    ("direct_get", "empty", {}),
    ("direct_get", "batch", {"seq": 1, "batch": 2, "next_by_subj": "z.*"}),
    ("direct_get", "several", {"multi_last": ["z.>"]}),
    ("direct_get", "time", {"start_time": "2020-01-01T00:00:00Z"}),
    ("consumer_next", "waits", {"batch": 1, "expires": 10**9, "idle_heartbeat": 10**8}),
    *(
        ("consumer_create", label, {"stream_name": "Z", "config": {**CONSUMER, **config}})
        for label, config in {
            "push": {"deliver_subject": "d", "idle_heartbeat": 10**9, "flow_control": True},
            "sequence": {"deliver_policy": "by_start_sequence", "opt_start_seq": 2},
            "time": {
                "deliver_policy": "by_start_time",
                "opt_start_time": "2020-01-01T00:00:00Z",
            },
            "last per subject": {"deliver_policy": "last_per_subject", "filter_subject": "z.a"},
            "backoff": {"backoff": [10**9, 10**10], "max_deliver": 3},
            "group": {"priority_groups": ["A"], "priority_policy": "pinned_client"},
            "paused": {"pause_until": "2100-01-01T00:00:00Z"},
        }.items()
    ),
    (
        "consumer_create",
        "pedantic",
        {"stream_name": "Z", "config": CONSUMER, "pedantic": True},
    ),
)


def cases(
    endpoint: ApiEndpoint,
    base: dict[str, Any],
    bodies: Callable[[type[ApiStruct], dict[str, Any]], Iterator[tuple[str, bytes]]],
) -> list[Case]:
    """A request with each of its bodies."""
    before, _ = SETTINGS[endpoint.name]
    subject = endpoint.subject_for("Z", "consumer", "z.a")
    wanted = bodies(endpoint.request or ApiStruct, base)
    return [Case(label, subject, body, before) for label, body in wanted]


# ---------------------------------------------------------------- both servers


@contextmanager
def both_servers(folder: Path) -> Iterator[list[ServerProcess]]:
    """One of each kind, with JetStream."""
    servers = []
    try:
        for kind in ("official", "tradewind"):
            flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder / kind)]
            servers.append(ServerProcess(kind, flags))
        ready = [server.wait_ready() for server in servers]
        keep_streams_folder(folder / "official")
        yield ready
    finally:
        for server in servers:
            server.stop()


def differences(
    servers: list[ServerProcess], wanted: list[Case], known: Container[tuple[str, str]] = ()
) -> list[str]:
    """The cases that the two servers answer differently, asked side by side.

    `known` are differences on purpose: (subject, label).
    """
    answers: dict[str, list[object]] = {}

    def ask_all(server: ServerProcess) -> None:
        client = Client(server)
        client.ask(*api("STREAM.CREATE.O", {"name": "O", "storage": "memory"}))
        try:
            answers[server.kind] = [client.answer(case) for case in wanted]
            client.clear()
        finally:
            client.raw.close()

    threads = [threading.Thread(target=ask_all, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pairs = zip(wanted, answers["official"], answers["tradewind"], strict=True)
    return [
        f"{case.label}: {'; '.join(unlike(official, ours))}"
        for case, official, ours in pairs
        if official != ours and (case.subject, case.label) not in known
    ]


def unlike(official: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ."""
    if isinstance(official, dict) and isinstance(ours, dict):
        for key in {**official, **ours}:
            yield from unlike(official.get(key, ABSENT), ours.get(key, ABSENT), f"{path}.{key}")
    elif isinstance(official, tuple) and isinstance(ours, tuple):
        for index, pair in enumerate(zip(official, ours, strict=True)):
            yield from unlike(*pair, f"{path}{index}")
    elif official != ours:
        yield f"{path} is {official!r} officially, {ours!r} with us"
