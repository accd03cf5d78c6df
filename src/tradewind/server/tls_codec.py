"""One server-side TLS connection in memory: ciphertext in, plaintext out, and back.

Owns an OpenSSL connection and its two memory buffers. It never opens a socket and never looks at
the protocol inside; `tls_pipe` puts it between a transport and a link. Data passes through in
slices, so that a connection does not keep large buffers after a burst.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress

from tradewind.broker.contracts import TlsFacts
from tradewind.server.tls import (
    ServerContext,
    peer_certificate,
    tls_cipher_name,
    tls_version_name,
)

# OpenSSL's memory buffers never shrink: more than this is not put into them at once.
SLICE_BYTES = 64 * 1024
NOT_TLS = "first record does not look like a TLS handshake"

_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "client didn't provide a certificate",
    "WRONG_VERSION_NUMBER": NOT_TLS,
    "HTTP_REQUEST": NOT_TLS,
    "UNSUPPORTED_PROTOCOL": "client offers no TLS version that is allowed here",
    "NO_SHARED_CIPHER": "client and server have no cipher suite in common",
}
_ALERT = "_ALERT_"


class TlsCodec:
    """`is_over` turns true when the peer said goodbye (`fault` is None) or broke TLS (`fault`)."""

    def __init__(self, context: ServerContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._context = context
        self.connection, self._shell = context.open(self._incoming, self._outgoing)
        self.is_over = False
        self.fault: ssl.SSLError | None = None

    def feed(self, ciphertext: memoryview) -> None:
        """Take what the socket gave."""
        self._incoming.write(ciphertext)

    @property
    def has_input(self) -> bool:
        """Whether decrypting may give anything; false when at most part of a record is there."""
        return bool(self._incoming.pending or self.connection.pending())

    @property
    def output_bytes(self) -> int:
        """How much `take_output` would give."""
        return self._outgoing.pending

    def take_output(self) -> bytes:
        """Ciphertext for the socket: handshake messages, answers, alerts."""
        return self._outgoing.read()

    def handshake(self) -> bool:
        """Go on with the handshake; true when it is complete, ssl.SSLError when it failed."""
        try:
            self.connection.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._context.give_back(self.connection, self._shell)
        del self._shell
        return True

    def facts(self) -> TlsFacts:
        """What the handshake agreed on."""
        return tls_facts(self.connection)

    def decrypt_into(self, view: memoryview) -> int:
        """Fill `view` as far as there is input; returns the number of plaintext bytes."""
        filled, size = 0, len(view)
        read, incoming, connection = self.connection.read, self._incoming, self.connection
        try:
            while filled < size and (incoming.pending or connection.pending()):
                # A call gives one record at most; the typeshed has no overload for a buffer.
                count: int = read(size - filled, view[filled:])  # type: ignore[assignment]
                if not count:
                    self.is_over = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.is_over = True
            self.fault = error
        return filled

    def encrypt(self, data: bytes) -> Iterator[bytes]:
        """Ciphertext for `data`, slice by slice."""
        view = memoryview(data)
        while view:
            written = self.connection.write(view[:SLICE_BYTES])
            view = view[written:]
            yield self._outgoing.read()

    def close_notify(self) -> bytes:
        """The last ciphertext of an orderly end; the peer's own goodbye is not waited for."""
        # It wants the peer's answer, or stumbles over input that nobody reads any more; our part is
        # in the buffer all the same.
        with suppress(ssl.SSLError):
            self.connection.unwrap()
        return self._outgoing.read()


def tls_facts(connection: ssl.SSLObject) -> TlsFacts:
    """What the handshake of this connection agreed on."""
    return TlsFacts(
        tls_version_name(connection), tls_cipher_name(connection), peer_certificate(connection)
    )


def tls_reason(error: BaseException | None) -> str:
    """Why a handshake failed, for the log; None is the end of the input."""
    if error is None:
        return "EOF"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"failed to verify certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        if error.reason in _REASONS:
            return _REASONS[error.reason]
        _, is_alert, alert = error.reason.partition(_ALERT)
        text = (alert if is_alert else error.reason).lower().replace("_", " ")
        return f"client sent alert: {text}" if is_alert else text
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
