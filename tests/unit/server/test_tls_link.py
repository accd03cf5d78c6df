"""How a connection comes up with TLS: who speaks first, what is refused and what is left behind."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tls_link_kit import (
    CONNECT,
    MILLISECOND_NS,
    Connection,
    Ground,
    every_step_is_cheap,
    until,
)

from certificates import Authority
from tradewind.options import ServerOptions
from tradewind.server.tls.handshakes import STEPS_PER_TURN, HandshakeTurns
from tradewind.server.tls.tls_pipe import (
    HANDSHAKE_BYTES_MAX,
    HANDSHAKE_READ_BYTES,
    TlsStage,
)
from tradewind.wire import ops

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
INFO = b"INFO {"
NOT_TLS = "first record does not look like a TLS handshake"


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    return Ground(authority, authority.server(), authority.client(subject="CN=client"))


@pytest.fixture
def ground(certified: Ground) -> Iterator[Ground]:
    yield certified
    certified.close()


def client_context(ground: Ground, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ground.authority.client_context()
    context.minimum_version = context.maximum_version = version
    return context


async def assert_serves(connection: Connection) -> None:
    assert connection.pipe.state is TlsStage.SECURE
    assert (await connection.say(CONNECT + b"PING\r\n")).startswith(b"PONG\r\n")
    assert len(connection.settings.pending) == 0
    assert connection.pipe._timer is None


async def assert_refused(connection: Connection, level: str, reason: str) -> None:
    """Logged once, closed for that reason, and nothing left over."""
    assert connection.log.about_handshake() == [
        (level, f"192.0.2.1:4711 - cid:1 - TLS handshake error: {reason}")
    ]
    closed = connection.turns.broker.closed
    assert [session.reason for session in closed] == [ops.CLOSED_TLS_HANDSHAKE]
    assert closed[0].in_msgs == 0
    assert closed[0].subscription_list == ()
    if not connection.transport.is_aborted:
        assert connection.transport.eof_sent
        connection.transport.receive(b"is thrown away")
        connection.transport.receive_eof()
    await connection.gone()
    assert len(connection.log.about_handshake()) == 1


# INFO first


@pytest.mark.parametrize("version", VERSIONS)
async def test_info_goes_out_in_the_clear_and_then_tls_begins(
    ground: Ground, version: ssl.TLSVersion
) -> None:
    connection = ground.connect(ground.settings(), client_context(ground, version))
    info = connection.take_sent()
    assert info.startswith(INFO)
    assert info.endswith(b"\r\n")
    connection.shake_hands()
    await assert_serves(connection)
    assert connection.session.tls_version == version.name[4:].replace("_", ".").lstrip("v")
    assert connection.session.tls_cipher.startswith("TLS_")
    assert connection.session.tls_peer_certs == ()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chunk_bytes", [1, 2, 5, 6, 100, 1000])
async def test_handshake_may_come_in_pieces(
    ground: Ground, version: ssl.TLSVersion, chunk_bytes: int
) -> None:
    connection = ground.connect(ground.settings(), client_context(ground, version))
    connection.take_sent()
    connection.shake_hands(chunk_bytes)
    await assert_serves(connection)


@pytest.mark.slow
async def test_hello_may_be_cut_anywhere(ground: Ground) -> None:
    settings = ground.settings()
    size = 0
    cut = 1
    while cut <= size or not size:
        connection = ground.connect(settings)
        connection.take_sent()
        connection.peer.handshake()
        hello = connection.peer.take()
        size = len(hello) - 1
        connection.transport.receive(hello[:cut])
        assert connection.take_sent() == b""
        connection.transport.receive(hello[cut:])
        assert connection.peer.handshake(connection.take_sent())
        connection.transport.receive(connection.peer.take() + connection.peer.encrypt(b"PING\r\n"))
        assert await connection.hear() == b"PONG\r\n"
        cut += 1
    assert cut > 100


async def test_operations_behind_the_last_handshake_message_are_run(ground: Ground) -> None:
    connection = ground.connect(ground.settings())
    connection.take_sent()
    connection.peer.handshake()
    connection.transport.receive(connection.peer.take())
    assert connection.peer.handshake(connection.take_sent())
    last = connection.peer.take()
    publish = b"PUB a 1000\r\n" + bytes(1000) + b"\r\n"
    operations = connection.peer.encrypt(CONNECT + publish * 80 + b"PING\r\n")
    assert len(operations) > HANDSHAKE_READ_BYTES
    connection.transport.receive(last + operations)
    assert (await connection.hear()).startswith(b"PONG\r\n")


async def test_output_during_the_handshake_is_held_back_and_then_encrypted(ground: Ground) -> None:
    connection = ground.connect(ground.settings())
    connection.take_sent()
    connection.session.write(b"PING\r\n")
    connection.turns.turn_now()
    assert connection.take_sent() == b""
    connection.shake_hands()
    assert await connection.hear() == b"PING\r\n"


# Plaintext where TLS is required


@pytest.mark.parametrize(
    "first", [b"P", b"CONNECT {}\r\n", b"\x15\x03\x01\x00\x02\x02\x28", b"\x00"]
)
async def test_plain_client_is_closed_without_a_word(ground: Ground, first: bytes) -> None:
    connection = ground.connect(ground.settings())
    assert connection.take_sent().startswith(INFO)
    connection.transport.receive(first)
    await assert_refused(connection, "debug", NOT_TLS)
    assert connection.take_sent() == b""


async def test_plaintext_in_front_of_the_hello_is_never_run(ground: Ground) -> None:
    """STARTTLS injection: somebody between the two puts operations in front of TLS."""
    connection = ground.connect(ground.settings())
    connection.take_sent()
    connection.peer.handshake()
    connection.transport.receive(b"SUB secret 1\r\nPUB a 0\r\n\r\n" + connection.peer.take())
    await assert_refused(connection, "debug", NOT_TLS)
    assert connection.take_sent() == b""


async def test_plaintext_behind_the_hello_is_never_run(ground: Ground) -> None:
    connection = ground.connect(ground.settings())
    connection.take_sent()
    connection.peer.handshake()
    connection.transport.receive(connection.peer.take() + b"SUB secret 1\r\nPUB a 0\r\n\r\n")
    await assert_refused(connection, "error", NOT_TLS)
    assert connection.turns.broker.accounts["$G"].subscription_count == 0


# TLS first


async def test_handshake_first_sends_nothing_before_tls(ground: Ground) -> None:
    connection = ground.connect(ground.settings(handshake_first_ns=0))
    connection.turns.turn_now()
    assert connection.take_sent() == b""
    connection.shake_hands()
    assert (await connection.hear()).startswith(INFO)
    await assert_serves(connection)


async def test_handshake_first_refuses_plaintext_even_if_it_is_allowed_otherwise(
    ground: Ground,
) -> None:
    connection = ground.connect(ground.settings(handshake_first_ns=0, allow_plain=True))
    connection.transport.receive(b"PING\r\n")
    await assert_refused(connection, "debug", NOT_TLS)
    assert connection.take_sent() == b""


async def test_hello_within_the_delay_comes_before_info(ground: Ground) -> None:
    connection = ground.connect(ground.settings(handshake_first_ns=60_000 * MILLISECOND_NS))
    connection.turns.turn_now()
    assert connection.take_sent() == b""
    connection.shake_hands()
    assert (await connection.hear()).startswith(INFO)
    await assert_serves(connection)


async def test_info_comes_in_the_clear_after_the_delay(ground: Ground) -> None:
    connection = ground.connect(ground.settings(handshake_first_ns=20 * MILLISECOND_NS))
    assert connection.take_sent() == b""
    await until(lambda: bool(connection.transport.sent))
    assert connection.take_sent().startswith(INFO)
    connection.shake_hands()
    await assert_serves(connection)


async def test_plaintext_within_the_delay_is_refused_before_info(ground: Ground) -> None:
    settings = ground.settings(handshake_first_ns=60_000 * MILLISECOND_NS, allow_plain=True)
    connection = ground.connect(settings)
    connection.transport.receive(b"PING\r\n")
    await assert_refused(connection, "debug", NOT_TLS)
    assert connection.take_sent() == b""


async def test_plaintext_after_the_delay_is_served_where_it_is_allowed(ground: Ground) -> None:
    settings = ground.settings(handshake_first_ns=20 * MILLISECOND_NS, allow_plain=True)
    connection = ground.connect(settings)
    await until(lambda: bool(connection.transport.sent))
    connection.take_sent()
    connection.transport.receive(b"PING\r\n")
    await until(lambda: connection.take_sent() == b"PONG\r\n")


# Both


async def test_plain_client_is_served_where_it_is_allowed(ground: Ground) -> None:
    connection = ground.connect(ground.settings(allow_plain=True))
    assert b'"tls_required":true' not in connection.take_sent()
    connection.session.write(b"PING\r\n")
    connection.turns.turn_now()
    assert connection.take_sent() == b""
    connection.transport.receive(b"PI")
    assert connection.take_sent() == b"PING\r\n"
    assert connection.transport.protocol is connection.link, "the pipe is out of the way"
    connection.transport.receive(b"NG\r\n")
    await until(lambda: connection.take_sent() == b"PONG\r\n")
    assert connection.session.tls is None
    connection.session.close(ops.CLOSED_KICKED)
    connection.turns.turn_now()
    await connection.gone()


async def test_tls_client_is_served_where_plaintext_is_allowed(ground: Ground) -> None:
    connection = ground.connect(ground.settings(allow_plain=True))
    connection.take_sent()
    connection.shake_hands()
    await assert_serves(connection)
    assert connection.session.tls_version == "1.3"


async def test_silent_client_is_plain_after_the_timeout_where_that_is_allowed(
    ground: Ground,
) -> None:
    settings = ground.settings(allow_plain=True, timeout_ns=20 * MILLISECOND_NS)
    connection = ground.connect(settings)
    connection.take_sent()
    await until(lambda: connection.pipe.state is TlsStage.PLAIN)
    connection.peer.handshake()
    connection.transport.receive(connection.peer.take())
    await connection.gone()
    assert connection.turns.broker.closed[0].reason == ops.CLOSED_PROTOCOL


async def test_leaving_without_a_word_is_no_fault_where_plaintext_is_allowed(
    ground: Ground,
) -> None:
    connection = ground.connect(ground.settings(allow_plain=True))
    connection.transport.receive_eof()
    await connection.gone()
    assert connection.log.about_handshake() == []
    assert connection.turns.broker.closed[0].reason == ops.CLOSED_BY_CLIENT


# Certificates of clients


@pytest.mark.parametrize(
    ("version", "alert"),
    [(VERSIONS[0], "HANDSHAKE_FAILURE"), (VERSIONS[1], "CERTIFICATE_REQUIRED")],
)
async def test_missing_client_certificate_is_answered_with_the_alert(
    ground: Ground, version: ssl.TLSVersion, alert: str
) -> None:
    connection = ground.connect(ground.settings(verify=True), client_context(ground, version))
    connection.take_sent()
    with pytest.raises(ssl.SSLError, match=alert):
        await say_hello_and_listen(connection)
    await assert_refused(connection, "error", "client didn't provide a certificate")


async def test_client_certificate_of_another_authority_is_answered_with_the_alert(
    ground: Ground, tmp_path_factory: pytest.TempPathFactory
) -> None:
    foreign = Authority(tmp_path_factory.mktemp("foreign"), "foreign").client()
    settings = ground.settings(verify=True)
    connection = ground.connect(settings, foreign.client_context(ground.authority))
    connection.take_sent()
    with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
        await say_hello_and_listen(connection)
    reason = "failed to verify certificate: unable to get local issuer certificate"
    await assert_refused(connection, "error", reason)


async def say_hello_and_listen(connection: Connection) -> None:
    """In TLS 1.3 the client believes it is done, and only then hears of the alert."""
    connection.shake_hands()
    connection.peer.decrypt(connection.take_sent())


async def test_session_knows_the_client_certificate(ground: Ground) -> None:
    client = ground.client.client_context(ground.authority)
    connection = ground.connect(ground.settings(verify=True), client)
    connection.take_sent()
    connection.shake_hands()
    await assert_serves(connection)
    assert connection.session.tls_peer_certs == (ground.client.der,)


async def test_pinned_certificate_is_accepted(ground: Ground) -> None:
    client = ground.client.client_context(ground.authority)
    settings = ground.settings(verify=True, pinned_certs=frozenset({ground.client.pin}))
    connection = ground.connect(settings, client)
    connection.take_sent()
    connection.shake_hands()
    await assert_serves(connection)


async def test_certificate_that_is_not_pinned_is_refused(ground: Ground) -> None:
    other = ground.authority.client("other", subject="CN=other")
    settings = ground.settings(verify=True, pinned_certs=frozenset({ground.client.pin}))
    connection = ground.connect(settings, other.client_context(ground.authority))
    connection.take_sent()
    connection.shake_hands()
    assert connection.peer.decrypt(connection.take_sent()) == (b"", True)
    connection.transport.receive(connection.peer.encrypt(b"SUB a 1\r\n"))
    await assert_refused(connection, "error", "certificate not pinned")


# Handshakes that go wrong


async def test_garbage_instead_of_a_hello_is_answered_with_an_alert(ground: Ground) -> None:
    connection = ground.connect(ground.settings())
    connection.take_sent()
    connection.transport.receive(b"\x16\x03\x01\x00\x05hello")
    alert = connection.take_sent()
    assert alert[0] == 0x15
    assert alert[5] == 2, "fatal"
    await assert_refused(connection, "error", "unexpected message")


async def test_client_that_distrusts_the_server_is_named_in_the_log(ground: Ground) -> None:
    connection = ground.connect(ground.settings(), ssl.create_default_context())
    connection.take_sent()
    connection.peer.handshake()
    connection.transport.receive(connection.peer.take())
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.peer.handshake(connection.take_sent())
    connection.transport.receive(connection.peer.take())
    await assert_refused(connection, "error", "client sent alert: unknown ca")


async def test_old_versions_of_tls_are_refused(ground: Ground) -> None:
    settings = ground.settings(min_version="1.3")
    connection = ground.connect(settings, client_context(ground, ssl.TLSVersion.TLSv1_2))
    connection.take_sent()
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        connection.shake_hands()
    await assert_refused(connection, "error", "client offers no TLS version that is allowed here")


async def test_endless_hello_is_cut_off(ground: Ground) -> None:
    connection = ground.connect(ground.settings())
    connection.take_sent()
    record = b"\x16\x03\x01\x40\x00"
    hello = b"\x01\x01\xff\x00" + b"\x03\x03" + bytes(130_000)
    fed = 0
    while connection.pipe.state is not TlsStage.CLOSING:
        piece = record + hello[:0x4000]
        hello = hello[0x4000:]
        connection.transport.receive(piece)
        fed += len(piece)
        assert connection.transport.largest_read_bytes <= HANDSHAKE_READ_BYTES
    assert HANDSHAKE_BYTES_MAX < fed <= HANDSHAKE_BYTES_MAX + 2 * HANDSHAKE_READ_BYTES
    await assert_refused(connection, "error", "no end of the handshake in 65536 bytes")


async def test_crowd_of_hellos_costs_the_iteration_only_a_few_handshakes(ground: Ground) -> None:
    """All others have left nothing but their bytes."""
    settings = replace(ground.settings(), turns=HandshakeTurns(every_step_is_cheap))
    connections = [ground.connect(settings) for _ in range(20)]
    for connection in connections:
        assert connection.take_sent().startswith(INFO)
        connection.peer.handshake()
        connection.transport.receive(connection.peer.take())
    assert sum(bool(connection.transport.sent) for connection in connections) == STEPS_PER_TURN
    assert len(settings.turns) == len(connections) - STEPS_PER_TURN
    await until(lambda: all(connection.transport.sent for connection in connections))


async def test_input_that_waits_for_its_turn_is_limited(ground: Ground) -> None:
    settings = replace(ground.settings(), turns=HandshakeTurns(every_step_is_cheap))
    for _ in range(STEPS_PER_TURN):
        before = ground.connect(settings)
        before.peer.handshake()
        before.transport.receive(before.peer.take())
    connection = ground.connect(settings)
    connection.take_sent()
    connection.transport.receive(b"\x16" * (4 * HANDSHAKE_BYTES_MAX))
    assert connection.transport.is_paused
    kept = 4 * HANDSHAKE_BYTES_MAX - len(connection.transport.waiting)
    assert kept <= HANDSHAKE_BYTES_MAX + HANDSHAKE_READ_BYTES
    await until(lambda: bool(connection.log.about_handshake()))


@pytest.mark.parametrize("hello_bytes", [0, 1, 100, 10_000])
async def test_unfinished_handshake_ends_at_the_timeout(ground: Ground, hello_bytes: int) -> None:
    connection = ground.connect(ground.settings(timeout_ns=20 * MILLISECOND_NS))
    connection.take_sent()
    connection.peer.handshake()
    connection.transport.receive(connection.peer.take()[:hello_bytes])
    await until(lambda: connection.transport.is_aborted)
    await assert_refused(connection, "debug", "timeout")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "EOF"),
        (ConnectionResetError(104, "Connection reset by peer"), "connection reset by peer"),
    ],
)
async def test_client_that_leaves_during_the_handshake_is_logged(
    ground: Ground, error: Exception | None, reason: str
) -> None:
    connection = ground.connect(ground.settings())
    connection.peer.handshake()
    connection.transport.receive(connection.peer.take())
    connection.transport.lose(error)
    await connection.gone()
    text = f"192.0.2.1:4711 - cid:1 - TLS handshake error: {reason}"
    assert connection.log.about_handshake() == [("error", text)]
    assert connection.turns.broker.closed[0].reason == ops.CLOSED_TLS_HANDSHAKE


async def test_refused_client_that_does_not_go_is_cut_off(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.server.tls.tls_pipe.DRAIN_SECONDS", 0.02)
    connection = ground.connect(ground.settings())
    connection.transport.receive(b"PING\r\n")
    assert connection.pipe in connection.settings.pending, "whoever stops the listener finds it"
    await until(lambda: connection.transport.is_aborted)
    await connection.gone()


# Sessions that end first


@pytest.mark.parametrize("handshake_first_ns", [None, 0, 60_000 * MILLISECOND_NS])
async def test_session_that_is_closed_during_the_handshake_takes_the_connection_with_it(
    ground: Ground, handshake_first_ns: int | None
) -> None:
    connection = ground.connect(ground.settings(handshake_first_ns=handshake_first_ns))
    connection.take_sent()
    connection.peer.handshake()
    connection.transport.receive(connection.peer.take()[:50])
    connection.session.close(ops.CLOSED_KICKED, "not to be said in the clear")
    connection.turns.turn_now()
    assert connection.take_sent() == b""
    await connection.gone()
    assert connection.log.about_handshake() == []
    assert connection.turns.broker.closed[0].reason == ops.CLOSED_KICKED


async def test_connection_too_many_is_told_so_in_the_clear(ground: Ground) -> None:
    connection = ground.connect(ground.settings(), options=ServerOptions(max_connections=0))
    sent = connection.take_sent()
    assert sent.startswith(INFO)
    assert sent.endswith(b"-ERR 'maximum connections exceeded'\r\n")
    await connection.gone()
