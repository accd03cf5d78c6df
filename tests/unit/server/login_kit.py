"""Logins to a whole server over sockets that are memory: every gate, every way, cut anywhere."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import bcrypt
from msgspec.structs import replace
from tls_link_kit import MemoryTransport, NoWaiting, Peer, RecordingLog

from certificates import Authority, Certificate
from jwt_kit import (
    OPERATOR,
    SYSTEM,
    account_jwt,
    account_key,
    memory_configuration,
    now,
    operator_jwt,
    user_jwt,
    user_key,
)
from jwt_kit import login as jwt_login
from s2_frames import raw as s2_chunk
from tradewind import nkeys
from tradewind.broker.accounts import InternalMessage
from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.room import Guests, Room
from tradewind.broker.session import Session
from tradewind.durations import SECOND_NS
from tradewind.jwt import claims as kinds
from tradewind.jwt.codec import decode_as, encode
from tradewind.options import CompressionOptions, TlsOptions, WebsocketOptions
from tradewind.server.config.load import load_config_file
from tradewind.server.lifecycle.app import ServerApp
from tradewind.server.links.link import StreamLink
from tradewind.server.links.proxy_header import ProxyHead
from tradewind.server.links.tls_link import client_pipe, late_pipe
from tradewind.server.monitoring.logs import Log
from tradewind.server.operators.resolvers import ResolverError, UrlResolver
from tradewind.server.tls.tls import server_context
from tradewind.server.tls.tls_pipe import TlsSettings
from tradewind.server.websocket.websocket_link import AcceptedFrameLink
from tradewind.store.format.s2 import Decompressor
from websocket_frames import BINARY, KEY, decode_all, deflate, frame

REMOTE = RemoteAddress("192.0.2.1", 4711)
SECONDS = 60
PROXY_LINE = b"PROXY TCP4 9.8.7.6 1.1.1.1 4000 4222\r\n"
S2_BEGIN = b"\xff\x06\x00\x00S2sTwO"
MIB = 1 << 20
HASHED = bcrypt.hashpw(b"pw", bcrypt.gensalt(4)).decode()
ACCOUNT, USER = account_key(1), user_key(1)
ISSUER = nkeys.KeyPair(nkeys.ACCOUNT, b"\x21" * 32)
CERTIFICATE_NAME = "CN=app,O=tests"
# Every part is named once: what follows CONNECT, and how its answers end.
CLIENT_SCRIPT = b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n"
LEAF_SCRIPT = b"LS+ a\r\nLMSG b 2\r\nhi\r\nPING\r\n"
_OF_ONE_CONNECTION = re.compile(rb'"client_id":\d+|"nonce":"[^"]*"')


# ---------------------------------------------------------------- who logs in


@dataclass(frozen=True)
class Gatekeeping:
    """A kind of login: `fields(nonce, is_right)` are what CONNECT shows."""

    name: str
    config: Callable[[Path], str]
    fields: Callable[[str, bool], dict[str, Any]]
    is_for: frozenset[str] = frozenset(("client", "leaf"))
    has_wrong: bool = True


def _plain(text: str) -> Callable[[Path], str]:
    return lambda _: text


def _password(_: str, is_right: bool) -> dict[str, Any]:
    return {"user": "u", "pass": "pw" if is_right else "px"}


def _token(_: str, is_right: bool) -> dict[str, Any]:
    return {"auth_token": "tk" if is_right else "tx"}


def _nkey(nonce: str, is_right: bool) -> dict[str, Any]:
    signature = base64.urlsafe_b64encode(USER.sign(nonce.encode())).rstrip(b"=").decode()
    return {"nkey": USER.public, "sig": signature if is_right else signature[::-1]}


USER_JWT = user_jwt(USER, ACCOUNT)


def _jwt(nonce: str, is_right: bool) -> dict[str, Any]:
    fields = jwt_login(USER_JWT, USER if is_right else user_key(2), nonce)
    return {"jwt": fields["jwt"], "sig": fields["sig"]}


def _folder_configuration(folder: Path) -> str:
    tokens = folder / "tokens"
    tokens.mkdir()
    for key in (SYSTEM, ACCOUNT):
        (tokens / f"{key.public}.jwt").write_text(account_jwt(key))
    return (
        f"operator: {operator_jwt()}\nsystem_account: {SYSTEM.public}\n"
        f'resolver {{ type: full, dir: "{tokens}" }}\nauthorization {{ timeout: 60 }}\n'
    )


def _url_configuration(_: Path) -> str:
    return (
        f"operator: {operator_jwt()}\nsystem_account: {SYSTEM.public}\n"
        'resolver: URL("http://127.0.0.1:1/")\nauthorization { timeout: 60 }\n'
    )


def _memory_configuration(_: Path) -> str:
    more = "authorization { timeout: 60 }\n"
    return memory_configuration({ACCOUNT.public: account_jwt(ACCOUNT)}, more=more)


CALLOUT = (
    "accounts {\n  AUTH { users: [ {user: auth, password: pwd} ] }\n  APP {}\n}\n"
    f"authorization {{\n  timeout: 60\n  auth_callout {{ issuer: {ISSUER.public}, account: AUTH,"
    " auth_users: [auth] }\n}\n"
)
LEAF_USERS = (
    "accounts { A { users: [ {user: other, password: other} ] } }\n"
    "leafnodes { authorization { timeout: 60, users: [ {user: u, password: pw, account: A} ] } }\n"
)
GATES = {
    gate.name: gate
    for gate in (
        Gatekeeping("none", _plain(""), lambda *_: {}, has_wrong=False),
        Gatekeeping(
            "password",
            _plain("authorization { user: u, password: pw, timeout: 60 }"),
            _password,
        ),
        Gatekeeping(
            "bcrypt",
            _plain(f'authorization {{ timeout: 60, users: [{{user: u, password: "{HASHED}"}}] }}'),
            _password,
        ),
        Gatekeeping("token", _plain("authorization { token: tk, timeout: 60 }"), _token),
        Gatekeeping(
            "nkey",
            _plain(f"authorization {{ timeout: 60, users: [{{nkey: {USER.public}}}] }}"),
            _nkey,
        ),
        Gatekeeping(
            "no_auth_user",
            _plain(
                "accounts { A { users: [{user: u, password: pw}] } }\nno_auth_user: u\n"
                "authorization { timeout: 60 }"
            ),
            lambda _, is_right: {} if is_right else {"user": "u", "pass": "px"},
        ),
        Gatekeeping("jwt_memory", _memory_configuration, _jwt),
        Gatekeeping("jwt_folder", _folder_configuration, _jwt),
        Gatekeeping("jwt_url", _url_configuration, _jwt),
        Gatekeeping("callout", _plain(CALLOUT), _password),
        Gatekeeping("leaf_users", _plain(LEAF_USERS), _password, is_for=frozenset(("leaf",))),
        Gatekeeping(
            "certificate",
            _plain(f'authorization {{ timeout: 60, users: [{{user: "{CERTIFICATE_NAME}"}}] }}'),
            lambda *_: {},
            is_for=frozenset(("certified",)),
            has_wrong=False,
        ),
    )
}


class Served:
    """A server with one of these gates."""

    def __init__(self, app: ServerApp, gate: Gatekeeping, papers: Papers) -> None:
        self.app = app
        self.gate = gate
        self.papers = papers
        self.broker = app.broker

    def forget(self) -> None:
        """Have the next login be the first of its account."""
        if self.app._operators is not None:
            self.app._operators.book.accounts.pop(ACCOUNT.public, None)

    def answer_callouts(self) -> None:
        """Be the service that decides about logins."""
        account = self.broker.accounts.get("AUTH")
        if account is not None:
            account.subscribe("$SYS.REQ.USER.AUTH", self._answer)

    def _answer(self, message: InternalMessage) -> None:
        asked = decode_as(kinds.AuthorizationRequest, message.payload.decode()).nats
        response = kinds.AuthorizationResponse(sub=asked.user_nkey, aud=self.broker.server_id)
        if asked.connect_opts["pass"] == "pw":
            user = kinds.UserClaims(sub=asked.user_nkey, aud="APP")
            response.nats.jwt = encode(user, ISSUER, now())
        else:
            response.nats.error = "no"
        message.account.publish(message.reply, encode(response, ISSUER, now()).encode())


class Papers:
    """The certificates of a server and a client."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server: Certificate = self.authority.server()
        self.client: Certificate = self.authority.client(subject=CERTIFICATE_NAME)

    def options(self, **settings: Any) -> TlsOptions:
        return TlsOptions(
            cert_file=self.server.cert_file,
            key_file=self.server.key_file,
            ca_file=self.authority.ca_file,
            verify=True,
            verify_and_map=True,
            timeout_ns=SECONDS * SECOND_NS,
            **settings,
        )

    def settings(self, hello_wait_ns: int | None) -> TlsSettings:
        options = self.options()
        return TlsSettings(server_context(options), options, hello_wait_ns, turns=NoWaiting())

    def client_context(self) -> ssl.SSLContext:
        return self.client.client_context(self.authority)


