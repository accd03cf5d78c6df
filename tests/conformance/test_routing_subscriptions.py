"""SUB, UNSUB, automatic unsubscription, echo, and the order in which messages arrive."""

from __future__ import annotations

import pytest

from harness import Connect, wait_until_nobody_listens


def pub(subject: str, payload: str = "") -> str:
    return f"PUB {subject} {len(payload)}\r\n{payload}\r\n"


def msg(subject: str, sid: str, payload: str = "") -> str:
    return f"MSG {subject} {sid} {len(payload)}\r\n{payload}\r\n"


@pytest.mark.parametrize("sid", ["1", "0", "abc", "x-y.z", "-1", "*", "é", "9" * 30, "a" * 500])
def test_sid_is_any_word(wire: Connect, subject: str, sid: str) -> None:
    client = wire()
    client.send(f"SUB {subject} {sid}\r\nPUB {subject} 0\r\n\r\n")
    client.expect_bytes(f"MSG {subject} {sid} 0\r\n\r\n")
    client.send(f"UNSUB {sid}\r\n" + pub(subject))
    client.ping()


def test_second_sub_with_the_same_sid_is_ignored(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(
        f"SUB {subject}.a 1\r\nSUB {subject}.b 1\r\n"
        + pub(f"{subject}.b")
        + pub(f"{subject}.a")
        + "PING\r\n"
    )
    client.expect_bytes(msg(f"{subject}.a", "1") + "PONG\r\n")


def test_repeated_sub_needs_only_one_unsub(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB {subject} 1\r\nSUB {subject} 1\r\nUNSUB 1\r\n" + pub(subject))
    client.ping()


def test_sids_of_two_connections_are_independent(wire: Connect, subject: str) -> None:
    first, second = wire(), wire()
    first.send(f"SUB {subject}.a 1\r\n")
    second.send(f"SUB {subject}.b 1\r\n")
    first.ping()
    second.send("UNSUB 1\r\n")
    second.ping()
    second.send(pub(f"{subject}.a", "x"))
    first.expect_bytes(msg(f"{subject}.a", "1", "x"))


def test_unsub_of_unknown_sid_is_ignored(wire: Connect) -> None:
    client = wire()
    client.send("UNSUB 1\r\nUNSUB nothing 5\r\n")
    client.ping()


def test_unsub_stops_delivery_at_once(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(
        f"SUB {subject} 1\r\n" + pub(subject, "a") + "UNSUB 1\r\n" + pub(subject, "b") + "PING\r\n"
    )
    client.expect_bytes(msg(subject, "1", "a") + "PONG\r\n")


def test_unsub_leaves_other_subscriptions_of_the_subject(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB {subject} 1\r\nSUB {subject} 2\r\nUNSUB 1\r\n" + pub(subject) + "PING\r\n")
    client.expect_bytes(msg(subject, "2") + "PONG\r\n")


def test_sid_can_be_used_again_after_unsub(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(
        f"SUB {subject}.a 1\r\nUNSUB 1\r\nSUB {subject}.b 1\r\n"
        + pub(f"{subject}.a")
        + pub(f"{subject}.b")
        + "PING\r\n"
    )
    client.expect_bytes(msg(f"{subject}.b", "1") + "PONG\r\n")


# steps: "p" publishes, anything else is sent as a line; delivered = messages that arrive in all
AUTOMATIC = {
    "stops-after-max": (["UNSUB 1 2", "p", "p", "p"], 2),
    "max-of-one": (["UNSUB 1 1", "p", "p"], 1),
    "max-already-reached": (["p", "p", "UNSUB 1 2", "p"], 2),
    "max-already-passed": (["p", "p", "p", "UNSUB 1 2", "p"], 3),
    "earlier-messages-count": (["p", "p", "UNSUB 1 3", "p", "p"], 3),
    "lowered": (["UNSUB 1 3", "UNSUB 1 1", "p", "p"], 1),
    "lowered-to-what-was-delivered": (["UNSUB 1 5", "p", "p", "UNSUB 1 2", "p"], 2),
    "raised": (["UNSUB 1 1", "UNSUB 1 3", "p", "p", "p", "p"], 3),
    "plain-unsub-overrides": (["UNSUB 1 5", "p", "UNSUB 1", "p"], 1),
    "zero-removes-now": (["UNSUB 1 0", "p"], 0),
    "negative-removes-now": (["UNSUB 1 -1", "p"], 0),
    "word-removes-now": (["UNSUB 1 x", "p"], 0),
    "ten-digits-removes-now": (["UNSUB 1 1000000000", "p"], 0),
    "nine-digits": (["UNSUB 1 999999999", "p", "p"], 2),
    "bad-max-overrides": (["UNSUB 1 5", "p", "UNSUB 1 x", "p"], 1),
    "same-sid-again-keeps-max": (["UNSUB 1 2", "SUB {subject} 1", "p", "p", "p"], 2),
    "fresh-sub-has-no-max": (["UNSUB 1 1", "p", "SUB {subject} 1", "p", "p", "p"], 4),
    "fresh-sub-counts-anew": (["p", "p", "UNSUB 1", "SUB {subject} 1", "UNSUB 1 1", "p", "p"], 3),
}


@pytest.mark.parametrize(("steps", "delivered"), AUTOMATIC.values(), ids=AUTOMATIC)
def test_automatic_unsubscription(
    wire: Connect, subject: str, steps: list[str], delivered: int
) -> None:
    client = wire()
    lines = [
        pub(subject) if step == "p" else step.format(subject=subject) + "\r\n" for step in steps
    ]
    client.send(f"SUB {subject} 1\r\n" + "".join(lines) + "PING\r\n")
    client.expect_bytes(msg(subject, "1") * delivered + "PONG\r\n")


def test_automatic_unsubscription_counts_each_subscription_alone(
    wire: Connect, subject: str
) -> None:
    client = wire()
    client.send(
        f"SUB {subject} 1\r\nSUB {subject} 2\r\nUNSUB 1 1\r\n" + pub(subject) * 3 + "PING\r\n"
    )
    frames = [client.read_message()[0].split(" ")[2] for _ in range(4)]
    client.expect_bytes("PONG\r\n")
    assert sorted(frames) == ["1", "2", "2", "2"]


def test_automatic_unsubscription_counts_messages_of_all_publishers(
    wire: Connect, subject: str
) -> None:
    subscriber, first, second = wire(), wire(), wire()
    subscriber.send(f"SUB {subject} 1\r\nUNSUB 1 2\r\n")
    subscriber.ping()
    for publisher in (first, second, first):
        publisher.send(pub(subject))
        publisher.ping()
    subscriber.send("PING\r\n")
    subscriber.expect_bytes(msg(subject, "1") * 2 + "PONG\r\n")


def test_order_of_one_publisher_is_kept(wire: Connect, subject: str) -> None:
    publisher, subscriber = wire(), wire()
    subscriber.send(f"SUB {subject} 1\r\n")
    subscriber.ping()
    payloads = [str(number) for number in range(2000)]
    publisher.send("".join(pub(subject, payload) for payload in payloads))
    subscriber.expect_bytes("".join(msg(subject, "1", payload) for payload in payloads))


def test_order_is_kept_across_subjects(wire: Connect, subject: str) -> None:
    publisher, subscriber = wire(), wire()
    subscriber.send(f"SUB {subject}.* 1\r\n")
    subscriber.ping()
    subjects = [f"{subject}.{number % 7}" for number in range(500)]
    publisher.send("".join(pub(target) for target in subjects))
    subscriber.expect_bytes("".join(msg(target, "1") for target in subjects))


def test_every_matching_subscription_gets_its_own_copy(wire: Connect, subject: str) -> None:
    client = wire()
    patterns = [f"{subject}.a", f"{subject}.a", f"{subject}.*", f"{subject}.>", "*.a"]
    lines = [f"SUB {pattern} {sid}\r\n" for sid, pattern in enumerate(patterns)]
    client.send("".join(lines) + pub(f"{subject}.a", "hi"))
    messages = [client.read_message() for _ in patterns]
    client.ping()
    wanted = [(f"MSG {subject}.a {sid} 2", b"", b"hi") for sid in range(len(patterns))]
    assert sorted(messages) == wanted


def test_every_connection_gets_its_own_copy(wire: Connect, subject: str) -> None:
    subscribers = [wire() for _ in range(10)]
    for number, subscriber in enumerate(subscribers):
        subscriber.send(f"SUB {subject} s{number}\r\n")
        subscriber.ping()
    publisher = wire()
    publisher.send(pub(subject, "to all"))
    publisher.ping()
    for number, subscriber in enumerate(subscribers):
        subscriber.expect_bytes(msg(subject, f"s{number}", "to all"))


def test_reply_subject_is_passed_on(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB {subject} 1\r\nPUB {subject} _INBOX.abc.1 2\r\nhi\r\n")
    client.expect_bytes(f"MSG {subject} 1 _INBOX.abc.1 2\r\nhi\r\n")


def test_request_and_reply_between_two_clients(wire: Connect, subject: str) -> None:
    service, requester = wire(), wire()
    service.send(f"SUB {subject} 1\r\n")
    service.ping()
    requester.send(
        f"SUB inbox.{subject} 9\r\nUNSUB 9 1\r\nPUB {subject} inbox.{subject} 3\r\nask\r\n"
    )
    service.expect_bytes(f"MSG {subject} 1 inbox.{subject} 3\r\nask\r\n")
    service.send(pub(f"inbox.{subject}", "answer"))
    requester.expect_bytes(msg(f"inbox.{subject}", "9", "answer"))


def test_echo_false_never_delivers_own_messages(wire: Connect, subject: str) -> None:
    quiet, other = wire(echo=False), wire()
    quiet.send(f"SUB {subject} 1\r\n")
    quiet.ping()
    other.send(f"SUB {subject} 1\r\n")
    other.ping()
    quiet.send(pub(subject, "mine"))
    quiet.ping()
    other.expect_bytes(msg(subject, "1", "mine"))
    other.send(pub(subject, "theirs"))
    quiet.expect_bytes(msg(subject, "1", "theirs"))


def test_echo_false_message_does_not_count_for_automatic_unsubscription(
    wire: Connect, subject: str
) -> None:
    quiet, other = wire(echo=False), wire()
    quiet.send(f"SUB {subject} 1\r\nUNSUB 1 1\r\n" + pub(subject))
    quiet.ping()
    other.send(pub(subject, "a") + pub(subject, "b"))
    other.ping()
    quiet.send("PING\r\n")
    quiet.expect_bytes(msg(subject, "1", "a") + "PONG\r\n")


def test_closing_a_connection_removes_its_subscriptions(wire: Connect, subject: str) -> None:
    leaving, other = wire(), wire(no_responders=True)
    leaving.send(f"SUB {subject} 1\r\n")
    leaving.ping()
    leaving.close()
    wait_until_nobody_listens(other, subject)
