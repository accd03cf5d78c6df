"""Entry points of connections: protocol lines, frames, heads of HTTP, greetings."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import h11
from entry_points import EntryPoint, Frame, register

from tradewind.broker.connect import ConnectRequest, parse_connect
from tradewind.broker.leaf_handshake import parse_info, parse_leaf_connect
from tradewind.client.core.addresses import ServerPool, parse_address
from tradewind.client.core.connection_owners import WireOwner
from tradewind.client.core.first_lines import END_OF_HEAD, FirstLines
from tradewind.client.core.login import decode_info
from tradewind.client.core.protocol import ClientWire, MessageInbox
from tradewind.client.core.upgrade import RESPONSE_BYTES_MAX, Upgrade
from tradewind.client.errors import ClientError, error_from_wire
from tradewind.errors import ProtocolError, TradewindError
from tradewind.monitor.http import HEADER_BYTES_MAX
from tradewind.options import WebsocketOptions
from tradewind.server.auth.cookies import parse_cookies
from tradewind.server.leafnodes.leaf_greeting import INFO_BYTES_MAX
from tradewind.server.leafnodes.leaf_proxy import ANSWER_BYTES_MAX
from tradewind.server.links.proxy_header import ADDRESSES_BYTES_MAX, read_header
from tradewind.server.websocket.websocket_handshake import REQUEST_BYTES_MAX, Handshake
from tradewind.wire.leaf_parser import LeafParser
from tradewind.wire.parser import Parser
from tradewind.wire.websocket import FrameDecoder
from websocket_frames import BINARY, PING, deflate, frame, request

# What is read from a socket at a time.
READ_BYTES = 64 * 1024
CONTROL_LINE_BYTES = 4096
JSON_ATOMS = (
    b'{"a":',
    b'"a":1,',
    b'"',
    b'\\"',
    b"\\u0000",
    b"\\ud800",
    b"[",
    b"1,",
    b"1e9",
    b"null",
)
JSON_FRAMES: tuple[Frame, ...] = ((b"", b""), (b'{"name":"', b'"}'), (b'{"a":[', b"]}"))


def whole(make: Callable[[], Callable[[bytes], object]]) -> Callable[[bytes], object]:
    """Everything in one piece, to a new one."""
    return lambda data: make()(data)


def in_pieces(
    make: Callable[[], Callable[[bytes], object]], size: int
) -> Callable[[bytes], object]:
    """Everything in pieces of this size, as long as there is no answer."""

    def read(data: bytes) -> None:
        feed = make()
        for start in range(0, len(data), size):
            if feed(data[start : start + size]) is not None:
                break

    return read


def clients() -> Callable[[bytes], None]:
    parser = Parser(CONTROL_LINE_BYTES)

    def feed(data: bytes) -> None:
        if parser.fault is None:
            parser.feed(data)

    return feed


def leaves() -> Callable[[bytes], None]:
    parser = LeafParser()
    return lambda data: (parser.feed(data), None)[1]


def frames(*, compression: bool) -> Callable[[bytes], None]:
    decoder = FrameDecoder(READ_BYTES, require_mask=True, compression=compression)

    def feed(data: bytes) -> None:
        decoder.feed(data)
        while decoder.pending:
            decoder.feed(b"")
        decoder.take_control()

    return feed


def upgrades() -> Callable[[bytes], object]:
    options = WebsocketOptions(same_origin=True, compression=True)
    return Handshake(options, tls=False).feed


def upgrade_answers() -> Callable[[bytes], object]:
    return Upgrade("h:1", "/", {}).feed


def first_lines(end: bytes, size: int) -> Callable[[], Callable[[bytes], object]]:
    return lambda: FirstLines("it", end, size).feed


def monitoring_heads() -> Callable[[bytes], object]:
    """The library that reads the requests for pages, with our limit."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)

    def feed(data: bytes) -> object:
        connection.receive_data(data)
        event = connection.next_event()
        return None if event is h11.NEED_DATA else event

    return feed


