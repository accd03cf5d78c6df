"""Protocol bytes inside WebSocket frames, for the link of one connection.

Owns the two codecs. They run what was decoded in the link's session, which is like any other: it
has the same bytes, gate and limits. It does not know which side requested the upgrade.
"""

from __future__ import annotations

from tradewind.broker.contracts import label
from tradewind.broker.session import Session
from tradewind.server.links.link_core import SessionLink
from tradewind.wire import ops
from tradewind.wire.websocket import (
    OPCODE_CLOSE,
    OPCODE_PING,
    OPCODE_PONG,
    FrameDecoder,
    FrameEncoder,
    WebsocketError,
    close_code_for,
)

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
UNAUTHENTICATED_MESSAGE_BYTES_MAX = 64 * 1024


class WebsocketFraming:
    """The `Framing` of a link over WebSocket."""

    def __init__(self, link: SessionLink, decoder: FrameDecoder, encoder: FrameEncoder) -> None:
        self._link = link
        self._decoder = decoder
        self._encoder = encoder
        self._close_sent = False

    @property
    def has_input(self) -> bool:
        """Whether decompressed input is still to be run: a compressed flood is run in slices."""
        return self._decoder.pending

    def run(self, data: bytes | memoryview) -> None:
        """Decode and run frames; without data, run the next slice of earlier ones."""
        session = self._link.session
        if session is None or session.is_closed or (session.blocked and not data):
            return
        try:
            self._run(session, data)
        except Exception as error:  # a bug may end this connection, but no other
            self._link.give_up(error)

    def _run(self, session: Session, data: bytes | memoryview) -> None:
        link, decoder = self._link, self._decoder
        decoder.max_message_bytes = self._message_bytes_max(session)
        try:
            if decoder.is_compressed:
                payload = decoder.feed(data)
                if payload:
                    session.feed(payload, link.turns.broker.now_ns())
            else:
                self._run_plain(session, data)
            self._answer_control(session)
        except WebsocketError as error:
            link.turns.broker.log.error(f"{label(session)} - {error}")
            frame = self._encoder.encode_close(error.close_code, str(error))
            self._close_with(session, frame, ops.CLOSED_PROTOCOL)
        if decoder.pending and not session.is_closed:
            session.touch()  # at the end of the turn, the link continues
        link.data_done()

    def _run_plain(self, session: Session, data: bytes | memoryview) -> None:
        """Decode into the session's read area, as much at once as it offers."""
        rest = memoryview(data)
        while True:
            area = session.read_buffer()
            size = self._decoder.feed_into(rest[: len(area)], area)
            rest = rest[len(area) :]
            if size:
                session.received(size, self._link.turns.broker.now_ns())
            if not rest or session.is_closed:
                return

    def _message_bytes_max(self, session: Session) -> int:
        """The size that one message may inflate to: small until the peer has logged in."""
        if session.must_authenticate:
            return UNAUTHENTICATED_MESSAGE_BYTES_MAX
        return min(8 * self._link.turns.broker.options.max_payload_bytes, MESSAGE_BYTES_MAX)

    def _answer_control(self, session: Session) -> None:
        for opcode, payload in self._decoder.take_control():
            # A peer that does not read gets no PONGs: otherwise they would pile up without a limit.
            if opcode == OPCODE_PING and not self._link.write_paused:
                self._write(self._encoder.encode_control(OPCODE_PONG, payload))
            elif opcode == OPCODE_CLOSE:
                frame = self._encoder.encode_control(OPCODE_CLOSE, payload)
                self._close_with(session, frame, ops.CLOSED_BY_CLIENT)

    def _close_with(self, session: Session, frame: bytes, reason: str) -> None:
        """Send a close frame after the queued output, then end the session."""
        self._link.flush()
        self._write(frame)
        self._close_sent = True
        session.close(reason)

    def _write(self, frame: bytes) -> None:
        assert self._link.transport is not None
        self._link.transport.write(frame)

    def head(self, size: int) -> bytes | None:
        """The head of a single frame of this size; None if one is not enough."""
        return self._encoder.frame_head(size)

    def encode(self, data: bytes) -> bytes:
        """The protocol bytes as frames."""
        return self._encoder.encode(data)

    def farewell(self, reason: str) -> bytes:
        """The close frame, unless one has been sent already."""
        if self._close_sent:
            return b""
        return self._encoder.encode_close(close_code_for(reason), reason)