class RememberedUrls(UrlResolver):
    """A web server that is always there."""

    def check(self) -> None:
        """Do nothing: the resolver responds."""

    def _get(self, url: str) -> str:
        key = url.rpartition("/")[2]
        for account in (SYSTEM, ACCOUNT):
            if account.public == key:
                return account_jwt(account, OPERATOR, issued_at=1)
        raise ResolverError(f"{url}: 404")


@asynccontextmanager
async def served(gate: Gatekeeping, folder: Path, papers: Papers) -> AsyncIterator[Served]:
    """A server that has this gate; no real connection comes to it."""
    path = folder / "server.conf"
    leafnodes = "" if gate.name == "leaf_users" else "leafnodes { authorization { timeout: 60 } }\n"
    path.write_text(
        f'server_name: login\nlisten: "127.0.0.1:-1"\n{gate.config(folder)}\n{leafnodes}'
    )
    options = load_config_file(str(path)).options
    assert options.leafnodes is not None
    leafs = replace(options.leafnodes, host="127.0.0.1", port=-1)
    options = replace(options, leafnodes=leafs, ping_interval_ns=3600 * SECOND_NS)
    if gate.name == "certificate":
        options = replace(
            options,
            tls=papers.options(handshake_first_ns=0),
            websocket=websocket_options(tls=papers.options()),
        )
    app = ServerApp(options, cast(Log, RecordingLog()))
    await app.start()
    try:
        made = Served(app, gate, papers)
        made.answer_callouts()
        yield made
    finally:
        await app.stop()


