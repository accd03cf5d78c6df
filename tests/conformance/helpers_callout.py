"""A service of an auth callout, step by step: it reads a question, and says what a test wants."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

from harness import RawClient, ServerProcess
from jwt_kit import login, now
from tradewind import nkeys
from tradewind.jwt import claims as kinds
from tradewind.jwt.codec import decode_as, encode

ISSUER = nkeys.KeyPair(nkeys.ACCOUNT, b"\x21" * 32)
STRANGE_ISSUER = nkeys.KeyPair(nkeys.ACCOUNT, b"\x22" * 32)
CURVE = nkeys.CurveKeyPair(b"\x23" * 32)
SUBJECT = "$SYS.REQ.USER.AUTH"
REFUSED = "-ERR 'Authorization Violation'"


def callout_configuration(more: str = "", callout: str = "", timeout: float = 5) -> str:
    """Accounts AUTH (whose user `auth` is the service), APP and OTHER."""
    return (
        "accounts {\n"
        "  AUTH { users: [ {user: auth, password: pwd}, {user: second, password: pwd} ] }\n"
        "  APP { users: [ {user: known, password: right} ] }\n"
        "  OTHER {}\n"
        "  SYS { users: [ {user: sys, password: sys} ] }\n"
        "}\nsystem_account: SYS\n"
        f"authorization {{\n  timeout: {timeout}\n"
        f"  auth_callout {{ issuer: {ISSUER.public}, account: AUTH, auth_users: [auth]\n"
        f"{callout} }}\n"
        f"}}\n{more}"
    )


class Question:
    """A request that the service has received."""

    def __init__(self, line: str, header: bytes, payload: bytes) -> None:
        self.line, self.header, self.payload = line, header, payload
        self.reply = line.split(" ")[3]
        server_key = ""
        if not payload.startswith(b"eyJ"):
            server_key = header.decode().split("Nats-Server-Xkey: ")[1].split("\r\n")[0]
            payload = CURVE.open(payload, server_key)
        self.server_xkey = server_key
        self.claims = decode_as(kinds.AuthorizationRequest, payload.decode())

    @property
    def fields(self) -> kinds.AuthorizationRequestFields:
        return self.claims.nats

    @property
    def user_key(self) -> str:
        return self.claims.nats.user_nkey

    @property
    def server_id(self) -> str:
        return str(self.claims.nats.server_id["id"])

    def user(
        self,
        signer: nkeys.KeyPair = ISSUER,
        *,
        account: str = "APP",
        top: dict[str, Any] | None = None,
        **fields: Any,
    ) -> str:
        """The JWT of a user that may enter."""
        made = kinds.UserClaims(sub=self.user_key, aud=account)
        for name, value in (top or {}).items():
            setattr(made, name, value)
        for name, value in fields.items():
            setattr(made.nats, name, value)
        return encode(made, signer, now())

    def response(
        self,
        user: str = "",
        signer: nkeys.KeyPair = ISSUER,
        *,
        error: str = "",
        top: dict[str, Any] | None = None,
        **fields: Any,
    ) -> bytes:
        """The JWT of an answer."""
        made = kinds.AuthorizationResponse(sub=self.user_key, aud=self.server_id)
        made.nats.jwt = user
        made.nats.error = error
        for name, value in (top or {}).items():
            setattr(made, name, value)
        for name, value in fields.items():
            setattr(made.nats, name, value)
        return encode(made, signer, now()).encode()

    def boxed(self, answer: bytes, key: nkeys.CurveKeyPair = CURVE) -> bytes:
        return key.seal(answer, self.server_xkey)


class Service(RawClient):
    """The connection of a service, which has subscribed already."""

    def __init__(self, server: ServerProcess, **login_fields: Any) -> None:
        super().__init__(server.port)
        self.connect(**{"user": "auth", "pass": "pwd", **login_fields})
        self.send(f"SUB {SUBJECT} 1\r\n")
        self.ping()

    @classmethod
    def by_jwt(cls, server: ServerProcess, token: str, key: nkeys.KeyPair) -> Service:
        made = cls.__new__(cls)
        RawClient.__init__(made, server.port)
        made.connect(**login(token, key, made.info["nonce"]))
        made.send(f"SUB {SUBJECT} 1\r\n")
        made.ping()
        return made

    def question(self) -> Question:
        return Question(*self.read_message())

    def answer(self, question: Question, payload: bytes) -> None:
        self.send(f"PUB {question.reply} {len(payload)}\r\n".encode() + payload + b"\r\n")


def is_refused(client: RawClient) -> bool:
    """Whether a connection has been refused by now; nothing is read."""
    if not select.select([client.socket], [], [], 0)[0]:
        return False
    data = client.socket.recv(65536, socket.MSG_PEEK)
    return not data or b"-ERR" in data


def knock(server: ServerProcess, **fields: Any) -> RawClient:
    """A connection that has sent CONNECT and PING, and waits for what comes of it."""
    client = RawClient(server.port)
    options = {"verbose": False, "pedantic": False, "protocol": 0, "headers": True, **fields}
    client.send(f"CONNECT {json.dumps(options)}\r\nPING\r\n")
    return client