CLIENT_LINES = (
    b"PING\r\n",
    b"PUB a 0\r\n\r\n",
    b"SUB a.%d 1\r\n",
    b"CONNECT {}\r\n",
    b"HPUB a 12 12\r\n",
)
register(
    EntryPoint(
        "client protocol",
        ("wire.parser",),
        READ_BYTES,
        whole(clients),
        (*CLIENT_LINES, b"PUB ", b"SUB ", b"UNSUB ", b"NATS/1.0\r\n", b"\r\n", b"1", b"a."),
        (b"CONNECT {}\r\nPING\r\nPUB a.b c 2\r\nhi\r\n",),
        (
            (b"", b""),
            (b"PUB ", b" 0\r\n\r\n"),
            (b"SUB ", b" 1\r\n"),
            (b"HPUB a 4000 4000\r\n", b""),
        ),
        refusals=(ProtocolError,),
    )
)
register(
    EntryPoint(
        "client protocol, byte by byte",
        ("wire.parser",),
        CONTROL_LINE_BYTES * 4,
        in_pieces(clients, 1),
        CLIENT_LINES,
        (b"PUB a.b c 2\r\nhi\r\n",),
        ((b"", b""), (b"PUB a 16000\r\n", b"")),
        refusals=(ProtocolError,),
        piecewise=True,
    )
)
LEAF_LINES = (
    b"LS+ a.%d\r\n",
    b"LS- a\r\n",
    b"LMSG a 0\r\n\r\n",
    b"LMSG a + r q 0\r\n\r\n",
    b"PING\r\n",
)
register(
    EntryPoint(
        "leaf protocol",
        ("wire.leaf_parser",),
        READ_BYTES,
        whole(leaves),
        (*LEAF_LINES, b"INFO {}\r\n", b"HMSG a 12 12\r\n", b"a ", b"\r\n"),
        (b"LS+ a.b q 1\r\nLMSG a 2\r\nhi\r\nPING\r\n",),
        ((b"", b""), (b"LS+ ", b"\r\n"), (b"LMSG a | ", b" 0\r\n\r\n")),
        refusals=(TradewindError, ValueError),
    )
)
FRAMES = (
    frame(BINARY, b"PING\r\n"),
    frame(BINARY, b""),
    frame(PING, b""),
    frame(0, b"", final=False),
    frame(BINARY, b"a", final=False),
)
register(
    EntryPoint(
        "WebSocket frames",
        ("wire.websocket",),
        READ_BYTES,
        whole(lambda: frames(compression=False)),
        (*FRAMES, b"\x82", b"\x80\x80"),
        (frame(BINARY, b"PING\r\n"),),
        ((b"", b""), (FRAMES[4], b"")),
        refusals=(ProtocolError,),
    )
)
register(
    EntryPoint(
        "WebSocket frames, compressed",
        ("wire.websocket", "server.websocket.websocket_framing"),
        READ_BYTES,
        whole(lambda: frames(compression=True)),
        (
            frame(BINARY, deflate(b"a" * 1000), reserved=4),
            frame(BINARY, deflate(b""), reserved=4),
            frame(BINARY, deflate(bytes(range(256))), reserved=4),
            *FRAMES,
        ),
        (frame(BINARY, deflate(b"PING\r\n"), reserved=4),),
        refusals=(ProtocolError,),
    )
)
HEAD_ATOMS = (
    b"a: b\r\n",
    b"a:\r\n ",
    b"\r\n b",
    b"Host: h\r\n",
    b"Cookie: a=b\r\n",
    b"Origin: http://[\r\n",
    b"X-Forwarded-For: 1.1\r\n",
    b"http://",
    b"%41",
    b"a=b;",
    b"permessage-deflate,",
    b"::",
)
HEAD_EXAMPLES = (request(), request(path="http://h/a?b", Origin="http://h", Cookie="a=b; c=d"))
HEAD_FRAMES: tuple[Frame, ...] = (
    (b"", b""),
    (b"GET /", b" HTTP/1.1\r\nHost: h\r\n\r\n"),
    (b"GET x://", b" HTTP/1.1\r\nHost: h\r\n\r\n"),
    *(
        (request()[:-2] + name + b": ", b"\r\n\r\n")
        for name in (b"Origin", b"Cookie", b"X-Forwarded-For", b"Sec-WebSocket-Extensions", b"X")
    ),
)
register(
    EntryPoint(
        "head of a WebSocket request",
        ("server.websocket.websocket_handshake", "server.auth.cookies"),
        REQUEST_BYTES_MAX,
        whole(upgrades),
        HEAD_ATOMS,
        HEAD_EXAMPLES,
        HEAD_FRAMES,
        seconds_max=0.1,
    )
)
register(
    EntryPoint(
        "head of a WebSocket request, byte by byte",
        ("server.websocket.websocket_handshake",),
        REQUEST_BYTES_MAX,
        in_pieces(upgrades, 1),
        HEAD_ATOMS[:4],
        HEAD_EXAMPLES[:1],
        HEAD_FRAMES[:2],
        seconds_max=0.5,
        piecewise=True,
    )
)
register(
    EntryPoint(
        "cookies",
        ("server.auth.cookies",),
        REQUEST_BYTES_MAX,
        lambda data: parse_cookies([data.decode("latin-1")]),
        (b"a=b;", b'a="', b"=;", b"; ", b'"'),
        (b'a=b; c="d"',),
    )
)
register(
    EntryPoint(
        "answer to an upgrade, byte by byte",
        ("client.core.upgrade", "client.core.first_lines"),
        RESPONSE_BYTES_MAX,
        in_pieces(upgrade_answers, 1),
        (b"a: b\r\n", b"\r\n", b"\r"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n",),
        refusals=(ClientError, ProtocolError),
        piecewise=True,
    )
)
for what, end, size in (
    ("answer of a proxy", END_OF_HEAD, ANSWER_BYTES_MAX),
    ("first line of a hub", b"\n", INFO_BYTES_MAX),
):
    register(
        EntryPoint(
            f"{what}, byte by byte",
            (
                "client.core.first_lines",
                "server.leafnodes.leaf_proxy",
                "server.leafnodes.leaf_greeting",
            ),
            size,
            in_pieces(first_lines(end, size), 1),
            (b"\r\n", b"\r", b"a: b\r\n"),
            (b"HTTP/1.1 200 OK\r\n\r\n",),
            refusals=(ProtocolError,),
            piecewise=True,
        )
    )
for name, size in (("16 KiB", HEADER_BYTES_MAX), ("16 bytes", 16)):
    register(
        EntryPoint(
            f"head of a request for a page, in pieces of {name}",
            ("monitor.http",),
            HEADER_BYTES_MAX,
            in_pieces(monitoring_heads, size),
            (b"a: b\r\n", b"\r\n b", b"a=b&", b"%41", b"a:", b"\r"),
            (b"GET /varz?a=b HTTP/1.1\r\nHost: h\r\n\r\n",),
            (
                (b"", b""),
                (b"GET /", b" HTTP/1.1\r\nHost: h\r\n\r\n"),
                (b"GET / HTTP/1.1\r\nX: ", b""),
            ),
            refusals=(h11.RemoteProtocolError,),
            piecewise=size < HEADER_BYTES_MAX,
        )
    )
register(
    EntryPoint(
        "CONNECT",
        ("broker.connect",),
        CONTROL_LINE_BYTES * 16,
        lambda data: parse_connect(data, ConnectRequest()),
        JSON_ATOMS,
        (b'{"verbose":false,"user":"a","pass":"b","name":"\\u00e4"}',),
        JSON_FRAMES,
        refusals=(ProtocolError,),
    )
)
register(
    EntryPoint(
        "CONNECT and INFO of a leaf",
        ("broker.leaf_handshake",),
        READ_BYTES,
        lambda data: (read_or_none(parse_info, data), parse_leaf_connect(data)),
        (*JSON_ATOMS, b'"a.b.c",', b"eyJhIjoxfQ."),
        (b'{"name":"a","cluster":"c","jwt":"a.b.c","tls_required":true}',),
        JSON_FRAMES,
        refusals=(ProtocolError,),
    )
)


def read_or_none(read: Callable[[bytes], object], data: bytes) -> object:
    try:
        return read(data)
    except ProtocolError:
        return None


def discover(data: bytes) -> None:
    info = decode_info(data)
    address = parse_address("nats://h:1")
    ServerPool([address], randomize=False).discovered(info.connect_urls, address, secure=False)


register(
    EntryPoint(
        "INFO, in a client",
        ("client.core.login", "client.core.addresses"),
        1 << 20,
        discover,
        (*JSON_ATOMS, b'"h%d:1",', b'"nats://",', b'"[::1]:1",', b"@"),
        (b'{"server_id":"a","connect_urls":["a:1","[::1]:2"],"max_payload":9}',),
        (*JSON_FRAMES, (b'{"connect_urls":[', b'"h:1"]}'), (b'{"connect_urls":["', b'"]}')),
        refusals=(ProtocolError, ClientError),
        seconds_max=4.0,
    )
)


class QuietOwner(WireOwner):
    """A connection that does nothing about what its server says."""

    def __init__(self) -> None:
        self._wire = ClientWire(self)
        self._wire.set_state(0)

    def _on_control(self, kind: str, argument: bytes) -> None:
        pass

    def _on_slow_consumer(self, inbox: MessageInbox) -> None:
        pass

    def _on_handler_error(self, error: Exception) -> None:
        raise error

    def _schedule_flush(self) -> None:
        pass

    def _run_for_user(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        raise AssertionError("nobody uses it")

    async def wait_for_room(self) -> None:
        raise AssertionError("nothing is sent")

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout: float | None,  # noqa: ASYNC109 - as that of a connection
    ) -> Any:
        raise AssertionError("there is no network")

    def read(self, data: bytes) -> None:
        """As from a socket."""
        self._wire.feed(data)


register(
    EntryPoint(
        "lines of a server, in a client",
        ("client.core.protocol",),
        READ_BYTES,
        lambda data: QuietOwner().read(data),
        (
            b"PING\r\n",
            b"MSG a 1 0\r\n\r\n",
            b"HMSG a 1 12 12\r\n",
            b"+OK\r\n",
            b"-ERR 'a'\r\n",
            b"INFO {}\r\n",
        ),
        (b"MSG a.b 1 2\r\nhi\r\n",),
        ((b"", b""), (b"MSG ", b" 1 0\r\n\r\n"), (b"INFO ", b"\r\n"), (b"-ERR '", b"'\r\n")),
        refusals=(ProtocolError,),
    )
)
register(
    EntryPoint(
        "error of a server, in a client",
        ("client.errors", "client.core.lifecycle"),
        READ_BYTES,
        lambda data: error_from_wire(data.decode("latin-1")),
        (b"'", b'"', b"Permissions Violation for Publish to ", b"Permissions Violation"),
        (b"'Permissions Violation for Publish to \"a.b\"'",),
    )
)
register(
    EntryPoint(
        "PROXY protocol",
        ("server.links.proxy_header",),
        ADDRESSES_BYTES_MAX,
        read_header,
        (b"PROXY ", b"TCP4 ", b"1.1.1.1 ", b"\r\n", b"::", b"\r\n\r\n\x00\r\nQUIT\n"),
        (b"PROXY TCP4 9.8.7.6 1.2.3.4 4000 4222\r\n",),
        ((b"", b""), (b"PROXY ", b"\r\n"), (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x0f\xf0", b"")),
        refusals=(ProtocolError,),
    )
)
