"""Direct gets among everything else: their order, slow readers, many requests, streams that go."""

from __future__ import annotations

import json

import pytest
from stream_kit import StreamKit, frame, purge

from tradewind.stream.direct_gets import PENDING_MAX, UNDER_WAY_MAX
from tradewind.stream.stream import Stream
from tradewind.testing import FakeConnection, InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
GET = "$JS.API.DIRECT.GET.S"
MS_NS = 1_000_000


def filled(count: int = 3, size: int = 2, **config: object) -> tuple[StreamKit, Stream]:
    """Messages 1, 2, ... on s.1."""
    kit = StreamKit()
    stream = kit.create(allow_direct=True, **config)
    kit.peer.send(frame("s.1", b"x" * size, reply="") * count)
    return kit, stream


def connect(kit: StreamKit, inbox: str) -> FakeConnection:
    return kit.server.connect(CONNECT + f"SUB {inbox} 1\r\n".encode())


def counted(data: bytes) -> int:
    return data.count(b"HMSG ")


def wait(kit: StreamKit, stream: Stream) -> None:
    """Let the time pass that slow readers are given."""
    kit.clock.advance_ns(10 * MS_NS)
    kit.turn.monotonic_ns = kit.clock.monotonic_ns()
    stream.tick()
    kit.server.run_until_idle()


# ---------------------------------------------------------------- who gets the replies


def test_replies_go_to_everybody_who_listens() -> None:
    kit, _ = filled()
    exact, wild = connect(kit, "replies.1"), connect(kit, "replies.>")
    members = [kit.server.connect(CONNECT + b"SUB replies.* workers 1\r\n") for _ in range(2)]
    kit.peer.send(frame(GET, b'{"seq":1,"batch":2}', reply="replies.1"))
    assert counted(exact.take()) == counted(wild.take()) == 3
    assert sum(counted(member.take()) for member in members) == 3


def test_batch_ends_when_nobody_listens_any_more() -> None:
    kit, stream = filled(10)
    kit.peer.send(b"SUB once 9\r\nUNSUB 9 2\r\n" + frame(GET, b'{"seq":1,"batch":9}', reply="once"))
    assert counted(kit.peer.take()) == 2
    assert stream.direct.under_way == 0


def test_request_without_a_reply_subject_is_dropped() -> None:
    kit, _ = filled()
    kit.peer.send(frame(GET, b'{"seq":1}', reply=""))
    assert kit.messages() == []


def test_reply_subject_may_be_that_of_requests() -> None:
    kit, _ = filled()
    kit.peer.send(frame(GET, b'{"seq":1,"batch":3}', reply=GET) + frame(GET, b'{"seq":1}'))
    assert [payload for *_, payload in kit.messages()] == [b"xx"]


def test_client_without_headers_gets_the_payload() -> None:
    kit, _ = filled()
    plain = kit.server.connect(b'CONNECT {"verbose":false}\r\nSUB plain 1\r\n')
    plain.send(b'PUB %s plain 9\r\n{"seq":1}\r\n' % GET.encode())
    assert plain.take() == b"MSG plain 1 2\r\nxx\r\n"


def test_request_in_the_name_of_the_server_is_answered() -> None:
    kit, _ = filled()
    kit.account.ask(GET, b'{"seq":2}', "inbox.7")
    kit.server.run_until_idle()
    ((subject, header, payload),) = kit.messages()
    assert (subject, payload) == ("inbox.7", b"xx")
    assert b"Nats-Sequence: 2\r\n" in header


# ---------------------------------------------------------------- order


def test_gets_and_other_requests_are_answered_in_their_order() -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = server.connect(CONNECT + b"SUB in.> 1\r\n")
    config = json.dumps({"name": "S", "subjects": ["s.>"], "allow_direct": True}).encode()
    peer.send(frame("$JS.API.STREAM.CREATE.S", config, reply="in.0"))
    peer.send(frame("s.1", b"m", reply=""))
    peer.take()
    get = frame(GET, b'{"seq":1}', reply="in.get")
    delete = frame("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":1}', reply="in.delete")
    peer.send(get + delete + get)
    text = peer.take()
    assert text.index(b"\r\n\r\nm\r\n") < text.index(b"404 Message Not Found")
    assert b'"success":true' in text


def test_gets_before_the_end_of_a_stream_are_answered() -> None:
    kit, stream = filled()
    kit.peer.session.feed(frame(GET, b'{"seq":1}') + frame(GET, b'{"seq":9}'), 0)
    stream.deactivate()
    kit.server.run_until_idle()
    assert [header[:12] for _, header, _ in kit.messages()] == [b"NATS/1.0\r\nNa", b"NATS/1.0 404"]
    assert kit.peer.session.blocked == 0


