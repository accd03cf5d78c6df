"""Clients of servers in operator mode."""

from __future__ import annotations

import itertools
import json
from typing import Any, ClassVar

from harness import RawClient, ServerProcess
from jwt_kit import OPERATOR, SYSTEM, SYSTEM_USER, login, now, user_jwt
from tradewind import nkeys
from tradewind.jwt.claims import GenericClaims
from tradewind.jwt.codec import encode


class JwtClient(RawClient):
    """A connection that has sent its JWT; `enter` waits until it is in.

    `close_all` closes all of them at the end of a test.
    """

    _opened: ClassVar[list[RawClient]] = []

    def __init__(
        self,
        server: ServerProcess,
        token: str,
        key: nkeys.KeyPair | None,
        *,
        host: str = "127.0.0.1",
        **options: Any,
    ) -> None:
        super().__init__(server.port, host)
        self._opened.append(self)
        self._numbers = itertools.count(1)
        fields = login(token, key, self.info["nonce"], headers=True, no_responders=True)
        self.send(f"CONNECT {json.dumps({**fields, **options})}\r\nPING\r\n")

    @classmethod
    def close_all(cls) -> None:
        while cls._opened:
            cls._opened.pop().close()

    def enter(self) -> JwtClient:
        self.expect("PONG")
        return self

    def request(self, subject: str, payload: str | bytes = b"") -> tuple[str, bytes, bytes]:
        data = payload.encode() if isinstance(payload, str) else payload
        number = next(self._numbers)
        self.send(b"SUB in.%d %d\r\n" % (number, number))
        self.send(f"PUB {subject} in.{number} {len(data)}\r\n".encode() + data + b"\r\n")
        answer = self.read_message()
        self.send(f"UNSUB {number}\r\n")
        return answer

    def ping_through(self) -> None:
        """A round trip, whatever else comes on the way."""
        self.send("PING\r\n")
        while self.read_line() != b"PONG":
            pass

    def ask(self, subject: str, payload: str | bytes = b"") -> Any:
        """The data of the answer, or its error."""
        document = json.loads(self.request(subject, payload)[2])
        return document["data"] if "data" in document else document["error"]


def system_client(server: ServerProcess) -> JwtClient:
    return JwtClient(server, user_jwt(SYSTEM_USER, SYSTEM), SYSTEM_USER).enter()


def push(system: JwtClient, token: str) -> Any:
    return system.ask("$SYS.REQ.CLAIMS.UPDATE", token)


def deletion(keys: Any, signer: nkeys.KeyPair = OPERATOR, subject: str = "") -> str:
    claims = GenericClaims(sub=subject or signer.public, nats={"accounts": keys})
    return encode(claims, signer, now())
