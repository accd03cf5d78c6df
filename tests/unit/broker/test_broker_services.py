"""The server's own subscriptions: called after the turn, never during a delivery."""

from __future__ import annotations

from tradewind.broker.accounts import InternalMessage
from tradewind.testing import InProcessServer

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


def test_a_service_gets_the_message_and_its_answer_arrives() -> None:
    server = InProcessServer()
    account = server.broker.accounts["$G"]
    seen: list[InternalMessage] = []

    def answer(message: InternalMessage) -> None:
        seen.append(message)
        account.publish(message.reply, b"pong")

    account.subscribe("svc.*", answer)
    client = server.connect(QUIET + b"SUB in 1\r\n")
    assert client.ask(b"HPUB svc.a in 3 7\r\nH\r\nping\r\n") == b"MSG in 1 4\r\npong\r\n"
    message = seen[0]
    assert (message.subject, message.reply) == ("svc.a", "in")
    assert (message.header, message.payload) == (b"H\r\n", b"ping")
    assert message.session is client.session


def test_services_are_not_counted_as_subscriptions_but_as_interest() -> None:
    server = InProcessServer()
    account = server.broker.accounts["$G"]
    token = account.subscribe("svc", lambda _: None)
    assert account.subscription_count == 0
    assert account.has_interest("svc")
    client = server.connect(QUIET + b"SUB in 1\r\n")
    assert client.ask(b"PUB svc in 0\r\n\r\n") == b""
    account.unsubscribe(token)
    account.unsubscribe(token)
    assert not account.has_interest("svc")
    assert client.ask(b"PUB svc in 0\r\n\r\n").startswith(b"HMSG in 1 ")


def test_a_failing_service_is_logged_and_disturbs_nobody() -> None:
    server = InProcessServer()
    server.expects_faults = True
    account = server.broker.accounts["$G"]

    def fail(message: InternalMessage) -> None:
        raise RuntimeError("broken")

    account.subscribe("svc", fail)
    client = server.connect(QUIET + b"SUB svc 1\r\n")
    assert client.ask(b"PUB svc 0\r\n\r\nPING\r\n") == b"MSG svc 1 0\r\n\r\nPONG\r\n"
    assert "broken" in server.log.texts("error")[0]
    assert server.broker.faults.counts == {"service": 1}


def test_a_service_may_change_subscriptions_while_it_is_called() -> None:
    server = InProcessServer()
    account = server.broker.accounts["$G"]
    tokens: list[int] = []
    calls: list[str] = []

    def once(message: InternalMessage) -> None:
        calls.append(message.subject)
        account.unsubscribe(tokens.pop())
        account.subscribe("other", lambda other: calls.append(other.subject))

    tokens.append(account.subscribe("svc", once))
    client = server.connect(QUIET)
    client.send(b"PUB svc 0\r\n\r\n")
    client.send(b"PUB svc 0\r\n\r\nPUB other 0\r\n\r\n")
    assert calls == ["svc", "other"]


def test_a_flood_of_requests_waits_and_loses_nothing() -> None:
    server = InProcessServer()
    seen: list[bytes] = []
    server.broker.accounts["$G"].subscribe("svc", lambda message: seen.append(message.payload))
    client = server.connect(QUIET)
    client.session.feed(b"".join(b"PUB svc 4\r\n%04d\r\n" % n for n in range(1000)), 0)
    assert client.session.blocked
    assert client.session.input_pending_bytes > 0
    server.run_until_idle()
    assert seen == [b"%04d" % number for number in range(1000)]
    assert client.session.input_pending_bytes == 0


def test_a_client_that_leaves_does_not_take_its_requests_along() -> None:
    server = InProcessServer()
    seen: list[bytes] = []
    server.broker.accounts["$G"].subscribe("svc", lambda message: seen.append(message.payload))
    client = server.connect(QUIET)
    client.session.feed(b"PUB svc 1\r\nx\r\n", 0)
    client.close()
    assert seen == [b"x"]


def test_only_one_member_of_a_queue_of_services_is_called() -> None:
    server = InProcessServer()
    seen: list[int] = []
    for number in range(3):
        server.broker.accounts["$G"].subscribe("svc", lambda _, n=number: seen.append(n), "q")
    server.connect(QUIET + b"PUB svc 0\r\n\r\n" * 30)
    assert len(seen) == 30


def test_subjects_that_are_not_utf8_reach_services_and_can_be_answered() -> None:
    server = InProcessServer()
    account = server.broker.accounts["$G"]
    account.subscribe("svc.>", lambda message: account.publish(message.reply, b"ok"))
    client = server.connect(QUIET + b"SUB in\xff 1\r\n")
    assert client.ask(b"PUB svc.\xfe in\xff 0\r\n\r\n") == b"MSG in\xff 1 2\r\nok\r\n"


def test_monitoring_sees_the_subscriptions_that_a_subject_would_reach() -> None:
    server = InProcessServer()
    account = server.broker.accounts["$G"]
    account.subscribe("a", lambda _: None)
    client = server.connect(QUIET + b"SUB a 1\r\nSUB * q 2\r\nSUB b 3\r\n")
    found = account.matching("a")
    assert {(entry.subject, entry.queue, entry.sid, entry.cid) for entry in found} == {
        ("a", "", "1", client.session.cid),
        ("*", "q", "2", client.session.cid),
    }
    everything = account.all_subscriptions()
    assert [account.all_subscriptions(offset, 1) for offset in range(4)] == [
        [entry] for entry in everything
    ] + [[]]
