"""The 503 that tells a requester that nobody listens."""

from __future__ import annotations

import pytest

from harness import Connect, RawClient


def no_responders(subject: str, reply: str, sid: str) -> str:
    size = 32 + len(subject)
    return (
        f"HMSG {reply} {sid} {size} {size}\r\nNATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n\r\n"
    )


@pytest.fixture
def asking(wire: Connect) -> Connect:
    """asking(…) gives a connected client that wants to hear of missing responders."""

    def _asking(**options: object) -> RawClient:
        return wire(no_responders=True, **options)

    return _asking


def test_503_exact_bytes(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB in.{subject} 1\r\nPUB {subject} in.{subject} 5\r\nhello\r\nPING\r\n")
    client.expect_bytes(no_responders(subject, f"in.{subject}", "1") + "PONG\r\n")


def test_503_to_a_wildcard_inbox(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB in.{subject}.* 9\r\n")
    for number in range(3):
        client.send(f"PUB {subject}.a.b in.{subject}.{number} 0\r\n\r\n")
    client.send("PING\r\n")
    wanted = [no_responders(f"{subject}.a.b", f"in.{subject}.{n}", "9") for n in range(3)]
    client.expect_bytes("".join(wanted) + "PONG\r\n")


def test_503_for_a_message_with_headers(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB in.{subject} 1\r\n")
    client.send(f"HPUB {subject} in.{subject} 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\n")
    client.expect_bytes(no_responders(subject, f"in.{subject}", "1") + "PONG\r\n")


def test_503_comes_after_the_ok_of_a_verbose_publish(asking: Connect, subject: str) -> None:
    client = asking()
    client.send('CONNECT {"verbose":true}\r\n')
    client.send(f"SUB in.{subject} 1\r\nPUB {subject} in.{subject} 0\r\n\r\nPING\r\n")
    answer = no_responders(subject, f"in.{subject}", "1")
    client.expect_bytes("+OK\r\n+OK\r\n+OK\r\n" + answer + "PONG\r\n")


def test_503_is_sent_once_even_if_two_subscriptions_match(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB in.{subject} 1\r\nSUB in.{subject} 2\r\nSUB in.* 3\r\n")
    client.send(f"PUB {subject} in.{subject} 0\r\n\r\nPING\r\n")
    line, headers, payload = client.read_message()
    client.expect_bytes("PONG\r\n")
    assert line.split(" ")[2] in ("1", "2", "3")
    assert headers == f"NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n".encode()
    assert payload == b""


def test_503_does_not_count_for_automatic_unsubscription(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB in.{subject} 1\r\nUNSUB 1 1\r\n")
    client.send(f"PUB {subject} in.{subject} 0\r\n\r\n" * 2 + "PING\r\n")
    client.expect_bytes(no_responders(subject, f"in.{subject}", "1") * 2 + "PONG\r\n")


@pytest.mark.parametrize("target", ["{subject}..x", "{subject}.", ".{subject}", "{subject}.*"])
def test_503_for_an_unusable_subject(asking: Connect, subject: str, target: str) -> None:
    client = asking()
    target = target.format(subject=subject)
    client.send(f"SUB in.{subject} 1\r\nPUB {target} in.{subject} 0\r\n\r\nPING\r\n")
    client.expect_bytes(no_responders(target, f"in.{subject}", "1") + "PONG\r\n")


def test_503_when_only_own_subscriptions_listen_and_echo_is_off(
    asking: Connect, subject: str
) -> None:
    client = asking(echo=False)
    client.send(f"SUB in.{subject} 1\r\nSUB {subject} 2\r\nSUB {subject} workers 3\r\n")
    client.send(f"PUB {subject} in.{subject} 0\r\n\r\nPING\r\n")
    client.expect_bytes(no_responders(subject, f"in.{subject}", "1") + "PONG\r\n")


def test_503_after_the_last_subscriber_left(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB in.{subject} 1\r\nSUB {subject} 2\r\nSUB {subject} workers 3\r\nUNSUB 3\r\n")
    client.send(f"PUB {subject} in.{subject} 0\r\n\r\nUNSUB 2\r\n")
    client.send(f"PUB {subject} in.{subject} 0\r\n\r\nPING\r\n")
    client.expect_bytes(
        f"MSG {subject} 2 in.{subject} 0\r\n\r\n"
        + no_responders(subject, f"in.{subject}", "1")
        + "PONG\r\n"
    )


def test_503_after_automatic_unsubscription_of_the_service(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB in.{subject} 1\r\nSUB {subject} 2\r\nUNSUB 2 1\r\n")
    client.send(f"PUB {subject} in.{subject} 0\r\n\r\n" * 2 + "PING\r\n")
    client.expect_bytes(
        f"MSG {subject} 2 in.{subject} 0\r\n\r\n"
        + no_responders(subject, f"in.{subject}", "1")
        + "PONG\r\n"
    )


def test_no_503_without_asking_for_it(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB in.{subject} 1\r\nPUB {subject} in.{subject} 0\r\n\r\n")
    client.ping()


def test_no_503_without_a_reply(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB in.{subject} 1\r\nPUB {subject} 0\r\n\r\n")
    client.ping()


def test_no_503_without_a_subscription_of_the_reply(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB in.other 1\r\nPUB {subject} in.{subject} 0\r\n\r\n")
    client.ping()


def test_no_503_to_a_queue_subscription_of_the_reply(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB in.{subject} workers 1\r\nPUB {subject} in.{subject} 0\r\n\r\n")
    client.ping()


def test_no_503_to_the_inbox_of_another_connection(asking: Connect, subject: str) -> None:
    client, other = asking(), asking()
    other.send(f"SUB in.{subject} 1\r\n")
    other.ping()
    client.send(f"PUB {subject} in.{subject} 0\r\n\r\n")
    client.ping()
    other.ping()


@pytest.mark.parametrize("queue", ["", " workers"])
@pytest.mark.parametrize("last_token", ["ask", "*", ">"])
def test_no_503_when_another_connection_listens(
    asking: Connect, wire: Connect, subject: str, queue: str, last_token: str
) -> None:
    target = f"{subject}.ask"
    service, client = wire(), asking()
    service.send(f"SUB {subject}.{last_token}{queue} 1\r\n")
    service.ping()
    client.send(f"SUB in.{subject} 9\r\nPUB {target} in.{subject} 0\r\n\r\n")
    client.ping()
    service.expect_bytes(f"MSG {target} 1 in.{subject} 0\r\n\r\n")


def test_no_503_when_the_requester_itself_listens(asking: Connect, subject: str) -> None:
    client = asking()
    client.send(f"SUB {subject} 1\r\nPUB {subject} {subject} 0\r\n\r\nPING\r\n")
    client.expect_bytes(f"MSG {subject} 1 {subject} 0\r\n\r\nPONG\r\n")
