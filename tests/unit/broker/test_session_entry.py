"""Who runs the input of a session: its link or the end of a turn, and nobody inside of that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.identity import (
    Consultation,
    Credentials,
    Decision,
    Identity,
    PendingLogin,
    Rejection,
)
from tradewind.broker.session import BLOCKED_SERVICE_FLAG, BLOCKED_STALL_FLAG, Session
from tradewind.options import LeafOptions, ServerOptions
from tradewind.testing import FakeConnection, InProcessServer, User, UserGate

CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
SCRIPT = b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n"
ANSWERS = b"MSG a 1 2\r\nhi\r\nPONG\r\n"


class ScriptedGate:
    """Does what a test wants when somebody has sent CONNECT; `decide` gives the decision."""

    auth_required = True
    is_required = True
    nonce_required = False

    def __init__(self, decide: Callable[[Credentials], Decision]) -> None:
        self.decide = decide

    def check(self, credentials: Credentials) -> Decision:
        if not credentials.has_connected:
            return Rejection("nothing was shown")
        return self.decide(credentials)


class FetchingGate(ScriptedGate):
    """Fetches an account at its first login, and has it at once or when `fetched` is called."""

    def __init__(self, *, is_immediate: bool, account: str = "$G") -> None:
        super().__init__(self._decide)
        self._is_immediate = is_immediate
        self._account = account
        self.is_known = False
        self.waiting: list[Callable[[], None]] = []

    def _decide(self, _: Credentials) -> Decision:
        return Identity(self._account) if self.is_known else PendingLogin(self._start)

    def _start(self, resume: Callable[[], None]) -> bool:
        if self._is_immediate:
            self.is_known = True
            resume()
        else:
            self.waiting.append(resume)
        return True

    def fetched(self) -> None:
        self.is_known = True
        for resume in self.waiting:
            resume()


def silent_leaf(server: InProcessServer, *, through_buffer: bool = True) -> FakeConnection:
    """A server that has dialled and said nothing yet."""
    leaves = server.broker.leaves
    assert leaves is not None
    session = leaves.accepted(RemoteAddress("127.0.0.1", 1))
    return FakeConnection(server, session, through_buffer=through_buffer)


# ---------------------------------------------------------------- logins that are decided at once


@pytest.mark.parametrize("through_buffer", [True, False])
@pytest.mark.parametrize("is_immediate", [True, False])
def test_a_login_whose_account_is_fetched_is_the_same_in_two_pieces(
    through_buffer: bool, is_immediate: bool
) -> None:
    data = CONNECT + SCRIPT
    for place in range(len(data)):
        gate = FetchingGate(is_immediate=is_immediate)
        server = InProcessServer(gate=gate)
        client = server.connect(through_buffer=through_buffer)
        client.send(data[:place])
        client.send(data[place:])
        gate.fetched()
        server.run_until_idle()
        assert client.take() == ANSWERS, place
        assert client.session.input_pending_bytes == 0
        assert client.session.in_msgs == 1


def test_a_service_may_decide_while_it_is_being_asked() -> None:
    def start(
        _: Session, decided: Callable[[Identity | Rejection], None]
    ) -> Callable[[], None] | Rejection:
        decided(Identity("$G"))
        return lambda: None

    gate = ScriptedGate(lambda _: Consultation(start, Rejection("too late")))
    client = InProcessServer(gate=gate).connect(through_buffer=False)
    client.send(CONNECT[:10])
    assert client.ask(CONNECT[10:] + SCRIPT) == ANSWERS


def test_a_gate_that_never_knows_enough_does_not_recurse() -> None:
    """An account that cannot be kept would be fetched for ever."""
    asked = 0

    def start(resume: Callable[[], None]) -> bool:
        resume()
        return True

    def decide(_: Credentials) -> Decision:
        nonlocal asked
        asked += 1
        return PendingLogin(start)

    server = InProcessServer(gate=ScriptedGate(decide))
    client = server.connect()
    assert client.ask(CONNECT + SCRIPT) == b"-ERR 'Authorization Violation'\r\n"
    assert not client.is_open
    assert asked < 10


# ---------------------------------------------------------------- the guard

ENTRIES: dict[str, Callable[[Session], object]] = {
    "feed": lambda session: session.feed(b"PING\r\n", 0),
    "read": lambda session: session.read_buffer(),
    "received": lambda session: session.received(0, 0),
    "resume": lambda session: session.resume(),
}


def entering_server(
    enter: Callable[[Session], object], kind: str
) -> tuple[InProcessServer, FakeConnection, list[str]]:
    """A server whose gate enters the session that it is asked about."""
    refused: list[str] = []

    def decide(_: Credentials) -> Decision:
        try:
            enter(connection.session)
        except RuntimeError as error:
            refused.append(str(error))
        return Identity("$G")

    options = ServerOptions(server_name="hub", leafnodes=LeafOptions(port=1))
    server = InProcessServer(options, gate=ScriptedGate(decide))
    if kind == "client":
        connection = server.connect(through_buffer=False)
    else:
        connection = silent_leaf(server, through_buffer=False)
    return server, connection, refused


@pytest.mark.parametrize("kind", ["client", "leaf"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_session_that_runs_its_input_cannot_be_entered(entry: str, kind: str) -> None:
    _, connection, refused = entering_server(ENTRIES[entry], kind)
    connection.send(CONNECT[:10])
    connection.send(CONNECT[10:] + b"PING\r\n")
    number = connection.session.cid
    assert refused == [f"session {number} was entered again while it runs its input"]
    assert connection.take().count(b"PONG") == 1
    assert connection.session.input_pending_bytes == 0


@pytest.mark.parametrize("kind", ["client", "leaf"])
def test_unblocking_a_session_that_runs_its_input_runs_nothing_else(kind: str) -> None:
    def unblock(session: Session) -> None:
        session.block(BLOCKED_STALL_FLAG)
        session.unblock(BLOCKED_STALL_FLAG)

    _, connection, refused = entering_server(unblock, kind)
    connection.send(CONNECT[:10])
    connection.send(CONNECT[10:] + b"PING\r\nPING\r\n")
    assert refused == []
    assert connection.take().count(b"PONG") == 2


# ---------------------------------------------------------------- what is kept, and run later


def test_unblocking_runs_nothing_before_the_end_of_the_turn() -> None:
    """Whoever unblocks may be in the middle of something that the kept operations would change."""
    server = InProcessServer()
    client = server.connect(CONNECT)
    client.session.block(BLOCKED_SERVICE_FLAG)
    client.session.feed(SCRIPT, 0)
    client.session.unblock(BLOCKED_SERVICE_FLAG)
    assert client.session.in_msgs == 0
    client.session.feed(b"PING\r\n", 0)
    server.run_until_idle()
    assert client.take() == ANSWERS + b"PONG\r\n"


def test_a_fault_while_kept_input_runs_ends_that_connection_alone() -> None:
    calls = 0

    def decide(credentials: Credentials) -> Decision:
        nonlocal calls
        calls += 1
        if credentials.user == "broken":
            raise ZeroDivisionError
        return Identity("$G")

    server = InProcessServer(gate=ScriptedGate(decide))
    server.expects_faults = True
    broken, sound = server.connect(CONNECT), server.connect(CONNECT)
    for client in (broken, sound):
        client.session.block(BLOCKED_SERVICE_FLAG)
    broken.session.feed(SCRIPT + b'CONNECT {"user":"broken"}\r\n' + SCRIPT, 0)
    sound.session.feed(SCRIPT, 0)
    for client in (broken, sound):
        client.session.unblock(BLOCKED_SERVICE_FLAG)
    server.run_until_idle()
    assert sound.take() == ANSWERS
    assert broken.take() == ANSWERS
    assert not broken.is_open
    assert server.broker.faults.total == 1


def test_operations_before_a_fault_do_not_run_again() -> None:
    """The caller ends the connection. If it did not, nothing would run twice."""

    def decide(credentials: Credentials) -> Decision:
        if credentials.user == "broken":
            raise ZeroDivisionError
        return Identity("$G")

    server = InProcessServer(gate=ScriptedGate(decide))
    client = server.connect(CONNECT, through_buffer=False)
    client.send(SCRIPT[:4])
    with pytest.raises(ZeroDivisionError):
        client.session.feed(SCRIPT[4:] + b'CONNECT {"user":"broken"}\r\n', 0)
    assert client.session.input_pending_bytes == 0
    client.session.feed(b"PING\r\n", 0)
    assert client.session.in_msgs == 1


def test_a_session_that_is_closed_while_it_is_blocked_keeps_nothing() -> None:
    server = InProcessServer()
    client = server.connect(CONNECT)
    client.session.block(BLOCKED_STALL_FLAG)
    client.session.feed(SCRIPT * 1000, 0)
    assert client.session.input_pending_bytes > 0
    client.session.unblock(BLOCKED_STALL_FLAG)
    client.close()
    assert client.session.input_pending_bytes == 0
    assert client.session.in_msgs == 0


def test_connections_that_continue_share_turns() -> None:
    """What many have kept is not run in one go."""

    def decide(_: Credentials) -> Decision:
        server.clock.work_ns(6_000_000)
        return Identity("$G")

    server = InProcessServer(gate=ScriptedGate(decide))
    clients = [server.connect(CONNECT) for _ in range(4)]
    for client in clients:
        client.session.block(BLOCKED_STALL_FLAG)
        client.session.feed(CONNECT, 0)
        client.session.unblock(BLOCKED_STALL_FLAG)
    server.broker.watch.begin()
    server.broker.end_turn()
    done = [client.session.input_pending_bytes == 0 for client in clients]
    assert done == [True, True, False, False]
    server.run_until_idle()
    assert all(client.session.input_pending_bytes == 0 for client in clients)


# ---------------------------------------------------------------- changes during a login


def test_a_fault_in_one_waiting_login_does_not_stop_the_others() -> None:
    gate = FetchingGate(is_immediate=False)
    server = InProcessServer(gate=gate)
    server.expects_faults = True
    broken, sound = server.connect(CONNECT + SCRIPT), server.connect(CONNECT + SCRIPT)
    decide, failing = gate.decide, iter([True])

    def fail_once(credentials: Credentials) -> Decision:
        if next(failing, False):
            raise ZeroDivisionError
        return decide(credentials)

    gate.decide = fail_once
    gate.fetched()
    server.run_until_idle()
    assert not broken.is_open
    assert sound.take() == ANSWERS
    assert server.broker.faults.total == 1


def test_a_login_into_an_account_that_is_gone_is_refused() -> None:
    gate = FetchingGate(is_immediate=False, account="GONE")
    server = InProcessServer(gate=gate)
    client = server.connect(CONNECT + SCRIPT)
    gate.fetched()
    server.run_until_idle()
    assert client.take() == b"-ERR 'Authorization Violation'\r\n"
    assert not client.is_open
    assert client.session.in_msgs == 0


@pytest.mark.parametrize("kind", ["client", "leaf"])
def test_a_reload_counts_for_a_login_that_is_under_way(kind: str) -> None:
    """A password that a thread is checking may be one that no longer counts."""
    options = ServerOptions(server_name="hub", leafnodes=LeafOptions(port=1))
    server = InProcessServer(options, gate=UserGate([User("u", "pw")], deferred=True))
    connect = b'CONNECT {"verbose":false,"user":"u","pass":"pw"}\r\n'
    client = server.connect() if kind == "client" else silent_leaf(server)
    client.send(connect)
    gate = UserGate([User("u", "new")], deferred=True)
    gates = dict.fromkeys(("STANDARD", "LEAFNODE"), gate)
    server.broker.reload(options, gates, {}, identities_changed=True)
    server.run_deferred()
    assert b"-ERR 'Authorization Violation'\r\n" in client.take()
    assert not client.is_open


def test_a_connection_that_ends_during_its_login_is_not_resumed() -> None:
    gate = FetchingGate(is_immediate=False)
    server = InProcessServer(gate=gate)
    client = server.connect(CONNECT + SCRIPT)
    client.close()
    gate.fetched()
    server.run_until_idle()
    assert client.session.in_msgs == 0
    assert server.broker.accounts["$G"].session_count == 0
