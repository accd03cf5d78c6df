"""Where a consumer starts, what is left for it, and what its filters let through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.helpers_consumer import Peer, counts, floors
from conformance.helpers_js import ApiClient
from harness import ServerProcess


@pytest.fixture
def peer(js_server: ServerProcess, js: ApiClient) -> Iterator[Peer]:
    peer = Peer(js_server, js)
    peer.subscribe("inbox")
    yield peer
    peer.raw.close()


@pytest.fixture
def stream(peer: Peer, js: ApiClient) -> Peer:
    """a b a b c.d c.e a, of which sequence 3 is deleted."""
    peer.stream("a", "b", "a", "b", "c.d", "c.e", "a")
    js.done("STREAM.MSG.DELETE.S", {"seq": 3})
    return peer


@pytest.mark.parametrize(
    ("config", "start", "sequences"),
    [
        ({}, 0, [1, 2, 4, 5, 6, 7]),
        ({"deliver_policy": "last"}, 6, [7]),
        ({"deliver_policy": "last", "filter_subject": "s.b"}, 3, [4]),
        ({"deliver_policy": "last", "filter_subject": "s.none"}, 0, []),
        ({"deliver_policy": "new"}, 7, []),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, 2, [4, 5, 6, 7]),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 20}, 19, []),
        ({"deliver_policy": "last_per_subject", "filter_subject": "s.>"}, 3, [4, 5, 6, 7]),
        (
            {"deliver_policy": "last_per_subject", "filter_subjects": ["s.a", "s.b"]},
            3,
            [4, 7],
        ),
        ({"filter_subject": "s.c.*"}, 0, [5, 6]),
        ({"filter_subjects": ["s.a", "s.c.e"]}, 0, [1, 6, 7]),
        ({"filter_subject": "s.none"}, 0, []),
    ],
)
def test_what_a_new_consumer_gets(
    stream: Peer, config: dict[str, object], start: int, sequences: list[int]
) -> None:
    info = stream.consumer(**config)
    assert floors(info) == ((0, start), (0, start))
    assert counts(info) == (0, 0, len(sequences))
    stream.pull("inbox", batch=20, no_wait=True)
    expected = [
        (1, seq, number, len(sequences) - number) for number, seq in enumerate(sequences, 1)
    ]
    assert [frame.numbers for frame in stream.take(len(sequences))] == expected
    assert stream.next().status == "404 No Messages"


@pytest.mark.parametrize("kept", [1, 5])
@pytest.mark.parametrize(
    ("config", "sequences"),
    [
        ({"filter_subject": "s.users.>"}, [11, 12, 13, 1514]),
        ({"filter_subject": "s.users.b"}, [12]),
        ({"filter_subjects": ["s.users.*", "s.k.7"]}, [11, 12, 13, 21, 1514]),
        ({"filter_subject": "s.nobody.>"}, []),
    ],
)
@pytest.mark.parametrize("policy", ["last_per_subject", "all"])
def test_few_of_many_subjects(
    peer: Peer,
    js: ApiClient,
    kept: int,
    config: dict[str, object],
    sequences: list[int],
    policy: str,
) -> None:
    """However a server finds them, the numbers are the same."""
    peer.stream(max_msgs_per_subject=kept)
    names = [f"first.{number}" for number in range(10)]
    names += [f"users.{name}" for name in "abc"] + [f"k.{number}" for number in range(1500)]
    js.raw.send("".join(f"PUB s.{name} 1\r\nx\r\n" for name in names))
    peer.store("users.d")
    js.done("STREAM.PURGE.S", {"seq": 6})
    info = peer.consumer(deliver_policy=policy, **config)
    is_by_subject = policy == "last_per_subject" and kept > 1
    start = 5
    if is_by_subject:
        start = sequences[0] - 1 if sequences else 1513
    assert floors(info) == ((0, start), (0, start))
    assert counts(info) == (0, 0, len(sequences))
    peer.pull("inbox", batch=20, no_wait=True)
    assert [frame.numbers[1] for frame in peer.take(len(sequences))] == sequences
    assert peer.next().status == "404 No Messages"
    assert js.done("STREAM.PURGE.S", {"filter": "s.users.>"})["purged"] == 4


def test_start_by_time(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b", "c")
    message = js.done("STREAM.MSG.GET.S", {"seq": 2})["message"]
    peer.consumer(deliver_policy="by_start_time", opt_start_time=message["time"])
    assert peer.fetch(1)[0].numbers == (1, 2, 1, 1)


def test_a_start_in_the_future_waits_for_its_sequence(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer(deliver_policy="by_start_sequence", opt_start_seq=3)
    peer.pull("inbox", batch=1)
    peer.store("b")
    assert peer.nothing_came()
    peer.store("c")
    assert peer.next().numbers[:3] == (1, 3, 1)


def test_last_per_subject_goes_on_behind_the_stream_as_it_was(peer: Peer) -> None:
    peer.stream("a", "b", "a")
    info = peer.consumer(deliver_policy="last_per_subject", filter_subject="s.*")
    assert counts(info) == (0, 0, 2)
    peer.store("b", "b")
    peer.wait_counts((0, 0, 4))
    assert [frame.numbers for frame in peer.fetch(4)] == [
        (1, 2, 1, 3),
        (1, 3, 2, 2),
        (1, 4, 3, 1),
        (1, 5, 4, 0),
    ]


def test_removals_count(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b", "a", "b", "a")
    peer.consumer(filter_subject="s.a")
    assert peer.fetch(1)[0].numbers == (1, 1, 1, 2)
    js.done("STREAM.MSG.DELETE.S", {"seq": 5})
    peer.wait_counts((1, 0, 1))
    js.done("STREAM.PURGE.S", {"filter": "s.b"})
    peer.wait_counts((1, 0, 1))
    js.done("STREAM.PURGE.S", {"filter": "s.a", "keep": 0})
    peer.wait_info(lambda info: info["num_pending"] == 0)


def test_limits_of_the_stream_count(peer: Peer) -> None:
    peer.stream(max_msgs=3)
    peer.consumer()
    peer.store("a", "b", "c", "d", "e")
    peer.wait_counts((0, 0, 3))
    assert peer.fetch(1)[0].numbers == (1, 3, 1, 2)


def test_a_new_filter_counts_anew(peer: Peer) -> None:
    peer.stream("a", "b", "a", "b", "b")
    peer.consumer(filter_subject="s.a")
    peer.fetch(1)
    assert counts(peer.info()) == (1, 0, 1)
    assert peer.consumer(filter_subject="s.b")["num_pending"] == 3
    assert peer.fetch(1)[0].numbers == (1, 2, 2, 2)


def test_reset_starts_over(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b", "c")
    peer.consumer()
    frames = peer.fetch(3)
    peer.ack(frames[0])
    answer = js.done("CONSUMER.RESET.S.C")
    assert answer["reset_seq"] == 2
    assert floors(answer) == ((0, 1), (0, 1))
    assert counts(answer) == (0, 0, 2)
    assert peer.fetch(1)[0].numbers == (1, 2, 1, 1)
    assert js.done("CONSUMER.RESET.S.C", {"seq": 1})["reset_seq"] == 1
    assert peer.fetch(1)[0].numbers == (1, 1, 1, 2)


def test_pinned_clients(peer: Peer, js: ApiClient) -> None:
    peer.stream()
    peer.consumer(
        priority_policy="pinned_client", priority_groups=["g"], priority_timeout=60_000_000_000
    )
    for inbox in ("one", "two"):
        peer.subscribe(inbox, inbox)
        peer.pull(inbox, batch=10, group="g")
    peer.wait_info(lambda info: info["num_waiting"] == 2)
    peer.store("a", "b")
    first, second = peer.take(2)
    assert (first.sid, second.sid) == ("one", "one")
    group = peer.info()["priority_groups"][0]
    pin = group["pinned_client_id"]
    assert group["group"] == "g"
    assert first.header == f"NATS/1.0\r\nNats-Pin-Id: {pin}\r\n\r\n".encode()
    peer.pull("two", batch=1, group="g", id="wrong")
    assert peer.next().header == b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"
    js.done("CONSUMER.UNPIN.S.C", {"group": "g"})
    peer.store("c")
    frames = [peer.next()]
    while frames[-1].status:
        frames.append(peer.next())
    assert frames[-1].sid == "two"
    assert f"Nats-Pin-Id: {pin}".encode() not in frames[-1].header


def test_prioritized_requests(peer: Peer) -> None:
    peer.stream()
    peer.consumer(priority_policy="prioritized", priority_groups=["g"])
    for inbox, priority in (("low", 5), ("high", 1)):
        peer.subscribe(inbox, inbox)
        peer.pull(inbox, batch=2, group="g", priority=priority)
    peer.wait_info(lambda info: info["num_waiting"] == 2)
    peer.store("a", "b", "c")
    assert [frame.sid for frame in peer.take(3)] == ["high", "high", "low"]


def test_overflow_requests(peer: Peer) -> None:
    peer.stream()
    peer.consumer(priority_policy="overflow", priority_groups=["g"])
    peer.pull("inbox", batch=10, group="g", min_pending=3)
    peer.wait_info(lambda info: info["num_waiting"] == 1)
    peer.store("a", "b")
    assert peer.nothing_came()
    peer.store("c")
    assert peer.next().subject == "s.a"