def test_end_of_a_stream_unblocks_those_whose_requests_were_held_back() -> None:
    kit, stream = filled(5, 400_000)
    kit.peer.stop_reading()
    kit.peer.send(frame(GET, b'{"seq":1}') * 200)
    assert stream.direct.under_way
    stream.deactivate()
    kit.peer.resume_reading()
    assert kit.peer.session.blocked == 0
    assert stream.direct.under_way == 0
    assert stream.next_deadline_ns == 0
    answers = [header[:12] for _, header, _ in kit.messages()]
    assert answers[:3] == [b"NATS/1.0\r\nNa"] * 3
    assert set(answers[3:]) == {b"NATS/1.0 503"}


# ---------------------------------------------------------------- slow readers


def test_requests_of_a_client_that_does_not_read_are_held_back() -> None:
    kit, stream = filled(1, 100_000)
    kit.peer.stop_reading()
    kit.peer.send(frame(GET, b'{"seq":1}') * 1000)
    assert PENDING_MAX < kit.peer.session.pending_bytes < 2 * PENDING_MAX
    wait(kit, stream)
    assert kit.peer.session.pending_bytes < 2 * PENDING_MAX
    assert kit.peer.session.blocked
    received = 0
    for _ in range(1000):
        kit.peer.resume_reading()
        received += counted(kit.peer.take())
        if received == 1000:
            break
        kit.peer.stop_reading()
        wait(kit, stream)
    assert received == 1000
    assert kit.peer.session.blocked == 0


def test_held_requests_of_a_client_that_leaves_are_forgotten() -> None:
    kit, stream = filled(1, 400_000)
    slow = connect(kit, "slow")
    slow.stop_reading()
    slow.send(frame(GET, b'{"seq":1}', reply="slow") * 50)
    assert stream.direct.under_way
    slow.close()
    wait(kit, stream)
    wait(kit, stream)
    assert stream.direct.under_way == 0
    assert stream.next_deadline_ns == 0


def test_slow_readers_hold_up_nobody_else() -> None:
    kit, stream = filled(300, 10_000)
    slow = [connect(kit, f"slow{number}") for number in range(20)]
    for number, peer in enumerate(slow):
        peer.stop_reading()
        peer.send(frame(GET, b'{"seq":1,"batch":300}', reply=f"slow{number}"))
    assert stream.direct.under_way == 20
    kit.peer.send(frame(GET, b'{"seq":1,"batch":300}') + frame(GET, b'{"seq":1}'))
    assert counted(kit.peer.take()) == 302
    for peer in slow:
        peer.resume_reading()
    received = [counted(peer.take()) for peer in slow]
    while stream.direct.under_way:
        wait(kit, stream)
        received = [sum_ + counted(peer.take()) for sum_, peer in zip(received, slow, strict=True)]
    assert received == [301] * 20


def test_too_many_batches_under_way_are_refused() -> None:
    kit, stream = filled(3)
    slow = connect(kit, "slow.*")
    slow.stop_reading()
    kit.peer.send(frame("slow.x", b"y" * 600_000, reply="") * 2)
    for number in range(UNDER_WAY_MAX + 1):
        kit.peer.send(frame(GET, b'{"seq":1,"batch":3}', reply=f"slow.{number}"))
    assert stream.direct.under_way == UNDER_WAY_MAX
    kit.peer.send(frame(GET, b'{"seq":1}'))
    assert counted(kit.peer.take()) == 1
    slow.resume_reading()
    assert slow.take().count(b"NATS/1.0 429 Too Many Requests\r\n") == 1
    while stream.direct.under_way:
        wait(kit, stream)
    assert slow.take().count(b"204 EOB") == UNDER_WAY_MAX


def test_steps_of_batches_alternate_with_other_work() -> None:
    kit, stream = filled(5000)
    kit.peer.session.feed(frame(GET, b'{"seq":1,"batch":5000}'), 0)
    kit.server.broker.end_turn()
    assert stream.direct.under_way == 1
    kit.peer.send(frame(GET, b'{"seq":1}', reply="inbox.2"))
    subjects = [subject for subject, *_ in kit.messages()]
    assert subjects.count("inbox.1") == 5001
    assert subjects.index("inbox.2") < 5001


# ---------------------------------------------------------------- bounds


def test_client_has_a_bounded_number_of_requests_open() -> None:
    kit, _ = filled()
    data = frame(GET, b'{"seq":1}') * 1000
    kit.peer.session.feed(data, 0)
    assert kit.peer.session.blocked
    assert kit.peer.session.input_pending_bytes > len(data) * 3 // 4
    kit.server.run_until_idle()
    assert counted(kit.peer.take()) == 1000
    assert kit.peer.session.blocked == 0


@pytest.mark.slow
def test_requests_of_the_server_itself_are_bounded() -> None:
    kit, _ = filled()
    receivers = [kit.account.ask(GET, b'{"seq":1}', "inbox.1") for _ in range(10_001)]
    assert receivers == [1] * 10_000 + [0]
    kit.server.run_until_idle()
    assert len(kit.messages()) == 10_000


