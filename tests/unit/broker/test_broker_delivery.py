"""What is delivered to whom, and what else a client is told: one example each."""

from __future__ import annotations

import pytest

from tradewind.broker.accounts import AccountLimits
from tradewind.options import ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.testing import InProcessServer, User, UserGate

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


def test_a_publish_to_an_own_subscription_is_confirmed_before_it_is_delivered() -> None:
    client = InProcessServer().connect(b"CONNECT {}\r\nSUB a 1\r\n")
    client.take()
    assert client.ask(b"PUB a 2\r\nhi\r\n") == b"+OK\r\nMSG a 1 2\r\nhi\r\n"


def test_no_echo_means_that_own_messages_do_not_come_back() -> None:
    client = InProcessServer().connect(b'CONNECT {"echo":false,"verbose":false}\r\nSUB a 1\r\n')
    assert client.ask(b"PUB a 2\r\nhi\r\n") == b""


def test_headers_are_cut_off_for_those_who_do_not_know_them() -> None:
    server = InProcessServer()
    old = server.connect(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n')
    new = server.connect(QUIET + b"SUB a 1\r\n")
    new.send(b"HPUB a r 5 7\r\nhead!hi\r\n")
    assert new.take() == b"HMSG a 1 r 5 7\r\nhead!hi\r\n"
    assert old.take() == b"MSG a 1 r 2\r\nhi\r\n"
    assert (old.session.out_bytes, new.session.out_bytes) == (2, 7)


def test_a_second_subscription_with_the_same_sid_is_confirmed_and_ignored() -> None:
    client = InProcessServer().connect(b"CONNECT {}\r\nSUB a 1\r\nSUB b 1\r\n")
    assert client.take() == b"+OK\r\n+OK\r\n+OK\r\n"
    assert client.ask(b"PUB b 0\r\n\r\n") == b"+OK\r\n"


def test_an_unsubscribe_beyond_what_was_delivered_ends_the_subscription_at_once() -> None:
    client = InProcessServer().connect(QUIET + b"SUB a 1\r\nPUB a 0\r\n\r\nPUB a 0\r\n\r\n")
    client.take()
    client.send(b"UNSUB 1 2\r\n")
    assert client.session.subscription_count == 0


def test_the_last_message_of_a_limited_subscription_frees_its_sid_at_once() -> None:
    client = InProcessServer().connect(QUIET + b"SUB a 1\r\nUNSUB 1 1\r\n")
    assert client.ask(b"PUB a 0\r\n\r\nSUB b 1\r\nPUB b 0\r\n\r\nPUB a 0\r\n\r\n") == (
        b"MSG a 1 0\r\n\r\nMSG b 1 0\r\n\r\n"
    )


def test_one_publish_may_exhaust_many_subscriptions() -> None:
    server = InProcessServer()
    clients = [server.connect(QUIET + b"SUB a.* 1\r\nUNSUB 1 1\r\n") for _ in range(40)]
    clients[0].send(b"PUB a.b 0\r\n\r\nPUB a.b 0\r\n\r\n")
    assert [client.take() for client in clients] == [b"MSG a.b 1 0\r\n\r\n"] * 40
    assert server.broker.accounts["$G"].subscription_count == 0


def test_queue_members_share_the_work_evenly_enough() -> None:
    server = InProcessServer()
    members = [server.connect(QUIET + b"SUB a q 1\r\n") for _ in range(4)]
    server.connect(QUIET).send(b"PUB a 0\r\n\r\n" * 4000)
    counts = [member.session.out_msgs for member in members]
    assert sum(counts) == 4000
    assert min(counts) > 800


def test_a_queue_member_that_may_not_have_a_message_is_passed_over() -> None:
    rules = PermissionRules(subscribe_deny=("a.secret",))
    gate = UserGate([User("guest"), User("bob", "", permissions=rules)], stranger="guest")
    server = InProcessServer(gate=gate)
    bob = server.connect(b'CONNECT {"user":"bob","verbose":false}\r\nSUB a.* q 1\r\n')
    guest = server.connect(QUIET + b"SUB a.* q 1\r\n")
    server.connect(QUIET).send(b"PUB a.secret 0\r\n\r\n" * 50)
    assert bob.take() == b""
    assert guest.session.out_msgs == 50


def test_nobody_there_is_answered_through_one_own_plain_subscription() -> None:
    options = b'{"verbose":false,"headers":true,"no_responders":true,"echo":false}'
    client = InProcessServer().connect(b"CONNECT %b\r\n" % options)
    client.send(b"SUB in.* q 1\r\nSUB in.x 22\r\nUNSUB 22 1\r\nSUB ask 3\r\n")
    expected = b"HMSG in.x 22 35 35\r\nNATS/1.0 503\r\nNats-Subject: ask\r\n\r\n\r\n"
    # Own subscriptions do not answer without echo, and the status is not one of the messages.
    assert client.ask(b"PUB ask in.x 0\r\n\r\n" * 2) == expected * 2
    assert client.session.out_msgs == 0


@pytest.mark.parametrize("reply", [b"$JS.ACK.a", b"_R_.a", b"_GR_.a", b"$GR.a"])
def test_replies_of_the_servers_own_are_refused(reply: bytes) -> None:
    client = InProcessServer().connect(QUIET + b"SUB a 1\r\n")
    expected = b"-ERR 'Permissions Violation for Publish with Reply of \"%b\"'\r\n" % reply
    assert client.ask(b"PUB a %b 0\r\n\r\n" % reply) == expected


@pytest.mark.parametrize("reply", [b"$JS.ACK.", b"$JS.ACK", b"_R_", b"_R_.", b"$G", b"$", b"_"])
def test_replies_that_only_look_so_are_fine(reply: bytes) -> None:
    client = InProcessServer().connect(QUIET + b"SUB a 1\r\n")
    assert client.ask(b"PUB a %b 0\r\n\r\n" % reply) == b"MSG a 1 %b 0\r\n\r\n" % reply


@pytest.mark.parametrize("subject", [b"_GR_.a", b"$NRG.a"])
def test_subjects_of_the_servers_own_are_refused(subject: bytes) -> None:
    client = InProcessServer().connect(QUIET + b"SUB > 1\r\n")
    expected = b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n" % subject
    assert client.ask(b"PUB %b 0\r\n\r\n" % subject) == expected


@pytest.mark.parametrize("subject", [b"a..b", b".a", b"a.", b".", b">.a", b"a.>.b", b"\xff..\xfe"])
def test_invalid_subscriptions_are_refused_and_the_connection_goes_on(subject: bytes) -> None:
    client = InProcessServer().connect(QUIET)
    assert client.ask(b"SUB %b 1\r\nPING\r\n" % subject) == b"-ERR 'Invalid Subject'\r\nPONG\r\n"
    assert client.session.subscription_count == 0


@pytest.mark.parametrize("subject", [b"a.*", b">", b"a..b", b"a."])
def test_pedantic_clients_are_told_about_odd_subjects_and_the_message_goes_on(
    subject: bytes,
) -> None:
    client = InProcessServer().connect(b"CONNECT {}\r\n")
    client.take()
    assert client.ask(b"PUB %b 0\r\n\r\n" % subject) == b"-ERR 'Invalid Publish Subject'\r\n+OK\r\n"


def test_a_refusal_repeats_any_bytes_of_the_subject_as_they_were() -> None:
    gate = UserGate([User("bob", permissions=PermissionRules((), (), ()))], stranger="bob")
    client = InProcessServer(gate=gate).connect(QUIET)
    subject = b"a\xff\x00\xc3'\"%s{}"
    assert client.ask(b"PUB %b 0\r\n\r\n" % subject) == (
        b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n" % subject
    )
    assert client.ask(b"SUB %b \xfe 1\r\n" % subject) == (
        b'-ERR \'Permissions Violation for Subscription to "%b" using queue "\xfe"\'\r\n' % subject
    )


def test_the_first_pong_after_connect_is_followed_by_where_the_client_is() -> None:
    client = InProcessServer().connect(b'PING\r\nCONNECT {"protocol":1,"verbose":false}\r\n')
    assert client.take() == b"PONG\r\n"
    client.send(b"PING\r\nPING\r\n")
    assert client.take_line() == b"PONG\r\n"
    info = client.take_line()
    assert info.startswith(b"INFO {")
    assert b'"connect_info":true' in info
    assert b'"remote_account":"$G"' in info
    assert client.take() == b"PONG\r\n"


def test_accounts_do_not_hear_each_other() -> None:
    gate = UserGate([User("a", account="A"), User("b", account="B")])
    server = InProcessServer(gate=gate, accounts=["A", "B"])
    first, second, third = (
        server.connect(b'CONNECT {"user":"%b","verbose":false}\r\nSUB > 1\r\n' % name)
        for name in (b"a", b"a", b"b")
    )
    first.send(b"PUB x 0\r\n\r\n")
    assert (first.take(), second.take()) == (b"MSG x 1 0\r\n\r\n",) * 2
    assert third.take() == b""


def test_subscriptions_made_as_a_stranger_stay_only_if_the_user_may_have_them() -> None:
    bob = User("bob", account="A", permissions=PermissionRules(subscribe_allow=("public", "p.>")))
    server = InProcessServer(gate=UserGate([User("guest"), bob], stranger="guest"), accounts=["A"])
    client = server.connect(b"SUB secret 1\r\nSUB public 2\r\nSUB > 3\r\n")
    client.send(b'CONNECT {"user":"bob","verbose":false}\r\n')
    client.take()
    account = server.broker.accounts["A"]
    assert [entry.sid for entry in client.session.subscriptions()] == ["2"]
    assert (account.publish("secret", b""), account.publish("public", b"")) == (0, 1)
    assert server.broker.accounts["$G"].subscription_count == 0


def test_a_repeated_connect_forgets_subscriptions_and_keeps_unnamed_options() -> None:
    client = InProcessServer().connect(QUIET + b"SUB a 1\r\n")
    client.send(b'CONNECT {"name":"again"}\r\n')
    assert client.session.subscription_count == 0
    assert client.ask(b"SUB a 1\r\nHPUB a 1 1\r\nh\r\n") == b"HMSG a 1 1 1\r\nh\r\n"


def test_the_subscription_limit_is_told_and_the_connection_goes_on() -> None:
    client = InProcessServer(ServerOptions(max_subscriptions=2)).connect(QUIET)
    error = b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert client.ask(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nSUB a 1\r\n") == error * 2
    assert client.ask(b"UNSUB 1\r\nSUB c 3\r\nPUB c 0\r\n\r\n") == b"MSG c 3 0\r\n\r\n"


def test_the_token_limit_is_told_without_the_queue() -> None:
    client = InProcessServer(ServerOptions(max_subscription_tokens=3)).connect(QUIET)
    text = b'Permissions Violation for Subscription to "a.b.c.d", too many tokens'
    assert client.ask(b"SUB a.b.c.d q 1\r\nSUB a.b.c 2\r\n") == b"-ERR '%b'\r\n" % text
    assert client.session.subscription_count == 1


def test_account_limits_count_all_members_and_subscriptions_of_each() -> None:
    limits = {"A": AccountLimits(connections_max=2, subscriptions_max=2, payload_bytes_max=4)}
    server = InProcessServer(gate=UserGate([User("a", account="A")]), accounts=limits)
    login = b'CONNECT {"user":"a","verbose":false}\r\n'
    first, second = server.connect(login + b"SUB a 1\r\n"), server.connect(login + b"SUB a 1\r\n")
    assert first.ask(b"SUB b 2\r\n") == second.ask(b"SUB b 2\r\n") == b""
    assert second.ask(b"SUB c 3\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    third = server.connect(login)
    assert third.take() == b"-ERR 'maximum account active connections exceeded'\r\n"
    assert not third.is_open
    assert first.ask(b"PUB a 5\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"
    assert server.connect(login + b"PING\r\n").take() == b"PONG\r\n"


def test_who_leaves_with_very_many_subscriptions_gets_nothing_and_leaves_nothing() -> None:
    server = InProcessServer()
    account = server.broker.accounts["$G"]
    leaver = server.connect(b'CONNECT {"verbose":false}\r\n')
    stayer = server.connect(b'CONNECT {"verbose":false}\r\nSUB load.* q 1\r\n')
    count = 25_000
    lines = (b"SUB load.%d q %d\r\n" % (number, number) for number in range(count))
    leaver.send(b"".join(lines))
    assert account.subscription_count == count + 1
    leaver.session.close("Client Closed")
    left = [account.subscription_count]
    while left[-1] > 1:
        # Nobody but the open member of the group is given a message meanwhile.
        assert account.publish("load.24999", b"x") == 1
        server.broker.end_turn()
        left.append(account.subscription_count)
    assert left == [count + 1 - 10_000, count + 1 - 20_000, 1]
    server.run_until_idle()
    stayer.flush()
    assert stayer.take() == b"MSG load.24999 1 1\r\nx\r\n" * 2
    assert not server.broker.router.has_work
    assert leaver.session.subscription_count == 0
