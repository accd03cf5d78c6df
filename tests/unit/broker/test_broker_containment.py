"""A fault of ours in the work for one connection ends that one, also in work that is for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tradewind.broker.admission import Admission
from tradewind.broker.broker import Broker
from tradewind.broker.session import Session
from tradewind.testing import FakeConnection, InProcessServer, User, UserGate
from tradewind.wire import ops

Patch = pytest.MonkeyPatch


class BrokenError(Exception):
    """A bug."""


def connect(name: str) -> bytes:
    return b'CONNECT {"verbose":false,"protocol":1,"user":"%s","pass":"p"}\r\n' % name.encode()


def three() -> tuple[InProcessServer, list[FakeConnection]]:
    """Three clients; the one in the middle is the victim."""
    gate = UserGate([User(name, "p") for name in ("one", "victim", "other")])
    server = InProcessServer(gate=gate)
    server.expects_faults = True
    clients = [server.connect(connect(name)) for name in ("one", "victim", "other")]
    for client in clients:
        client.send(b"PING\r\n")
        client.take()
    return server, clients


def broken_for(victim: FakeConnection, real: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but for one connection."""

    def call(owner: object, session: Session, *arguments: Any, **named: Any) -> Any:
        if session is victim.session:
            raise BrokenError("injected")
        return real(owner, session, *arguments, **named)

    return call


def check(server: InProcessServer, clients: list[FakeConnection]) -> None:
    """The victim is gone without a trace, and the others talk to each other."""
    one, victim, other = clients
    assert (one.is_open, victim.is_open, other.is_open) == (True, False, True)
    assert victim.session.close_reason == ops.CLOSED_READ_ERROR
    assert list(server.broker.sessions) == [one.session.cid, other.session.cid]
    assert server.broker.faults.counts == {"session": 1}
    other.take()
    other.send(b"SUB a 1\r\n")
    one.send(b"PUB a 2\r\nhi\r\n")
    assert other.take() == b"MSG a 1 2\r\nhi\r\n"


def test_users_that_have_changed_are_looked_at_for_everybody(monkeypatch: Patch) -> None:
    """The last one is no longer allowed: a fault before it must not let it stay."""
    server, clients = three()
    monkeypatch.setattr(Admission, "recheck", broken_for(clients[1], Admission.recheck))
    broker = server.broker
    gates: Any = dict.fromkeys(broker.admission.gates, UserGate([User("one", "p")]))
    broker.reload(broker.options, gates, {}, identities_changed=True)
    server.run_until_idle()
    assert [client.is_open for client in clients] == [True, False, False]
    assert clients[2].session.close_reason == ops.CLOSED_AUTHENTICATION_FAILURE
    assert broker.faults.counts == {"session": 1}


def test_limits_that_have_changed_count_for_everybody(monkeypatch: Patch) -> None:
    server, clients = three()
    monkeypatch.setattr(Admission, "limits_of", broken_for(clients[1], Admission.limits_of))
    broker = server.broker
    broker.reload(broker.options, broker.admission.gates, {}, identities_changed=False)
    server.run_until_idle()
    check(server, clients)


def test_news_about_the_server_reach_everybody(monkeypatch: Patch) -> None:
    server, clients = three()
    monkeypatch.setattr(Broker, "info_line", broken_for(clients[1], Broker.info_line))
    for _ in server.broker.broadcast_info():
        pass
    server.run_until_idle()
    for client in (clients[0], clients[2]):
        assert client.take().startswith(b"INFO {")
    check(server, clients)
