"""Direct gets against a model that looks at all messages for every answer, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.direct_model import Model, Reply, Stored
from tradewind.api.errors import ApiError
from tradewind.api.request_types import MsgGetRequest
from tradewind.api.requests import decode_lenient
from tradewind.api.times import format_time
from tradewind.stream.stream import Stream
from unit.stream.stream_kit import StreamKit, frame, purge

START_NS = 1_700_000_000_000_000_000
SUBJECTS = ("s.1", "s.2", "s.3", "s.a.b", "s.a.c")
PATTERNS = (*SUBJECTS, "s.*", "s.a.*", ">", "s.>", "*.1", "zz", "s..1", "s.>.1", "s.1 ", "s.**")
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"),
            st.sampled_from(SUBJECTS),
            st.binary(max_size=3),
            st.booleans(),
        ),
        st.tuples(st.just("delete"), st.integers(1, 12)),
        st.tuples(st.just("purge"), st.sampled_from(["s.1", "s.a.*", ""])),
        st.tuples(st.just("wait"), st.sampled_from([1, 500_000_000, 3_600_000_000_000])),
        st.tuples(st.just("stop_syncing")),
    ),
    min_size=1,
    max_size=25,
)
SEQUENCES = st.one_of(st.integers(0, 14), st.sampled_from([2**63, 2**64 - 1]))
COUNTS = st.one_of(st.integers(-2, 6), st.sampled_from([2**63 - 1, -(2**63)]))
TIMES = st.one_of(
    st.integers(0, 20).map(lambda step: START_NS + step * 500_000_000),
    st.sampled_from([0, START_NS + 1, START_NS + 3_600_000_000_001]),
).map(format_time)
# Most fields of a request are left out, or it would contradict itself nearly always.
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "seq": SEQUENCES,
        "last_by_subj": st.sampled_from(PATTERNS),
        "next_by_subj": st.sampled_from(PATTERNS),
        "batch": COUNTS,
        "max_bytes": COUNTS,
        "start_time": TIMES,
        "multi_last": st.lists(st.sampled_from(PATTERNS), max_size=3),
        "up_to_seq": SEQUENCES,
        "up_to_time": TIMES,
        "no_hdr": st.booleans(),
    },
)
KINDS = st.sampled_from(
    [
        ("seq",),
        ("seq", "batch", "max_bytes", "no_hdr"),
        ("seq", "batch", "next_by_subj"),
        ("last_by_subj", "no_hdr"),
        ("next_by_subj", "seq"),
        ("start_time", "next_by_subj", "batch"),
        ("multi_last", "batch", "seq", "max_bytes", "no_hdr"),
        ("multi_last", "up_to_seq"),
        ("multi_last", "up_to_time"),
        ("no_hdr", "max_bytes"),
        (),
    ]
)
# How a body is written; the last ones are not plain.
WRITERS = st.sampled_from(
    [
        lambda request: json.dumps(request, separators=(",", ":")).encode(),
        lambda request: json.dumps(request).encode(),
        lambda request: json.dumps({**request, "unknown": [{}]}).encode(),
        lambda request: json.dumps(
            {name.upper(): value for name, value in request.items()}
        ).encode(),
        lambda request: json.dumps(request).encode()[:-1],
    ]
)


@st.composite
def gets(draw: st.DrawFn) -> tuple[bytes, str | None]:
    """A body and perhaps the subject behind the name of the stream."""
    request = draw(REQUESTS)
    if kept := draw(KINDS):
        request = {name: value for name, value in request.items() if name in kept}
    body = draw(WRITERS)(request)
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([b"", body])), draw(st.sampled_from([*SUBJECTS, "zz"]))
    return body, None


class Pair:
    """A stream and the model of it."""

    def __init__(self, storage: str, per_subject: int = -1) -> None:
        self.kit = StreamKit()
        self.stream: Stream = self.kit.create(
            allow_direct=True, storage=storage, max_msgs_per_subject=per_subject
        )
        self.messages: list[Stored] = []

    def run(self, steps: list[tuple[Any, ...]]) -> None:
        for step in steps:
            getattr(self, f"_{step[0]}")(*step[1:])

    def _publish(self, subject: str, payload: bytes, with_header: bool) -> None:
        header = b"NATS/1.0\r\nH: v\r\n\r\n" if with_header else b""
        self.kit.peer.send(frame(subject, payload, header, reply=""))
        store = self.stream.store
        self.messages.append(Stored(store.last_seq, store.last_timestamp, subject, header, payload))
        self._keep_stored()

    def _delete(self, seq: int) -> None:
        if any(message.seq == seq for message in self.messages):
            self.stream.delete_message(seq)
            self.messages = [message for message in self.messages if message.seq != seq]

    def _purge(self, pattern: str) -> None:
        purge(self.stream, pattern)
        self._keep_stored()

    def _keep_stored(self) -> None:
        kept = {message.seq for message in self.stream.store.messages()}
        self.messages = [message for message in self.messages if message.seq in kept]

    def _wait(self, duration_ns: int) -> None:
        self.kit.clock.advance_ns(duration_ns)
        self.kit.turn.now_ns = self.kit.clock.wall_ns()

    def _stop_syncing(self) -> None:
        self.kit.engine.auto_sync = False

    @property
    def model(self) -> Model:
        store = self.stream.store
        is_file = self.stream.folder is not None
        return Model("S", self.messages, self.stream.visible_seq, store.last_seq, is_file)

    def ask(self, body: bytes, subject: str | None) -> list[Reply]:
        end = "" if subject is None else f".{subject}"
        self.kit.peer.send(frame(f"$JS.API.DIRECT.GET.S{end}", body))
        return [(header, payload) for _, header, payload in self.kit.messages()]

    def synced(self) -> list[Reply]:
        """What has waited for the disk."""
        self.kit.syncer.run_all()
        self.kit.server.run_until_idle()
        return [(header, payload) for _, header, payload in self.kit.messages()]


def decoded(body: bytes, subject: str | None) -> MsgGetRequest | None:
    if not body:
        return MsgGetRequest()
    try:
        return decode_lenient(MsgGetRequest, body)
    except ApiError:
        return None


@pytest.mark.slow
@given(
    st.sampled_from(["memory", "file"]),
    st.sampled_from([-1, 1]),
    STEPS,
    st.lists(gets(), min_size=1, max_size=12),
)
def test_direct_gets_are_answered_as_the_model_says(
    storage: str,
    per_subject: int,
    steps: list[tuple[Any, ...]],
    requests: list[tuple[bytes, str | None]],
) -> None:
    pair = Pair(storage, per_subject)
    pair.run(steps)
    waiting: list[Reply] = []
    for body, subject in requests:
        model = pair.model
        expected = model.answers(decoded(body, subject), subject)
        at_once = len(expected) - model.waiting
        assert pair.ask(body, subject) == expected[:at_once], (body, subject)
        waiting += expected[at_once:]
    assert pair.synced() == waiting


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_times_are_written_as_everywhere_else(times: list[int]) -> None:
    pair = Pair("memory")
    store = pair.stream.store
    for time_ns in times:
        seq = store.store(b"s.1", b"", b"", time_ns)
        ((header, _),) = pair.ask(b'{"seq":%d}' % seq, None)
        assert f"\r\nNats-Time-Stamp: {format_time(time_ns)}\r\n".encode() in header
