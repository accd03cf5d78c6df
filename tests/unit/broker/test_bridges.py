"""Bridges under pressure: what is waited for is bounded and forgotten in time."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from tradewind.broker.accounts import AccountLimits
from tradewind.options import AccountOptions, ServerOptions
from tradewind.route.sharing import (
    STREAMED,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from tradewind.testing import FakeConnection, InProcessServer, User, UserGate

SECOND_NS = 1_000_000_000
RESPONSES_MAX = 262_144
CROSSINGS_MAX = 64


def server_of(*accounts: AccountOptions) -> InProcessServer:
    names = [account.name for account in accounts]
    return InProcessServer(
        ServerOptions(
            server_name="here",
            ping_interval_ns=10**18,
            accounts={account.name: account for account in accounts},
        ),
        gate=UserGate([User(name, "pw", name) for name in names]),
        accounts=names,
    )


def member(server: InProcessServer, name: str, *subjects: str) -> FakeConnection:
    greeting = (
        f'CONNECT {{"user":"{name}","pass":"pw","verbose":false,"pedantic":false,'
        f'"headers":true,"no_responders":true}}\r\n'
    )
    lines = [f"SUB {subject} {sid}\r\n" for sid, subject in enumerate(subjects, 1)]
    return server.connect((greeting + "".join(lines)).encode())


def pair(export: ServiceExport) -> InProcessServer:
    return server_of(
        AccountOptions("E", exports=(export,)),
        AccountOptions("I", imports=(ServiceImport("E", export.subject),)),
    )


def waiting(server: InProcessServer, name: str = "E") -> int:
    return len(server.broker.waiting_answers(name, 1 << 30))


def stand_ins(output: bytes) -> list[str]:
    return [found.decode() for found in re.findall(rb"_R_\.\w{6}\.\w{6}", output)]


def test_stand_in_for_the_destination_of_a_trace_goes_with_its_request() -> None:
    """No other server got the request, so nothing will come there: nothing waits for it."""
    server = pair(ServiceExport("s", allow_trace=True))
    service, client = member(server, "E", "s"), member(server, "I", "traces")
    header = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\n\r\n"
    for _ in range(3):
        client.send(b"HPUB s %d %d\r\n%b\r\n" % (len(header), len(header), header))
        (stand_in,) = stand_ins(service.take())
        assert client.take().startswith(b"MSG traces 1 ")
        assert waiting(server) == 0
        service.send(f"PUB {stand_in} 1\r\nx\r\n".encode())
        assert client.take() == b""


def test_answers_are_given_up_exactly_when_the_threshold_is_over() -> None:
    server = pair(ServiceExport("s", response_threshold_ns=SECOND_NS))
    service, client = member(server, "E", "s"), member(server, "I", "_I.>")
    client.send(b"PUB s _I.1 0\r\n\r\n")
    server.advance(0.6)
    client.send(b"PUB s _I.2 0\r\n\r\n")
    first, second = stand_ins(service.take())
    server.advance(0.5)
    assert waiting(server) == 1
    service.send(f"PUB {first} 4\r\nlate\r\nPUB {second} 4\r\ntime\r\n".encode())
    assert client.take() == b"MSG _I.2 1 4\r\ntime\r\n"
    assert waiting(server) == 0


def test_each_answer_of_a_series_begins_the_threshold_anew() -> None:
    server = pair(ServiceExport("s", response_type=STREAMED, response_threshold_ns=SECOND_NS))
    service, client = member(server, "E", "s"), member(server, "I", "_I.>")
    client.send(b"PUB s _I.1 0\r\n\r\n")
    (reply,) = stand_ins(service.take())
    for _ in range(5):
        server.advance(0.8)
        service.send(f"PUB {reply} 1\r\nx\r\n".encode())
    assert client.take().count(b"MSG") == 5
    server.advance(1.1)
    assert waiting(server) == 0


@pytest.mark.slow
def test_a_flood_of_unanswered_requests_keeps_the_newest() -> None:
    server = pair(ServiceExport("s"))
    service, client = member(server, "E", "s"), member(server, "I", "_I.>")
    batch = b"PUB s _I.x 0\r\n\r\n" * 4096
    client.send(b"PUB s _I.first 0\r\n\r\n")
    (first,) = stand_ins(service.take())
    for _ in range(RESPONSES_MAX // 4096):
        client.send(batch)
        service.take()
    client.send(b"PUB s _I.last 0\r\n\r\n")
    (last,) = stand_ins(service.take())
    assert waiting(server) == RESPONSES_MAX
    service.send(f"PUB {first} 0\r\n\r\nPUB {last} 0\r\n\r\n".encode())
    assert client.take() == b"MSG _I.last 1 0\r\n\r\n"
    client.close()
    server.advance(10)
    assert waiting(server) == 0


def test_a_requester_that_leaves_takes_only_its_own_with_it() -> None:
    server = pair(ServiceExport("s"))
    service = member(server, "E", "s")
    stays, leaves = member(server, "I", "_A.>"), member(server, "I", "_B.>")
    stays.send(b"PUB s _A.1 0\r\n\r\n" * 3)
    leaves.send(b"PUB s _B.1 0\r\n\r\n" * 5)
    replies = stand_ins(service.take())
    assert waiting(server) == 8
    leaves.close()
    server.advance(0.2)
    assert waiting(server) == 3
    for reply in replies:
        service.send(f"PUB {reply} 0\r\n\r\n".encode())
    assert stays.take().count(b"MSG") == 3


@pytest.mark.parametrize(("length", "arrives"), [(CROSSINGS_MAX, True), (CROSSINGS_MAX + 1, False)])
def test_requests_cross_so_many_accounts_and_no_more(length: int, arrives: bool) -> None:
    exports = (ServiceExport("s"),)
    chain = [AccountOptions("N0", exports=exports)] + [
        AccountOptions(f"N{n}", exports=exports, imports=(ServiceImport(f"N{n - 1}", "s"),))
        for n in range(1, length + 1)
    ]
    server = server_of(*chain)
    service, client = member(server, "N0", "s"), member(server, f"N{length}", "_I.>")
    client.send(b"PUB s _I.1 1\r\n?\r\n")
    output = service.take()
    assert bool(output) is arrives
    if not arrives:
        assert b"503" in client.take()
        assert all(waiting(server, f"N{n}") == 0 for n in range(length))
        return
    (reply,) = stand_ins(output)
    service.send(f"PUB {reply} 1\r\n!\r\n".encode())
    assert client.take() == b"MSG _I.1 1 1\r\n!\r\n"
    assert all(waiting(server, f"N{n}") == 0 for n in range(length))


def test_an_automatic_end_counts_what_an_import_brings() -> None:
    server = server_of(
        AccountOptions("E", exports=(StreamExport("s.>"),)),
        AccountOptions("I", imports=(StreamImport("E", "s.>", prefix="p"),)),
    )
    publisher, client = member(server, "E"), member(server, "I", "p.>")
    client.send(b"UNSUB 1 3\r\nPUB p.own 0\r\n\r\n")
    publisher.send(b"PUB s.1 0\r\n\r\n" * 5)
    assert client.take().count(b"MSG") == 3
    assert client.session.subscription_count == 0
    assert server.broker.accounts["E"].shadow_count == 0


def test_thousands_of_imports_make_subscriptions_no_slower_than_they_match() -> None:
    count = 3000
    server = server_of(
        AccountOptions("E", exports=tuple(StreamExport(f"s.{n}") for n in range(count))),
        AccountOptions("I", imports=tuple(StreamImport("E", f"s.{n}") for n in range(count))),
    )
    publisher, client = member(server, "E"), member(server, "I", "s.7", "_I.1")
    assert server.broker.accounts["E"].shadow_count == 1
    client.send(b"SUB > 3\r\n")
    assert server.broker.accounts["E"].shadow_count == 1 + count
    publisher.send(b"PUB s.7 0\r\n\r\n")
    assert client.take().count(b"MSG s.7") == 2
    client.send(b"UNSUB 3\r\n")
    assert server.broker.accounts["E"].shadow_count == 1


def test_an_import_that_is_taken_away_forgets_its_answers() -> None:
    server = pair(ServiceExport("s"))
    service, client = member(server, "E", "s"), member(server, "I", "_I.>")
    client.send(b"PUB s _I.1 0\r\n\r\n")
    (reply,) = stand_ins(service.take())
    broker = server.broker
    without = ServerOptions(
        server_name="here",
        accounts={"E": AccountOptions("E"), "I": AccountOptions("I")},
    )
    limits = {name: AccountLimits() for name in ("E", "I")}
    broker.reload(without, broker.admission.gates, limits, identities_changed=False)
    assert waiting(server) == 0
    service.send(f"PUB {reply} 0\r\n\r\n".encode())
    client.send(b"PUB s _I.2 0\r\n\r\n")
    assert client.take().startswith(b"HMSG _I.2 1")
    server.advance(300)


def is_joined(server: InProcessServer, importer: str) -> bool:
    """Whether a request of an account reaches the service of E."""
    service, client = member(server, "E", "s"), member(server, importer)
    client.send(b"PUB s 0\r\n\r\n")
    is_heard = b"MSG s 1 " in service.take()
    service.send(b"UNSUB 1\r\n")
    return is_heard


def importers(count: int) -> list[AccountOptions]:
    imports = (ServiceImport("E", "s"),)
    return [AccountOptions(f"I{number}", imports=imports) for number in range(count)]


def test_accounts_that_change_while_a_reload_walks_on_stay_as_they_are_then() -> None:
    """Whichever step it is."""
    exporter = AccountOptions("E", exports=(ServiceExport("s"),))
    names = [f"I{number}" for number in range(3)]
    is_over, steps_before = False, 0
    while not is_over:
        server = server_of(exporter, *map(AccountOptions, names))
        broker = server.broker
        accounts = {"E": AccountOptions("E", exports=(ServiceExport("s"), ServiceExport("t")))}
        accounts |= {name: AccountOptions(name) for name in (*names, "new")}
        options = ServerOptions(server_name="here", accounts=accounts)
        limits = {name: AccountLimits(5) for name in accounts}
        gates = broker.admission.gates
        steps = broker.reload_steps(options, gates, limits, identities_changed=False)
        is_over = len(list(islice(steps, steps_before))) < steps_before
        if broker.options is options:
            for account in importers(3):
                broker.set_account(account, AccountLimits(7))
            list(steps)
            assert [is_joined(server, name) for name in names] == [True] * 3, steps_before
            assert [broker.accounts[name].limits for name in names] == [AccountLimits(7)] * 3
        steps_before += 1
    assert steps_before > 10


def test_a_reload_that_is_cut_short_is_made_up_for_by_the_next() -> None:
    exporter = AccountOptions("E", exports=(ServiceExport("s"),))
    server = server_of(exporter, *(AccountOptions(f"I{number}") for number in range(4)))
    broker = server.broker
    wanted = {account.name: account for account in (exporter, *importers(4))}
    options = ServerOptions(server_name="here", accounts=wanted)
    limits = {name: AccountLimits() for name in wanted}
    steps = broker.reload_steps(options, broker.admission.gates, limits, identities_changed=False)
    while broker.accounts["I0"].bridge is None:
        next(steps)
    steps.close()
    broker.reload(options, broker.admission.gates, limits, identities_changed=False)
    assert [is_joined(server, f"I{number}") for number in range(4)] == [True] * 4


def test_what_a_client_calls_itself_cannot_break_the_header() -> None:
    server = server_of(
        AccountOptions("E", exports=(ServiceExport("s"),)),
        AccountOptions("I", imports=(ServiceImport("E", "s", share=True),)),
    )
    service = member(server, "E", "s")
    name = 'x\\r\\nEvil: 1\\r\\n\\r\\n\\"}'
    client = server.connect(
        f'CONNECT {{"user":"I","pass":"pw","verbose":false,"name":"{name}"}}\r\n'.encode()
    )
    client.send(b"PUB s 1\r\nx\r\n")
    output = service.take()
    line, _, body = output.partition(b"\r\n")
    header_size, total = map(int, line.split()[-2:])
    assert body[header_size:total] == b"x"
    assert b"\r\nEvil" not in output


@pytest.mark.parametrize(
    "header", ["NATS/1.0\r\nNats-Request-Info: a", "NATS/1.0\r\n\r\nmore", "x" * 30]
)
def test_headers_that_are_none_pass_through_without_harm(header: str) -> None:
    server = pair(ServiceExport("s"))
    service, client = member(server, "E", "s"), member(server, "I")
    size = len(header)
    client.send(f"HPUB s {size} {size + 1}\r\n{header}y\r\n".encode())
    output = service.take()
    line, _, body = output.partition(b"\r\n")
    header_size, total = map(int, line.split()[-2:])
    assert body[header_size:total] == b"y"
    assert body[:header_size].endswith(b"}\r\n\r\n")
    assert body[total:] == b"\r\n"