def test_wildcards_are_found_behind_many_other_messages() -> None:
    kit = StreamKit()
    stream = kit.create(allow_direct=True, subjects=["s.>"])
    kit.peer.send(frame("s.rare.1", b"a", reply="") + frame("s.rare.2", b"b", reply=""))
    store = stream.store
    for number in range(70_000):
        store.store(b"s.%d" % (number % 5), b"", b"", kit.turn.now_ns)
    kit.peer.send(frame(GET, b'{"last_by_subj":"s.rare.*"}'))
    ((_, header, payload),) = kit.messages()
    assert b"Nats-Sequence: 2\r\n" in header
    assert payload == b"b"
    kit.peer.send(frame(GET, b'{"last_by_subj":"s.none.*"}'))
    assert kit.messages()[0][1].startswith(b"NATS/1.0 404")


def test_last_messages_before_a_sequence_are_found_behind_many_others() -> None:
    kit = StreamKit()
    stream = kit.create(allow_direct=True, subjects=["s.>"])
    store = stream.store
    for number in range(30_000):
        store.store(b"s.%d" % (number % 1000), b"", b"%d" % number, kit.turn.now_ns)
    body = json.dumps({"multi_last": ["s.*"], "up_to_seq": 1500}).encode()
    kit.peer.send(frame(GET, body))
    payloads = [int(payload) for *_, payload in kit.messages()[:-1]]
    assert payloads == list(range(500, 1500))


@pytest.mark.parametrize("first", ["9999-12-31T00:00:00Z", "2262-04-12T00:00:00Z"])
def test_times_that_64_bits_cannot_hold_are_behind_all_messages(first: str) -> None:
    kit, stream = filled()
    kit.peer.send(frame(GET, json.dumps({"start_time": first}).encode()))
    assert kit.messages()[0][1].startswith(b"NATS/1.0 404")
    kit.peer.send(frame(GET, b'{"start_time":"1600-01-01T00:00:00Z"}'))
    assert b"Nats-Sequence: 1\r\n" in kit.messages()[0][1]
    assert stream.store.sequence_at(10**30) == 4
    assert stream.store.sequence_at(-(10**30)) == 1


# ---------------------------------------------------------------- searches that take several turns


@pytest.mark.slow
def test_subject_that_changes_during_a_search_does_not_look_empty() -> None:
    kit = StreamKit()
    stream = kit.create(allow_direct=True, max_msgs_per_subject=1)
    kit.peer.send(b"".join(frame(f"s.{n}.a", b"old", reply="") for n in range(100_000)))
    kit.peer.take()
    wanted = ["s.5.a", "s.7.a", "s.99998.a", "s.99999.a", "s.*.b", "s.*.c"]
    kit.server.run_until_idle = lambda: None  # type: ignore[method-assign]
    kit.peer.send(frame(GET, json.dumps({"multi_last": wanted}).encode()))
    kit.server.broker.end_turn()
    # It is under way: one of those found, and one of those to come, are replaced.
    assert stream.direct.under_way == 1
    kit.peer.send(frame("s.5.a", b"new", reply="") + frame("s.99999.a", b"new", reply=""))
    del kit.server.run_until_idle  # type: ignore[method-assign]
    kit.server.run_until_idle()
    *found, (_, end, _) = kit.messages()
    assert [payload for *_, payload in found] == [b"old", b"old", b"new", b"new"]
    assert [header.split(b"Nats-Subject: ")[1].split(b"\r\n")[0] for _, header, _ in found] == [
        b"s.7.a",
        b"s.99998.a",
        b"s.5.a",
        b"s.99999.a",
    ]
    # Who continues behind this sequence misses none of the changes.
    assert b"Nats-UpTo-Sequence: 100000\r\n" in end


@pytest.mark.slow
def test_search_of_a_stream_that_is_purged_meanwhile_finds_what_is_left() -> None:
    kit = StreamKit()
    stream = kit.create(allow_direct=True)
    kit.peer.send(b"".join(frame(f"s.{n}.a", b"old", reply="") for n in range(100_000)))
    kit.peer.take()
    kit.server.run_until_idle = lambda: None  # type: ignore[method-assign]
    kit.peer.send(frame(GET, b'{"multi_last":["s.99999.a","s.*.b","s.1.a","s.*.c","s.*.d"]}'))
    kit.server.broker.end_turn()
    assert stream.direct.under_way == 1
    purge(stream)
    kit.peer.send(frame("s.1.a", b"new", reply=""))
    del kit.server.run_until_idle  # type: ignore[method-assign]
    kit.server.run_until_idle()
    assert [payload for *_, payload in kit.messages()] == [b"new", b""]
