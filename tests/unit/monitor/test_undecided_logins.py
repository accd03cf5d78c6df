"""What an account sees of a connection whose CONNECT is not decided yet, and what is left of it."""

from __future__ import annotations

import json

from tradewind.monitor.facade import MonitorView
from tradewind.monitor.page_options import STATE_ANY, ConnzOptions
from tradewind.monitor.stepping import at_once
from tradewind.testing import InProcessServer
from tradewind.testing.gates import User, UserGate

USERS = (User("anyone", "p", "OPEN"), User("carol", "p", "CLOSED"))


def started(*, stranger: str | None = "anyone") -> InProcessServer:
    gate = UserGate(USERS, stranger=stranger, deferred=True)
    return InProcessServer(gate=gate, accounts=["OPEN", "CLOSED"])


def greeting(user: str, password: str = "p") -> bytes:
    fields = {"verbose": False, "user": user, "pass": password, "name": f"client of {user}"}
    return f"CONNECT {json.dumps(fields)}\r\n".encode()


def listed(server: InProcessServer, account: str) -> list[str]:
    """The names of the clients that an account is shown, open and closed."""
    options = ConnzOptions(acc=account, state=STATE_ANY, auth=True)
    page = at_once(MonitorView(server.broker).connz(options))
    return [str(one.name) for one in page.connections or ()]


def everybody(server: InProcessServer) -> int:
    options = ConnzOptions(state=STATE_ANY, auth=True)
    return len(at_once(MonitorView(server.broker).connz(options)).connections or ())


def test_login_that_is_being_checked_is_in_no_account() -> None:
    server = started()
    server.connect(greeting("carol"))
    assert listed(server, "OPEN") == listed(server, "CLOSED") == []
    assert everybody(server) == 1
    server.run_deferred()
    assert listed(server, "OPEN") == []
    assert listed(server, "CLOSED") == ["client of carol"]


def test_peer_that_leaves_while_it_is_checked_was_in_no_account() -> None:
    server = started()
    server.connect(greeting("carol")).close()
    assert listed(server, "OPEN") == listed(server, "CLOSED") == listed(server, "$G") == []
    assert everybody(server) == 1


def test_peer_that_leaves_before_its_login_was_in_no_account() -> None:
    server = started(stranger=None)
    server.connect().close()
    assert listed(server, "$G") == []
    assert everybody(server) == 1


def test_second_login_that_fails_takes_the_first_out_of_its_account() -> None:
    server = started()
    peer = server.connect(greeting("carol"))
    server.run_deferred()
    peer.send(greeting("anyone", "wrong"))
    server.run_deferred()
    assert not peer.is_open
    assert listed(server, "CLOSED") == listed(server, "OPEN") == []


def test_member_is_listed_in_its_account_when_it_has_left() -> None:
    server = started()
    peer = server.connect(greeting("carol"))
    server.run_deferred()
    peer.close()
    assert listed(server, "CLOSED") == ["client of carol"]
    assert listed(server, "OPEN") == []
