"""Everything that a stranger can send before it has shown who it is: nothing but its own connection
may suffer.
"""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_frames import frames
from thoroughness import some
from tradewind.testing import FakeConnection, InProcessServer, User, UserGate

ROUNDS = some(6_000, 320_000)
HELD_BYTES_MAX = 64 * 1024
LOGIN = b'CONNECT {"user":"alice","pass":"pw","verbose":false,"headers":true}\r\n'
# All that a connection that is not let in may hear.
REFUSALS = {
    b"-ERR 'Authorization Violation'\r\n",
    b"-ERR 'Unknown Protocol Operation'\r\n",
    b"-ERR 'maximum control line exceeded'\r\n",
}
CORPUS = [
    LOGIN,
    b'CONNECT {"user":"alice","pass":"wrong","protocol":1,"lang":"go","name":"x"}\r\n',
    b'connect{"auth_token":"\xc3\xa4","jwt":null,"nkey":"U","sig":"\\u0000"}\n',
    b"CONNECT " + json.dumps({"name": "n" * 3000}).encode() + b"\r\n",
    b"CONNECT " + b'{"a":' * 600 + b"1" + b"}" * 600 + b"\r\n",
    b"PING\r\nPONG\r\n+OK\r\n-ERR 'x'\r\n",
    b"INFO {}\r\nPUB a 5\r\nhello\r\nHPUB a b 4 6\r\nN\r\n\r\nhi\r\n",
    b"SUB a.> queue 1\r\nUNSUB 1 5\r\nSUB * 2\r\n",
    b"PUB " + b" " * 5000 + b"a 999999999\r\n",
    b"SUB " + b"a." * 2000 + b"a 1\r\n",
]
ODD = [b"\r\n", b"\x00", b"\xff\xfe", b" ", b"\t", b'"', b"{", b"}", b"[" * 50, b"-1", b"9" * 12]


def closed_server() -> InProcessServer:
    return InProcessServer(gate=UserGate([User("alice", "pw")]))


def open_server() -> InProcessServer:
    """Strangers may come in, but only into an account of their own."""
    users = [User("alice", "pw", "A"), User("guest", "-")]
    return InProcessServer(gate=UserGate(users, stranger="guest"), accounts=["A"])


def attack(server: InProcessServer, data: bytes, chunk_bytes: int | None) -> FakeConnection:
    """Send it all; what is held for the stranger is looked at after every chunk."""
    stranger = server.connect(through_buffer=bool(chunk_bytes))
    step = chunk_bytes or len(data) or 1
    for start in range(0, len(data), step):
        stranger.send(data[start : start + step])
        if stranger.session.must_authenticate:
            assert stranger.session.input_pending_bytes <= HELD_BYTES_MAX
            assert stranger.session.pending_bytes <= HELD_BYTES_MAX
        if not stranger.is_open:
            break
    return stranger


def check_undisturbed(server: InProcessServer, bystander: FakeConnection) -> None:
    assert bystander.ask(b"PUB own 2\r\nhi\r\nPING\r\n") == b"MSG own 1 2\r\nhi\r\nPONG\r\n"
    assert server.broker.sessions[bystander.session.cid] is bystander.session


def check_refused(stranger: FakeConnection) -> None:
    """Either it is still on its way to a CONNECT, or it was told at most one thing and closed."""
    heard = frames(stranger.take())
    if stranger.is_open and stranger.session.must_authenticate:
        assert heard == []
    elif not stranger.session.is_connected:
        assert len(heard) <= 1
        assert set(heard) <= REFUSALS
        assert not stranger.is_open


def mutated(source: random.Random) -> bytes:
    """Some of the corpus, spliced and damaged."""
    data = bytearray(b"".join(source.choices(CORPUS, k=source.randint(1, 3))))
    for _ in range(source.choice([0, 1, 1, 2, 5])):
        at = source.randrange(len(data) + 1)
        how = source.randrange(4)
        if how == 0:
            data[at : at + source.choice([1, 1, 50])] = b""
        elif how == 1:
            data[at:at] = source.choice(ODD) * source.choice([1, 1, 2, 300])
        elif how == 2:
            data[at : at + 1] = bytes([source.randrange(256)])
        else:
            data = data[at:] + data[:at]
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_input_without_a_login_only_closes_its_own_connection(seed: int) -> None:
    source = random.Random(seed)
    server = closed_server()
    bystander = server.connect(LOGIN + b"SUB > 1\r\n")
    for _ in range(ROUNDS // 8):
        stranger = attack(server, mutated(source), source.choice([None, None, 1000, 97]))
        check_refused(stranger)
        if stranger.session.must_authenticate:
            assert bystander.take() == b""
        stranger.close()
        bystander.take()
    check_undisturbed(server, bystander)
    assert list(server.broker.sessions) == [bystander.session.cid]
    assert server.broker.accounts["$G"].subscription_count == 1


@pytest.mark.parametrize("seed", range(4))
def test_damaged_input_of_a_guest_does_not_reach_another_account(seed: int) -> None:
    source = random.Random(seed)
    server = open_server()
    bystander = server.connect(LOGIN + b"SUB > 1\r\n")
    for _ in range(ROUNDS // 8):
        stranger = attack(server, mutated(source), source.choice([None, None, 1000, 97]))
        frames(stranger.take())
        if stranger.session.account.name != "A":
            assert bystander.take() == b""
        stranger.close()
        frames(bystander.take())
    check_undisturbed(server, bystander)
    assert server.broker.accounts["$G"].subscription_count == 0


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(CORPUS),
            st.sampled_from(ODD),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(
                        st.sampled_from(["user", "pass", "verbose", "protocol", "headers", "x"]),
                        inner,
                        max_size=4,
                    )
                ),
                max_leaves=8,
            ).map(lambda document: b"CONNECT " + json.dumps(document).encode() + b"\r\n"),
        ),
        max_size=4,
    ),
    st.sampled_from([None, 1, 5]),
)
def test_any_bytes_and_any_json_are_survived(pieces: list[bytes], chunk_bytes: int | None) -> None:
    data = b"".join(pieces)
    for server in (closed_server(), open_server()):
        bystander = server.connect(LOGIN + b"SUB own 1\r\n")
        stranger = attack(server, data, chunk_bytes if len(data) < 500 else None)
        if server.broker.admission.auth_required(stranger.session):
            check_refused(stranger)
        bystander.take()
        check_undisturbed(server, bystander)


def test_a_flood_behind_an_unanswered_password_check_is_held_up_not_kept() -> None:
    gate = UserGate([User("alice", "pw")], deferred=True)
    server = InProcessServer(gate=gate)
    stranger = server.connect(LOGIN + b"PING\r\n" * 200_000)
    assert stranger.session.input_pending_bytes <= HELD_BYTES_MAX
    server.run_deferred()
    assert stranger.take() == b"PONG\r\n" * 200_000


def test_very_many_strangers_do_not_keep_members_out() -> None:
    server = closed_server()
    for _ in range(9000):
        server.connect()
    assert len(server.broker.sessions) < 9000
    server.advance(3)
    assert len(server.broker.sessions) == 0
    assert server.connect(LOGIN + b"PING\r\n").take() == b"PONG\r\n"