def websocket_options(**settings: Any) -> WebsocketOptions:
    return WebsocketOptions(
        host="127.0.0.1",
        port=-1,
        compression=True,
        handshake_timeout_ns=SECONDS * SECOND_NS,
        **settings,
    )


# ---------------------------------------------------------------- ways


class Transport(MemoryTransport):
    """A transport that also supports protocols that want bytes."""

    def receive(self, data: bytes) -> None:
        if isinstance(self.protocol, asyncio.BufferedProtocol):
            super().receive(data)
            return
        self.waiting += data
        if self.waiting and not self.is_paused and not self.is_closed:
            piece = bytes(self.waiting)
            self.waiting.clear()
            self.protocol.data_received(piece)


class Way:
    """One connection. A subclass wraps what is said, and unwraps what is heard."""

    side = "client"
    # Whether what was cut is sent as parts of one whole, or each part in a wrapping of its own.
    is_cut_inside = False
    # Bytes before CONNECT that are cut as well.
    head = b""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.turns = served.app.turns
        self.transport = Transport(self.protocol())
        self.transport.protocol.connection_made(self.transport)
        self.session: Session | None = None

    def protocol(self) -> Any:
        raise NotImplementedError

    def open_session(self, **settings: Any) -> Session:
        return self.served.broker.open_session(REMOTE, "STANDARD", **settings)

    async def begin(self) -> None:
        """Do all that comes before INFO."""

    def wrap(self, piece: bytes) -> bytes:
        return piece

    def heard(self) -> bytes:
        """Everything that the server has said."""
        return bytes(self.transport.sent)

    def pieces(self, data: bytes, cuts: Sequence[int]) -> list[bytes]:
        """The bytes of the socket, in parts."""
        data = self.head + data
        if not self.is_cut_inside:
            return [self.wrap(piece) for piece in cut(data, cuts)]
        wrapped = self.wrap(data)
        return cut(wrapped, [position * len(wrapped) // len(data) for position in cuts])


def cut(data: bytes, positions: Sequence[int]) -> list[bytes]:
    ends = [*sorted(positions), len(data)]
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if end > begin]


class Plain(Way):
    """A client without anything."""

    def protocol(self) -> Any:
        return StreamLink(self.turns, self.open_session)


class Proxied(Way):
    """A connection through a proxy, whose line is cut as well."""

    head = PROXY_LINE

    def protocol(self) -> Any:
        return ProxyHead(self.served.broker, REMOTE, partial(StreamLink, self.turns), "STANDARD")


class Secured(Way):
    """TLS after INFO."""

    hello_wait_ns: int | None = None

    def protocol(self) -> Any:
        settings = self.served.papers.settings(self.hello_wait_ns)
        return client_pipe(self.turns, self.open_session, settings)

    async def begin(self) -> None:
        self._plain = bytearray(self.transport.sent)
        self.transport.sent.clear()
        self.peer = Peer(self.served.papers.client_context())
        complete = self.peer.handshake()
        while not complete or (data := self.peer.take()):
            data = data if complete else self.peer.take()
            self.transport.receive(data)
            complete = self.peer.handshake(self._taken())

    def _taken(self) -> bytes:
        sent = bytes(self.transport.sent)
        self.transport.sent.clear()
        return sent

    def wrap(self, piece: bytes) -> bytes:
        return self.peer.encrypt(piece)

    def heard(self) -> bytes:
        self._plain += self.peer.decrypt(self._taken())[0]
        return bytes(self._plain)


class SecuredFirst(Secured):
    """TLS before INFO."""

    hello_wait_ns = 0


class Framed(Way):
    """WebSocket: each part is a frame."""

    path = "/"
    extension = ""
    is_deflated = False
    is_secured = False

    def protocol(self) -> Any:
        return self._link()

    def _link(self) -> AcceptedFrameLink:
        options = websocket_options(no_tls=not self.is_secured)
        upgrading: Guests[AcceptedFrameLink] = Guests(Room(8))
        area = memoryview(bytearray(MIB))
        return AcceptedFrameLink(self.turns, options, upgrading, area, tls=self.is_secured)

    async def begin(self) -> None:
        head = (
            f"GET {self.path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n{self.extension}\r\n"
        )
        self.send_raw(head.encode())
        self._answer = b""
        await until(self._is_upgraded)

    def send_raw(self, data: bytes) -> None:
        self.transport.receive(data)

    def raw(self) -> bytes:
        return bytes(self.transport.sent)

    def _is_upgraded(self) -> bool:
        self._answer, end, _ = self.raw().partition(b"\r\n\r\n")
        assert self._answer.startswith(b"HTTP/1.1 101")
        return bool(end)

    def wrap(self, piece: bytes) -> bytes:
        if self.is_deflated:
            return frame(BINARY, deflate(piece), reserved=4)
        return frame(BINARY, piece)

    def heard(self) -> bytes:
        frames = self.raw()[len(self._answer) + 4 :]
        return decode_all(frames, require_mask=False, compression=True, limit=MIB).data


class FramedInside(Framed):
    """WebSocket: one frame, cut."""

    is_cut_inside = True


class Deflated(Framed):
    """WebSocket with compression."""

    extension = (
        "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover;"
        " client_no_context_takeover\r\n"
    )
    is_deflated = True


class DeflatedInside(Deflated):
    """One compressed message, cut."""

    is_cut_inside = True


class FramedSecured(Framed):
    """WebSocket over TLS."""

    is_secured = True

    def protocol(self) -> Any:
        settings = self.served.papers.settings(0)
        return late_pipe(self._link(), self.served.app.log, REMOTE, settings)

    async def begin(self) -> None:
        self._plain = bytearray()
        await Secured.begin(self)  # type: ignore[arg-type]
        await super().begin()

    _taken = Secured._taken

    def send_raw(self, data: bytes) -> None:
        self.transport.receive(self.peer.encrypt(data))

    def raw(self) -> bytes:
        self._plain += self.peer.decrypt(Secured._taken(self))[0]  # type: ignore[arg-type]
        return bytes(self._plain)

    def wrap(self, piece: bytes) -> bytes:
        return self.peer.encrypt(super().wrap(piece))

    peer: Peer


class Leaf(Way):
    """Another server."""

    side = "leaf"

    def protocol(self) -> Any:
        leaves = self.served.broker.leaves
        assert leaves is not None
        leaves.options = replace(leaves.options, compression=CompressionOptions(mode=self.mode))
        return StreamLink(self.turns, partial(leaves.accepted, REMOTE))

    mode = "off"


class LeafSecured(Secured):
    """Another server over TLS."""

    side = "leaf"

    def open_session(self, **settings: Any) -> Session:
        leaves = self.served.broker.leaves
        assert leaves is not None
        leaves.options = replace(leaves.options, compression=CompressionOptions(mode="off"))
        return leaves.accepted(REMOTE)


class LeafFramed(Framed):
    """Another server over WebSocket."""

    side = "leaf"
    path = "/leafnode"


class LeafPacked(Leaf):
    """Another server with compression: each part is a chunk."""

    mode = "s2_fast"

    async def begin(self) -> None:
        self.transport.receive(b'INFO {"compression":"%s"}\r\n' % self.mode.encode())
        await until(lambda: S2_BEGIN in self.transport.sent)
        self._first = bytes(self.transport.sent[: self.transport.sent.index(S2_BEGIN)])
        self._is_begun = False

    def wrap(self, piece: bytes) -> bytes:
        begin = b"" if self._is_begun else S2_BEGIN
        self._is_begun = True
        return begin + s2_chunk(piece)

    def heard(self) -> bytes:
        decoder = Decompressor(MIB)
        return self._first + decoder.feed(bytes(self.transport.sent)[len(self._first) :])


class LeafPackedInside(LeafPacked):
    """One chunk, cut."""

    is_cut_inside = True


class LeafPackedTogether(LeafPacked):
    """The line that begins compression and what follows it come at once, cut."""

    head = b'INFO {"compression":"s2_fast"}\r\n'
    is_cut_inside = True

    async def begin(self) -> None:
        await until(lambda: self.transport.sent.endswith(b"\r\n"))
        self._first = bytes(self.transport.sent)

    def wrap(self, piece: bytes) -> bytes:
        return self.head + S2_BEGIN + s2_chunk(piece.removeprefix(self.head))


class LeafBetter(LeafPacked):
    """The other strengths."""

    mode = "s2_better"


class LeafBest(LeafPacked):
    mode = "s2_best"


class LeafAuto(LeafPacked):
    mode = "s2_auto"


WAYS: dict[str, type[Way]] = {
    "plain": Plain,
    "proxy": Proxied,
    "tls": Secured,
    "tls_first": SecuredFirst,
    "websocket": Framed,
    "websocket_inside": FramedInside,
    "websocket_deflated": Deflated,
    "websocket_deflated_inside": DeflatedInside,
    "wss": FramedSecured,
    "leaf": Leaf,
    "leaf_tls": LeafSecured,
    "leaf_websocket": LeafFramed,
    "leaf_s2_fast": LeafPacked,
    "leaf_s2_inside": LeafPackedInside,
    "leaf_s2_together": LeafPackedTogether,
    "leaf_s2_better": LeafBetter,
    "leaf_s2_best": LeafBest,
    "leaf_s2_auto": LeafAuto,
}
# The certificate of the client counts on these alone.
CERTIFIED = ("tls", "tls_first", "wss")


# ---------------------------------------------------------------- one login


@dataclass(frozen=True)
class Outcome:
    """The outcome of a login. Lines of a leaf connection are sorted: interest is announced at any
    time.
    """

    said: tuple[bytes, ...]
    is_open: bool
    user: str
    account: str
    published: int
    subscribed: int
    left_bytes: int


async def log_in(
    served: Served, way: type[Way], choose: Callable[[int], Sequence[int]], *, is_right: bool = True
) -> tuple[Outcome, int]:
    """Log in, with the bytes cut where `choose` wants of so many; gives what came of it, and how
    many bytes there were.
    """
    served.forget()
    known = {*served.broker.sessions, *served.broker.leaf_sessions}
    connection = way(served)
    await connection.begin()
    await until(lambda: b"\r\n" in connection.heard())
    info = connection.heard()
    fields = served.gate.fields(json.loads(first_json(info)).get("nonce", ""), is_right)
    session = session_besides(served, known)
    data = b"CONNECT " + json.dumps(ways_fields(way) | fields).encode() + b"\r\n"
    data += LEAF_SCRIPT if way.side == "leaf" else CLIENT_SCRIPT
    size = len(way.head + data)
    for piece in connection.pieces(data, choose(size)):
        connection.transport.receive(piece)
        await idle()
    begin = len(info) if way is not LeafPackedTogether else info.index(b"\r\n") + 2
    wanted = (b"PONG\r\n", b"LS+ $LDS") if way.side == "leaf" else (b"PONG\r\n",)

    def is_over() -> bool:
        heard = connection.heard()[begin:]
        return connection.transport.is_closed or all(one in heard for one in wanted)

    await until(is_over)
    await idle()
    said = connection.heard()[begin:].replace(b"PING\r\n", b"")
    lines = _OF_ONE_CONNECTION.sub(b"", said).split(b"\r\n")
    outcome = Outcome(
        tuple(sorted(lines) if way.side == "leaf" else lines),
        not session.is_closed,
        session.user,
        session.account.name,
        session.in_msgs,
        session.subscription_count,
        session.input_pending_bytes,
    )
    connection.transport.abort()
    await until(lambda: connection.transport.is_lost)
    assert served.broker.faults.total == 0, served.app.log.lines  # type: ignore[attr-defined]
    return outcome, size


def ways_fields(way: type[Way]) -> dict[str, Any]:
    if way.side == "leaf":
        return {"version": "2.15.1", "name": "other", "headers": True, "protocol": 1}
    return {"verbose": False, "pedantic": False}


def first_json(info: bytes) -> bytes:
    """The newest INFO: a hub that compresses says it twice."""
    return info[: info.rindex(b"\r\n")].rpartition(b"INFO ")[2].partition(b"\r\n")[0]


def session_besides(served: Served, known: set[int]) -> Session:
    sessions = {**served.broker.sessions, **served.broker.leaf_sessions}
    (cid,) = sessions.keys() - known
    return sessions[cid]


async def idle() -> None:
    """Let the server do what it has to do at once."""
    for _ in range(3):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SECONDS
    while not condition():
        assert loop.time() < deadline, "it never happened"
        await asyncio.sleep(0)


__all__ = ["CERTIFIED", "GATES", "WAYS", "Gatekeeping", "Outcome", "Papers", "log_in", "served"]
