"""Logins by JWT: how many a server decides in a second of its processor time.

`python -m benchmarks.jwt_logins` starts each server with one account in memory and has one client
connect over and over: TCP, INFO, CONNECT with a signed nonce, PONG, close. All logins show one of
`--users` JWTs. It also times the gate by itself, and the signature that it has to verify.
"""

from __future__ import annotations

import argparse
import base64
import json
import socket
import sys
import time
import timeit
from pathlib import Path

from benchmarks.procfs import process_cpu_s
from benchmarks.servers import Server
from tradewind import nkeys
from tradewind.broker.identity import Credentials, Identity
from tradewind.clock import SystemClock
from tradewind.jwt.claims import new_account, new_operator, new_user
from tradewind.jwt.codec import encode
from tradewind.options import OperatorOptions, ResolverOptions
from tradewind.server.auth.callout_client import CalloutClient
from tradewind.server.operators.account_book import AccountBook
from tradewind.server.operators.lookups import AccountLookups
from tradewind.server.operators.operator_gate import OperatorGate
from tradewind.server.operators.resolvers import MemoryResolver
from tradewind.server.operators.trust import trust_of

BIN = Path(sys.executable).parent
SERVERS = {
    "ours": f"{BIN}/tradewind-server -c {{conf}}",
    "nats-server": f"{BIN}/nats-server -c {{conf}}",
}


class Crowd:
    """An operator, an account and users."""

    def __init__(self, users: int) -> None:
        now = int(time.time())
        self.operator = nkeys.KeyPair.create(nkeys.OPERATOR)
        account = nkeys.KeyPair.create(nkeys.ACCOUNT)
        self.operator_token = encode(new_operator(self.operator.public), self.operator, now)
        self.preload = {account.public: encode(new_account(account.public), self.operator, now)}
        keys = [nkeys.KeyPair.create(nkeys.USER) for _ in range(users)]
        self.users = [(key, encode(new_user(key.public), account, now)) for key in keys]

    def config(self) -> str:
        """For either server."""
        preload = "\n".join(f"  {key}: {token}" for key, token in self.preload.items())
        return (
            f"operator: {self.operator_token}\nresolver: MEMORY\n"
            f"resolver_preload: {{\n{preload}\n}}\n"
        )


def sign(key: nkeys.KeyPair, nonce: bytes) -> str:
    """As clients do."""
    return base64.urlsafe_b64encode(key.sign(nonce)).rstrip(b"=").decode()


def log_in(port: int, key: nkeys.KeyPair, token: str) -> None:
    """One connection, from its first byte to its end."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        info = b""
        while not info.endswith(b"\r\n"):
            info += link.recv(4096)
        nonce = json.loads(info[5:])["nonce"].encode()
        fields = {"verbose": False, "pedantic": False, "jwt": token, "sig": sign(key, nonce)}
        link.sendall(b"CONNECT " + json.dumps(fields).encode() + b"\r\nPING\r\n")
        answer = link.recv(4096)
        if not answer.startswith(b"PONG"):
            raise SystemExit(f"refused: {answer!r}")


def measure_server(template: str, crowd: Crowd, logins: int) -> float:
    """Logins per second of the server's processor time."""
    with Server(template, crowd.config()) as server:
        for key, token in crowd.users:
            log_in(server.port, key, token)
        began = process_cpu_s(server.session)
        for number in range(logins):
            log_in(server.port, *crowd.users[number % len(crowd.users)])
        return logins / (process_cpu_s(server.session) - began)


def measure_gate(crowd: Crowd, logins: int) -> tuple[float, float]:
    """Decisions of the gate in a second of processor time: of known JWTs, and of new ones."""
    options = OperatorOptions((crowd.operator_token,), resolver=ResolverOptions())
    clock = SystemClock()

    def rate(count: int) -> float:
        book = AccountBook(trust_of(options), clock, lambda _key: None)
        lookup = AccountLookups(book, MemoryResolver(crowd.preload), print)
        for key in crowd.preload:
            lookup.fetch_now(key)
        gate = OperatorGate(options, "", book, lookup, clock, CalloutClient())
        shown = [
            Credentials(jwt=token, nonce=b"nonce", signature=sign(key, b"nonce"))
            for key, token in crowd.users[:count]
        ]
        if count < len(crowd.users):
            gate.check(shown[0])
        repeats = max(logins // len(shown), 1) if count < len(crowd.users) else 1
        began = time.process_time()
        for _ in range(repeats):
            for credentials in shown:
                assert isinstance(gate.check(credentials), Identity)
        return repeats * len(shown) / (time.process_time() - began)

    return rate(1), rate(len(crowd.users))


def main() -> None:
    """Print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logins", type=int, default=2000)
    parser.add_argument("--users", type=int, default=200)
    arguments = parser.parse_args()
    crowd = Crowd(arguments.users)
    for name, template in SERVERS.items():
        rate = measure_server(template, crowd, arguments.logins)
        print(f"{name}: {rate:,.0f} connections with login per second of CPU")
    known, new = measure_gate(crowd, arguments.logins)
    print(f"gate, JWT known: {known:,.0f} decisions per second of CPU")
    print(f"gate, JWT new: {new:,.0f} decisions per second of CPU")
    key = nkeys.KeyPair.create(nkeys.USER)
    signature, public = key.sign(b"nonce"), nkeys.decode_public(key.public)[1]
    seconds = timeit.timeit(
        lambda: nkeys.verify(public, b"nonce", signature), timer=time.process_time, number=2000
    )
    print(f"one Ed25519 verification: {seconds / 2000 * 1e6:.0f} us")


if __name__ == "__main__":
    main()
