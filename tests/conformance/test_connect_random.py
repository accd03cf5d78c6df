"""Random CONNECT lines, given to both servers: the answers, and what the connection may do then.

Each line has some of all fields that nats-server knows, with right, wrong and odd values, repeated
keys and other spellings. Servers with and without logins are asked.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from helpers_ops import running

from harness import RawClient, ServerProcess
from thoroughness import some

CASES = some(300, 6000)
KINDS = ("official", "tradewind")
CONFIGS = {
    "open": "",
    "users": 'authorization { users: [ {user: a, password: p}, {user: x, password: ""} ] }',
    "token": "authorization { token: t }",
}
BOOLEANS = ["verbose", "pedantic", "tls_required", "echo", "headers", "no_responders"]
TEXTS = ["auth_token", "user", "pass", "name", "lang", "version", "jwt", "nkey", "sig", "proxy_sig"]
# What chooses an account is refused, so it is rarer.
ACCOUNTS = ["account", "new_account", "remote_account"]
RULES = ["import", "export"]
UNKNOWN = [
    *("remote", "hub", "is_hub", "cluster", "deny_pub", "domain", "gateway", "server_id", "nonce"),
    *("compress_mode", "xkey", "protocols", "colour", "", "name "),
]
LOGIN = ['"user":"a"', '"pass":"p"', '"auth_token":"t"', '"verbose":false']
NUMBERS = [
    *("0", "1", "-1", "2", "-0", "1.0", "1e0", "0.0", "1.5", "1E2", "1e400"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("-9223372036854775809", "99999999999999999999", "1" * 400),
]
STRINGS = [
    *('""', '"x"', '"true"', '"1"', r'"a\u0000b"', r'"\ud800"', r'"\ud83d\ude00"', r'"\/"'),
    *('"\xff"', '"' + "x" * 300 + '"'),
]
NESTED = [
    *("[]", "{}", "[1,2]", '{"a":1}', "[[[[]]]]", '{"verbose":true}', '{"allow":["a"]}'),
    *('{"ALLOW":[1]}', '{"deny":null,"x":1}', '{"allow":[null],"allow":"a"}', '{"allow":{}}'),
]
# Not JSON at all.
BROKEN = [
    *("01", "-", ".5", "+1", "NaN", "Infinity", "nul", "True", '"open', "1 2", r'"\u00zz"'),
    *(r'"\x41"', '"a\tb"', "undefined", "'x'", ""),
]
ANY = ["true", "false", "null", *NUMBERS, *STRINGS, *NESTED]
WHOLE_LINES = [
    *("", "null", "[]", "5", '"x"', "true", "{", "{}", "{}{}", "{} x", "{,}", "{null:1}", "{1:2}"),
    *('{"a"}', '{"a":}', '{"a":1,}', '{"a":1 "b":2}', "{'a':1}", "{}//c", "/**/{}", "{}\x00"),
    *("\x00{}", "[{}]", "\x0c{}", " \t{} \t", "\ufeff{}"),
]


class Lines:
    """The argument of one CONNECT after the other, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def next(self) -> bytes:
        choose = self._random.choice
        if self._is_rare(0.06):
            return choose(WHOLE_LINES).encode()
        members: list[str] = []
        for _ in range(choose([1, 1, 2, 2, 3, 4, 6])):
            members.append(self._member())
            if self._is_rare(0.1):
                members.append(choose(members))
        if self._is_rare(0.4):
            members += LOGIN
        # What is written as \xff is one byte, and so not UTF-8.
        return f"{{{','.join(members)}}}".encode().replace(b"\xc3\xbf", b"\xff")

    def _is_rare(self, share: float) -> bool:
        return self._random.random() < share

    def _member(self) -> str:
        choose = self._random.choice
        groups = [BOOLEANS, BOOLEANS, TEXTS, TEXTS, ["protocol"], ACCOUNTS, RULES, UNKNOWN]
        name = choose(choose(groups))
        blank = choose(["", "", "", " ", "\t"])
        return f'"{self._spelled(name)}"{blank}:{blank}{self._value(name)}'

    def _value(self, name: str) -> str:
        choose = self._random.choice
        if self._is_rare(0.03):
            return choose(BROKEN)
        if self._is_rare(0.25):
            return choose(ANY)
        if name in BOOLEANS or name == "new_account":
            return choose(["true", "false"])
        if name == "protocol":
            return choose(["0", "1", "1", "2"])
        if name in RULES:
            return choose(NESTED)
        if name in UNKNOWN:
            return choose(ANY)
        return choose({"user": ['"a"'], "pass": ['"p"']}.get(name, ['"t"', '""', '"a"']))

    def _spelled(self, name: str) -> str:
        """The name, or something like it; Go takes some other letters for an s and a k."""
        if not self._is_rare(0.25):
            return name
        return self._random.choice(
            [
                *(name.upper(), name.title(), f" {name}", name.replace("_", "-")),
                *(name.replace("_", ""), name.replace("e", r"\u0065", 1)),
                *(name.replace("s", "\u017f", 1), name.replace("k", "\u212a", 1)),
            ]
        )


