"""One server-side TLS connection in memory: ciphertext in, plaintext out, and back.

Owns an OpenSSL connection and its two memory buffers. It never opens a socket and never looks at
the protocol inside; `tls_pipe` puts it between a transport and a link. Data passes through in
slices, so that a connection does not retain large buffers after a burst. The module is compiled,
with the types in tls_codec.pxd: it runs for every record.
"""

from __future__ import annotations

import ssl
from contextlib import suppress

from tradewind.broker.contracts import TlsFacts
from tradewind.server.tls.tls import (
    ServerContext,
    peer_certificate,
    tls_cipher_name,
    tls_version_name,
)

# OpenSSL's memory buffers never shrink: no more than this is put into them at once.
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
    """The codec of one connection; `is_over` becomes True when the peer has closed TLS (`fault` is
    None) or violated it (`fault`).
    """

    def __init__(self, context: ServerContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._context = context
        self.connection, self._shell = context.open(self._incoming, self._outgoing)
        self._given: memoryview | bytes = b""
        self._given_bytes = self._taken_bytes = 0
        self.is_over = False
        self.fault: ssl.SSLError | None = None

    def feed(self, ciphertext: memoryview | bytes) -> None:
        """Take bytes from the socket; bytes that are not decrypted at once must be copied by
        `keep`.
        """
        self._given = ciphertext
        self._given_bytes = len(ciphertext)
        self._taken_bytes = 0

    def keep(self) -> None:
        """Copy the rest of the input: the memory that was given will be reused."""
        while self._take_slice():
            pass
        self._given = b""

    def _take_slice(self) -> bool:
        if self._taken_bytes == self._given_bytes:
            return False
        end = min(self._taken_bytes + SLICE_BYTES, self._given_bytes)
        self._incoming.write(self._given[self._taken_bytes : end])
        self._taken_bytes = end
        return True

    def has_input(self) -> bool:
        """Whether decrypting may yield data; False if there is at most part of a record."""
        return (
            self._taken_bytes < self._given_bytes
            or self._incoming.pending > 0
            or self.connection.pending() > 0
        )

    @property
    def output_bytes(self) -> int:
        """The number of bytes that `take_output` would return."""
        return self._outgoing.pending

    def take_output(self) -> bytes:
        """The ciphertext for the socket: handshake messages, data, alerts."""
        return self._outgoing.read()

    def handshake(self) -> bool:
        """Continue the handshake; True once it is complete, ssl.SSLError if it failed."""
        self.keep()
        try:
            self.connection.do_handshake()
        except ssl.SSLWantReadError:
            return False
        if self._shell is not None:
            self._context.give_back(self.connection, self._shell)
            self._shell = None
        return True

    def facts(self) -> TlsFacts:
        """The result of the handshake."""
        return tls_facts(self.connection)

    def decrypt_into(self, view: memoryview) -> int:
        """Fill `view` as far as there is input; returns the number of plaintext bytes."""
        filled, size = 0, len(view)
        read, incoming, connection = self.connection.read, self._incoming, self.connection
        while filled < size:
            if not incoming.pending and not connection.pending() and not self._take_slice():
                break
            try:
                # A call returns one record at most; the typeshed has no overload for a buffer.
                count: int = read(size - filled, view[filled:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                if self._take_slice():
                    continue
                break
            except ssl.SSLError as error:
                self.is_over = True
                self.fault = error
                break
            if not count:
                self.is_over = True
                break
            filled += count
        return filled

    def encrypt(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The ciphertext of `data`, in pieces."""
        view, size, done = memoryview(data), len(data), 0
        pieces: list[bytes] = []
        while done < size:
            done += self.connection.write(view[done : done + SLICE_BYTES])
            pieces.append(self._outgoing.read())
        return pieces

    def close_notify(self) -> bytes:
        """The last ciphertext of an orderly end, without waiting for the peer's own
        close_notify.
        """
        # OpenSSL waits for the peer's part, or stumbles over input that is no longer read; our part
        # is in the buffer all the same.
        with suppress(ssl.SSLError):
            self.connection.unwrap()
        return self._outgoing.read()


def tls_facts(connection: ssl.SSLObject) -> TlsFacts:
    """The result of this connection's handshake."""
    return TlsFacts(
        tls_version_name(connection), tls_cipher_name(connection), peer_certificate(connection)
    )


def tls_reason(error: BaseException | None) -> str:
    """Why a handshake failed, for the log; None stands for the end of the input."""
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
