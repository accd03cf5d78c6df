"""Certificates for a server, and clients over TLS and WebSocket in processes of their own.

Owns the sockets of those clients. Only the processor time of the server is measured, so the clients
are Python: `visit` connects over and over, `receive` reads what a subscription gets. Knows nothing
of workloads.
"""

import base64
import datetime
import ipaddress
import socket
import ssl
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

CONNECT = b'CONNECT {"verbose":false}\r\n'
READ_BYTES = 1 << 20
ANSWER_S_MAX = 60.0
THREADS = 16
MASK = b"\x37\xfa\x21\x3d"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def write_certificate(folder: Path, kind: str) -> None:
    """`ec.pem` and `ec.key` (P-256), or `rsa.pem` and `rsa.key` (2048 bits)."""
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    if kind == "rsa":
        key = rsa.generate_private_key(65537, 2048)
    else:
        key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / f"{kind}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / f"{kind}.key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )


def client_context(version: str) -> ssl.SSLContext:
    """A client that trusts everybody and speaks TLS "1.2", with the usual suite, or "1.3"."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if version == "1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256")
    return context


def mask(data: bytes) -> bytes:
    """One masked frame."""
    size = len(data)
    head = b"\x82\xfe" + size.to_bytes(2) if 125 < size < 65536 else b"\x82\xff" + size.to_bytes(8)
    if size <= 125:
        head = bytes((0x82, 0x80 | size))
    pattern = int.from_bytes((MASK * (size // 4 + 1))[:size])
    return head + MASK + (int.from_bytes(data) ^ pattern).to_bytes(size)


class Peer:
    """A connection that has said CONNECT; `way` is "tls" (with a version) or "websocket"."""

    def __init__(self, way: str, port: int, session: ssl.SSLSession | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket: socket.socket = plain
        self.is_framed = way == "websocket"
        if self.is_framed:
            plain.sendall(UPGRADE)
            self._read_until(b"\r\n\r\n")
        else:
            self._read_until(b"\r\n")
            context = client_context(way.removeprefix("tls"))
            self.socket = context.wrap_socket(plain, session=session)
        self.say(CONNECT)

    def _read_until(self, end: bytes) -> None:
        data = b""
        while end not in data:
            piece = self.socket.recv(65536)
            if not piece:
                raise OSError("the server closed the connection")
            data = data[-len(end) :] + piece

    def say(self, data: bytes) -> None:
        """Send, and wait until the server has run it."""
        data += b"PING\r\n"
        self.socket.sendall(mask(data) if self.is_framed else data)
        self._read_until(b"PONG\r\n")


def visit(way: str, port: int, count: int, control: Connection) -> None:
    """Connect, log in and leave, `count` times in all, many at once; then tell."""
    left = [count]

    def run() -> None:
        while left[0] > 0:
            left[0] -= 1
            Peer(way, port).socket.close()

    control.send("ready")
    control.recv()
    threads = [Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    control.send("done")


def receive(way: str, port: int, total_bytes: int, control: Connection) -> None:
    """Subscribe to `a`, and tell when at least so many bytes have come."""
    peer = Peer(way, port)
    peer.say(b"SUB a 1\r\n")
    control.send("ready")
    area = bytearray(READ_BYTES)
    while total_bytes > 0:
        size = peer.socket.recv_into(area)
        if not size:
            control.send("the server closed the connection")
            return
        total_bytes -= size
    control.send("done")