@pytest.fixture(scope="module", params=CONFIGS)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[ServerProcess]]:
    """nats-server and ours, with the same configuration."""
    with ExitStack() as stack:
        folders: list[Path] = [tmp_path_factory.mktemp(kind) for kind in KINDS]
        config = CONFIGS[request.param] + "\nmax_payload: 1MB\n"
        yield [
            stack.enter_context(running(kind, folder, config))
            for kind, folder in zip(KINDS, folders, strict=True)
        ]


def lines_to_pong(client: RawClient) -> list[str]:
    """The lines up to a PONG, or to the end; of INFO only the names of its fields."""
    found: list[str] = []
    while not found or found[-1] not in ("PONG", "closed"):
        try:
            line = client.read_line()
        except ConnectionResetError:
            line = b""
        if line.startswith(b"INFO "):
            ours = {"git_commit", "tradewind", "xkey"}
            found.append(f"INFO {[name for name in json.loads(line[5:]) if name not in ours]}")
        elif line == b"PING":
            client.send("PONG\r\n")
        else:
            found.append(line.decode() or "closed")
    return found


def answers(server: ServerProcess, argument: bytes, subject: str) -> list[str]:
    """What CONNECT with a PING is answered, and then some operations that settings matter for."""
    with RawClient(server.port) as client:
        client.send(b"CONNECT " + argument + b"\r\nPING\r\n")
        found = lines_to_pong(client)
        if found[-1] == "PONG":
            client.send(f"SUB {subject} 1\r\nPUB {subject} 2\r\nhi\r\nPUB a..b 0\r\n\r\nPING\r\n")
            found += lines_to_pong(client)
        if found[-1] == "PONG":
            # Only who has asked for headers may send them; others are closed.
            client.send(f"HPUB {subject} 12 12\r\nNATS/1.0\r\n\r\n\r\nPING\r\n")
            found += lines_to_pong(client)
        return found


def test_any_connect_is_answered_alike(both: list[ServerProcess], subject: str) -> None:
    lines = Lines(1)
    entered = 0
    for number in range(CASES):
        argument = lines.next()
        official, ours = (answers(server, argument, f"{subject}.{number}") for server in both)
        assert ours == official, argument
        entered += official.count("PONG") >= 2
    assert entered > CASES // 20


def test_deeply_nested_unknown_field(both: list[ServerProcess]) -> None:
    """nats-server accepts 10,000 levels in a line of enough bytes; Tradewind has fewer."""
    for depth, ours in ((100, "PONG"), (1500, "closed")):
        argument = b'{"verbose":false,"colour":%s,%s}' % (
            b"[" * depth + b"]" * depth,
            b'"user":"a","pass":"p","auth_token":"t"',
        )
        assert [answers(server, argument, "deep")[0] for server in both] == ["PONG", ours]
