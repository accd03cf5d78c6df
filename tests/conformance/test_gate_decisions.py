"""The gate, asked in process, against the official server, asked over the wire: who enters.

Each configuration is written once, as options, and rendered for the official server. Only that one
runs here; tests of the login itself, on both servers, are in the files around this one. One thing
differs on purpose: the official server's monitoring shows an nkey or user name that a client only
claims when it enters by something else; the gate names what it has checked.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import bcrypt
import pytest
from msgspec.structs import replace
from websockets.sync.client import connect as connect_websocket

from certificates import Authority
from harness import RawClient, ServerProcess
from tradewind import nkeys
from tradewind.broker.identity import Credentials, DeferredCheck, Gate, Identity, Rejection
from tradewind.options import (
    AccountOptions,
    AuthorizationOptions,
    Secret,
    ServerOptions,
    TlsOptions,
    UserOptions,
    WebsocketOptions,
)
from tradewind.server.auth import Listener, build_gate

KEY = nkeys.KeyPair(nkeys.USER, b"\1" * 32)
OTHER_KEY = nkeys.KeyPair(nkeys.USER, b"\2" * 32)


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()


HASH = hashed("p")
LONG = "long" * 20  # 80 bytes, of which bcrypt sees 72


def user(name: str, password: str = "p", *types: str) -> UserOptions:
    return UserOptions(name, Secret(password), connection_types=frozenset(types))


def nkey_user(key: nkeys.KeyPair = KEY, *types: str) -> UserOptions:
    return UserOptions(nkey=key.public, connection_types=frozenset(types))


def listed(*users: UserOptions, **settings: Any) -> ServerOptions:
    return ServerOptions(authorization=AuthorizationOptions(users=users), **settings)


def in_accounts(**users: tuple[UserOptions, ...]) -> dict[str, AccountOptions]:
    return {name: AccountOptions(name, users=members) for name, members in users.items()}


def simple(**settings: str) -> AuthorizationOptions:
    secrets = {name: Secret(text) for name, text in settings.items() if name != "user"}
    return AuthorizationOptions(user=settings.get("user", ""), **secrets)


# Rendering


def text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def render_users(users: tuple[UserOptions, ...]) -> str:
    entries = []
    for member in users:
        entry = f"nkey: {member.nkey}" if member.nkey else f"user: {text(member.user)}"
        if member.password:
            entry += f", password: {text(member.password.reveal())}"
        if member.connection_types:
            entry += f", allowed_connection_types: [{', '.join(sorted(member.connection_types))}]"
        entries.append(f"{{ {entry} }}")
    return f"users: [ {', '.join(entries)} ]\n"


def render_authorization(block: AuthorizationOptions) -> str:
    if block == AuthorizationOptions():
        return ""
    lines = f"timeout: {block.timeout_ns / 1e9}\n" if block.timeout_ns else ""
    lines += f"user: {text(block.user)}\n" if block.user else ""
    lines += f"password: {text(block.password.reveal())}\n" if block.password else ""
    lines += f"token: {text(block.token.reveal())}\n" if block.token else ""
    lines += render_users(block.users) if block.users else ""
    return f"authorization {{\n{lines}}}\n"


def render(options: ServerOptions) -> str:
    config = render_authorization(options.authorization)
    if options.accounts:
        blocks = [
            f"{name} {{ {render_users(account.users) if account.users else ''} }}\n"
            for name, account in options.accounts.items()
        ]
        config += f"accounts {{\n{''.join(blocks)}}}\n"
    config += f"no_auth_user: {text(options.no_auth_user)}\n" if options.no_auth_user else ""
    if options.tls is not None:
        config += (
            f"tls {{ cert_file: {text(options.tls.cert_file)}\n"
            f"key_file: {text(options.tls.key_file)}\nca_file: {text(options.tls.ca_file)}\n"
            f"verify_and_map: {'true' if options.tls.verify_and_map else 'false'} }}\n"
        )
    if options.websocket is not None:
        own = options.websocket
        config += 'websocket { listen: "127.0.0.1:-1"\nno_tls: true\n'
        config += f"no_auth_user: {text(own.no_auth_user)}\n" if own.no_auth_user else ""
        config += render_authorization(own.authorization or AuthorizationOptions()) + "}\n"
    return config


# Attempts


@dataclass(frozen=True)
class Attempt:
    """What a client sends; `claims`: a name is in it that the client may not enter by."""

    name: str
    sent: dict[str, str] = field(default_factory=dict)
    signer: nkeys.KeyPair | None = None
    standard_base64: bool = False
    claims: bool = False

    def connect_options(self, nonce: str) -> dict[str, str]:
        options = dict(self.sent)
        if self.signer is not None:
            encode = base64.b64encode if self.standard_base64 else base64.urlsafe_b64encode
            signature = encode(self.signer.sign(nonce.encode())).decode()
            options["sig"] = signature if self.standard_base64 else signature.rstrip("=")
        return options


def login(name: str, password: str = "", **more: str) -> dict[str, str]:
    return {"user": name, "pass": password, **more}


ATTEMPTS = [
    Attempt("nothing"),
    Attempt("user and password", login("a", "p")),
    Attempt("wrong password", login("a", "x")),
    Attempt("no password", login("a")),
    Attempt("second user", login("b", "p")),
    Attempt("second user without password", login("b")),
    Attempt("third user", login("c", "p")),
    Attempt("unknown user", login("z", "p")),
    Attempt("password alone", {"pass": "p"}),
    Attempt("token", {"auth_token": "t"}),
    Attempt("wrong token", {"auth_token": "p"}),
    Attempt("user, password and token", login("a", "p", auth_token="t"), claims=True),
    Attempt("unknown user and token", login("z", "p", auth_token="t"), claims=True),
    Attempt("the hash as password", login("a", HASH)),
    Attempt("the hash as token", {"auth_token": HASH}),
    Attempt("long password", login("a", LONG)),
    Attempt("longer password", login("a", LONG + "tail")),
    Attempt("72 bytes of it", login("a", LONG[:72])),
    Attempt("71 bytes of it", login("a", LONG[:71])),
    Attempt("password with NUL", login("a", "p\0")),
    Attempt("unicode", login("é", "ü")),
    Attempt("decomposed unicode", login("e\u0301", "u\u0308")),
    Attempt("signed nkey", {"nkey": KEY.public}, KEY, claims=True),
    Attempt("signed nkey, standard base64", {"nkey": KEY.public}, KEY, True, claims=True),
    Attempt("unsigned nkey", {"nkey": KEY.public}, claims=True),
    Attempt("broken signature", {"nkey": KEY.public, "sig": "AAAA"}, claims=True),
    Attempt("signed by another", {"nkey": KEY.public}, OTHER_KEY, claims=True),
    Attempt("another nkey", {"nkey": OTHER_KEY.public}, OTHER_KEY, claims=True),
    Attempt("no nkey at all", {"nkey": "U" * 56}, KEY, claims=True),
    Attempt(
        "another nkey with a good password",
        login("a", "p", nkey=OTHER_KEY.public),
        OTHER_KEY,
        claims=True,
    ),
    Attempt("signature without nkey", login("a", "p"), KEY),
    Attempt("junk jwt", {"jwt": "x.y.z"}),
]

CONFIGURATIONS: dict[str, ServerOptions] = {
    "open": ServerOptions(),
    "accounts without users": ServerOptions(accounts=in_accounts(A=())),
    "token": ServerOptions(authorization=simple(token="t")),
    "hashed token": ServerOptions(authorization=simple(token=hashed("t"))),
    "single user": ServerOptions(authorization=simple(user="a", password="p")),
    "single user, hashed": ServerOptions(authorization=simple(user="a", password=HASH)),
    "single user without password": ServerOptions(authorization=simple(user="a")),
    "users": listed(user("a"), user("b", ""), user("é", "ü")),
    "users, hashed": listed(user("a", HASH), user("b"), user("é", hashed("ü"))),
    "long password, hashed": listed(user("a", hashed(LONG))),
    "password with NUL, hashed": listed(user("a", hashed("p\0"))),
    "broken hash": listed(user("a", "$2a$04$broken")),
    "hash of version y": listed(user("a", HASH.replace("$2b$", "$2y$"))),
    "nkeys": listed(nkey_user()),
    "nkeys and users": listed(nkey_user(), user("a"), user("b", HASH)),
    "no_auth_user": listed(user("a"), user("b"), nkey_user(), no_auth_user="a"),
    "no_auth_user without nkeys": listed(user("a"), user("b"), no_auth_user="b"),
    "no_auth_user is an nkey": listed(nkey_user(), user("a"), no_auth_user=KEY.public),
    "no_auth_user, hashed": listed(user("a", HASH), user("b"), no_auth_user="a"),
    "no_auth_user for websockets": listed(user("a", "p", "WEBSOCKET"), no_auth_user="a"),
    "connection types": listed(
        user("a", "p", "WEBSOCKET"),
        user("b", "p", "STANDARD"),
        user("c", "p", "MQTT", "STANDARD"),
        nkey_user(KEY, "WEBSOCKET"),
    ),
    "accounts": ServerOptions(
        authorization=AuthorizationOptions(users=(user("a"),)),
        accounts=in_accounts(A=(user("b"),), B=(nkey_user(), user("c", HASH))),
    ),
    "system account alone": ServerOptions(
        accounts={"$SYS": AccountOptions("$SYS", users=(user("a"),))}
    ),
    "system account alone, nkey": ServerOptions(
        accounts={"$SYS": AccountOptions("$SYS", users=(nkey_user(),))}
    ),
    "system account without users": ServerOptions(accounts={"$SYS": AccountOptions("$SYS")}),
    "system account and authorization": ServerOptions(
        authorization=AuthorizationOptions(timeout_ns=3_000_000_000),
        accounts={"$SYS": AccountOptions("$SYS", users=(user("a"),))},
    ),
    "system account and another": ServerOptions(
        accounts={
            "$SYS": AccountOptions("$SYS", users=(user("a"),)),
            "A": AccountOptions("A"),
        }
    ),
}
# Flags add to what the file says; the file alone may not have both.
FLAGGED: dict[str, tuple[ServerOptions, AuthorizationOptions, list[str]]] = {
    "token flag and users": (listed(user("a")), simple(token="t"), ["--auth", "t"]),
    "token flag and nkeys": (listed(nkey_user()), simple(token="t"), ["--auth", "t"]),
    "user flag and users": (
        listed(user("b")),
        simple(user="a", password="p"),
        ["--user", "a", "--pass", "p"],
    ),
    "user flag and nkeys": (
        listed(nkey_user()),
        simple(user="a", password="p"),
        ["--user", "a", "--pass", "p"],
    ),
    "both flags": (
        ServerOptions(),
        simple(user="a", password="p", token="t"),
        ["--user", "a", "--pass", "p", "--auth", "t"],
    ),
}
# Our INFO admits that credentials are required when nobody can use the no_auth_user.
INFO_DIFFERS = {"no_auth_user, hashed", "no_auth_user for websockets"}

WEBSOCKET_CONFIGURATIONS: dict[str, ServerOptions] = {
    "open": ServerOptions(websocket=WebsocketOptions()),
    "inherited single user": replace(CONFIGURATIONS["single user"], websocket=WebsocketOptions()),
    "own user on an open server": ServerOptions(
        websocket=WebsocketOptions(authorization=simple(user="a", password="p"))
    ),
    "own token besides a single user": ServerOptions(
        authorization=simple(user="a", password="p"),
        websocket=WebsocketOptions(authorization=simple(token="t")),
    ),
    "own no_auth_user": listed(
        user("a"), user("b"), websocket=WebsocketOptions(no_auth_user="a"), no_auth_user="b"
    ),
    "inherited no_auth_user": listed(
        user("a"), nkey_user(), websocket=WebsocketOptions(), no_auth_user="a"
    ),
    "connection types": replace(CONFIGURATIONS["connection types"], websocket=WebsocketOptions()),
    "system account alone": replace(
        CONFIGURATIONS["system account alone"], websocket=WebsocketOptions()
    ),
}


# Asking both


@contextmanager
def official(directory: Path, config: str, *flags: str) -> Iterator[ServerProcess]:
    path = directory / "official.conf"
    path.write_text(config)
    server = ServerProcess(
        "official", ["-c", str(path), "-a", "127.0.0.1", "-p", "-1", "-m", "-1", *flags]
    )
    try:
        yield server.wait_ready()
    finally:
        server.stop()


def logged_port(server: ServerProcess, pattern: str) -> int:
    return int(server.wait_for_log(pattern)[1])


def authorized_users(server: ServerProcess) -> dict[int, str]:
    port = logged_port(server, r"Starting http monitor on \S+:(\d+)")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/connz?auth=1") as answer:
        connections = json.load(answer)["connections"]
    return {each["cid"]: each.get("authorized_user", "") for each in connections}


def gate_answer(
    gate: Gate, info: dict[str, Any], sent: dict[str, str], **more: Any
) -> Identity | Rejection:
    credentials = Credentials(
        user=sent.get("user", ""),
        password=sent.get("pass", ""),
        token=sent.get("auth_token", ""),
        nkey=sent.get("nkey", ""),
        signature=sent.get("sig", ""),
        jwt=sent.get("jwt", ""),
        nonce=info.get("nonce", "").encode(),
        **more,
    )
    answer = gate.check(credentials)
    return answer.decide() if isinstance(answer, DeferredCheck) else answer


def connect_line(options: dict[str, str]) -> str:
    payload = {"verbose": False, "pedantic": False, "protocol": 1, **options}
    return f"CONNECT {json.dumps(payload)}\r\nPING\r\n"


def read_account(lines: Iterator[bytes]) -> str | None:
    """The account that the INFO after the first PONG names; None when the client was refused."""
    accepted = False
    for line in lines:
        if line.startswith(b"-ERR"):
            assert line == b"-ERR 'Authorization Violation'"
            return None
        if line == b"PONG":
            accepted = True
        elif line.startswith(b"INFO "):
            account = json.loads(line[5:]).get("remote_account")
            assert accepted
            return str(account)
    raise AssertionError("the server said nothing")


def raw_lines(client: RawClient) -> Iterator[bytes]:
    while line := client.read_line():
        yield line


def expected_account(answer: Identity | Rejection) -> str | None:
    return answer.account if isinstance(answer, Identity) else None


def compare_standard(
    server: ServerProcess,
    gate: Gate,
    attempts: list[Attempt] = ATTEMPTS,
    *,
    info_differs: bool,
) -> int:
    """Gives how many entered."""
    clients: list[RawClient] = []
    names: dict[int, tuple[str, str]] = {}
    wrong = []
    entered = 0
    for attempt in attempts:
        client = RawClient(server.port)
        clients.append(client)
        if not info_differs:
            assert client.info.get("auth_required", False) == gate.auth_required
        assert ("nonce" in client.info) == gate.nonce_required
        sent = attempt.connect_options(client.info.get("nonce", ""))
        client.send(connect_line(sent))
        account = read_account(raw_lines(client))
        answer = gate_answer(gate, client.info, sent)
        entered += account is not None
        if account != expected_account(answer):
            wrong.append(f"{attempt.name}: official {account}, gate {answer}")
        if isinstance(answer, Identity) and answer.user and not attempt.claims:
            names[client.info["client_id"]] = (attempt.name, answer.user)
    shown = authorized_users(server)
    for client_id, (name, ours) in names.items():
        if shown[client_id] != ours:
            wrong.append(f"{name}: official shows {shown[client_id]!r}, gate {ours!r}")
    for client in clients:
        client.close()
    assert not wrong, "\n".join(wrong)
    return entered


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_gate_decides_as_the_official_server(name: str, tmp_path: Path) -> None:
    options = CONFIGURATIONS[name]
    with official(tmp_path, render(options)) as server:
        compare_standard(server, build_gate(options), info_differs=name in INFO_DIFFERS)


@pytest.mark.parametrize("name", FLAGGED)
def test_the_gate_decides_as_the_official_server_with_flags(name: str, tmp_path: Path) -> None:
    options, flags, arguments = FLAGGED[name]
    merged = replace(flags, users=options.authorization.users)
    with official(tmp_path, render(options), *arguments) as server:
        gate = build_gate(replace(options, authorization=merged))
        compare_standard(server, gate, info_differs=False)


@pytest.mark.parametrize("name", WEBSOCKET_CONFIGURATIONS)
def test_the_gate_decides_as_the_official_server_for_websockets(name: str, tmp_path: Path) -> None:
    options = WEBSOCKET_CONFIGURATIONS[name]
    listener: Listener = "websocket"
    gate = build_gate(options, listener)
    wrong = []
    with official(tmp_path, render(options)) as server:
        port = logged_port(server, r"Listening for websocket clients on ws://\S+:(\d+)")
        for attempt in ATTEMPTS:
            with connect_websocket(f"ws://127.0.0.1:{port}", compression=None) as client:
                info = json.loads(bytes(client.recv())[5:])
                assert info.get("auth_required", False) == gate.auth_required
                assert ("nonce" in info) == gate.nonce_required
                sent = attempt.connect_options(info.get("nonce", ""))
                client.send(connect_line(sent).encode())
                account = read_account(
                    line for frame in client for line in bytes(frame).split(b"\r\n")
                )
                answer = gate_answer(gate, info, sent, connection_type="WEBSOCKET")
                if account != expected_account(answer):
                    wrong.append(f"{attempt.name}: official {account}, gate {answer}")
    assert not wrong, "\n".join(wrong)


# Random configurations and logins

IS_THOROUGH = os.environ.get("TRADEWIND_THOROUGH") == "1"
RANDOM_CONFIGURATIONS = 200 if IS_THOROUGH else 12
RANDOM_LOGINS = 60
NAMES = ["a", "b", "c", "é"]
HASHES = {HASH: "p", hashed("q"): "q", hashed("t"): "t"}
PASSWORDS = ["", "p", "q", "ü", *HASHES, "$2a$04$broken"]
TYPES = [(), (), (), ("STANDARD",), ("WEBSOCKET",), ("MQTT", "STANDARD")]


def random_options(chance: Random) -> ServerOptions:
    """A file that nats-server takes: one way to log in, or users in one or several accounts."""
    kind = chance.choice(["token", "single", "users", "users", "users", "users"])
    if kind == "token":
        return ServerOptions(authorization=simple(token=chance.choice(["t", "p", *HASHES])))
    if kind == "single":
        return ServerOptions(authorization=simple(user="a", password=chance.choice(PASSWORDS[1:])))
    made = [
        user(name, chance.choice(PASSWORDS), *chance.choice(TYPES))
        for name in chance.sample(NAMES, chance.randint(1, 4))
    ]
    made += [nkey_user(key, *chance.choice(TYPES)) for key in chance.sample([KEY, OTHER_KEY], 1)
             if chance.random() < 0.6]  # fmt: skip
    names = [one.nkey or one.user for one in made]
    no_auth_user = chance.choice(names) if chance.random() < 0.4 else ""
    if chance.random() < 0.4:
        return listed(*made, no_auth_user=no_auth_user)
    places: dict[str, list[UserOptions]] = {"A": [], "B": [], "$SYS": []}
    for one in made:
        places[chance.choice(["A", "A", "B", "$SYS"])].append(one)
    accounts = {name: tuple(users) for name, users in places.items() if users or name == "A"}
    return ServerOptions(accounts=in_accounts(**accounts), no_auth_user=no_auth_user)


def random_login(chance: Random, options: ServerOptions) -> tuple[dict[str, str], Any]:
    """One that is right, but for the kind of connection."""
    block = options.authorization
    members = [*block.users, *(one for each in options.accounts.values() for one in each.users)]
    if not members:
        secret = (block.token or block.password).reveal()
        text = HASHES.get(secret, secret)
        return ({"auth_token": text} if block.token else login(block.user, text)), None
    member = chance.choice(members)
    if member.nkey:
        return {"nkey": member.nkey}, KEY if member.nkey == KEY.public else OTHER_KEY
    password = member.password.reveal()
    return login(member.user, HASHES.get(password, password)), None


def random_attempt(chance: Random, options: ServerOptions, number: int) -> Attempt:
    sent, signer = random_login(chance, options) if chance.random() < 0.4 else ({}, None)
    if sent and chance.random() < 0.7:
        return Attempt(f"login {number}: {sent}", sent, signer, claims=True)
    if chance.random() < 0.6:
        sent["user"] = chance.choice([*NAMES, "z"])
    if chance.random() < 0.7:
        sent["pass"] = chance.choice([*PASSWORDS, "p", "p", "q"])
    if chance.random() < 0.25:
        sent["auth_token"] = chance.choice(["t", "p", "x", HASH])
    if chance.random() < 0.3:
        sent["nkey"] = chance.choice([KEY.public, OTHER_KEY.public, "U" * 56, "x"])
        signer = chance.choice([None, KEY, KEY, OTHER_KEY])
    if chance.random() < 0.1:
        sent["jwt"] = "x.y.z"
    return Attempt(f"login {number}: {sent}", sent, signer, chance.random() < 0.3, claims=True)


@pytest.mark.timeout(600)
def test_the_gate_decides_as_the_official_server_on_random_files(tmp_path: Path) -> None:
    entered = 0
    for seed in range(RANDOM_CONFIGURATIONS):
        chance = Random(seed)
        options = random_options(chance)
        attempts = [random_attempt(chance, options, number) for number in range(RANDOM_LOGINS)]
        with official(tmp_path, render(options)) as server:
            entered += compare_standard(server, build_gate(options), attempts, info_differs=True)
    logins = RANDOM_CONFIGURATIONS * RANDOM_LOGINS
    assert logins // 20 < entered < logins - logins // 20


# Certificates

MAPPED_USERS: dict[str, tuple[UserOptions, ...]] = {
    "alternative names": tuple(
        user(name, "") for name in ("b@e.com", "h.example.com", "spiffe://h/x", "CN=x", "x")
    ),
    "subjects": tuple(
        user(name, "")
        for name in (
            "CN=example.com,OU=NATS.io",
            "CN=www,OU=Users,DC=bar,DC=foo",
            "CN=z,OU=b,OU=a",
            "OU=m+CN=z,O=o",
            "CN=\\c5\\bdlu\\c5\\a5",
            "cn=one, cn=two",
        )
    ),
    "texts": tuple(
        user(name, "")
        for name in (
            "SERIALNUMBER=1,CN=al,OU=8+OU=6,O=7,POSTALCODE=2,STREET=3,L=5,ST=4,C=US",
            'CN=a\\,b\\<\\"c\\"\\>\\+d\\;,O=\\ sp\\ ,L=\\#h',
            "CN=www,OU=Users",
            "CN=m",
            "CN=z,OU=m,O=o",
            "CN=q,DC=z,DC=y",
        )
    ),
    "passwords": (user("CN=x", "p"), user("CN=m", HASH), user("a"), nkey_user()),
    "repeated parts": (user("CN=z,OU=a,OU=b", ""), user("CN=example.com,OU=x", "")),
}
MAPPED_ATTEMPTS = [
    attempt
    for attempt in ATTEMPTS
    if attempt.name in ("nothing", "user and password", "wrong password", "signed nkey", "token")
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("mapped"))


@pytest.mark.parametrize("name", MAPPED_USERS)
def test_certificates_map_as_on_the_official_server(
    name: str, authority: Authority, tmp_path: Path
) -> None:
    certificates = [
        authority.client("emails", subject="CN=x", emails=["a@e.com", "b@e.com"]),
        authority.client("dns", subject="CN=x", dns_names=["h.example.com"]),
        authority.client("dns-only", dns_names=["h.example.com"]),
        authority.client("uri", uris=["spiffe://h/x"]),
        authority.client("nameless"),
        *(
            authority.client(f"subject{number}", subject=subject)
            for number, subject in enumerate(
                [
                    "CN=x",
                    "CN=example.com,OU=NATS.io",
                    "OU=NATS.io,CN=example.com",
                    "CN=www,OU=Users,DC=foo,DC=bar",
                    "CN=z,OU=a,OU=b",
                    "CN=z,OU=a,OU=a",
                    "CN=z+OU=m,O=o",
                    "CN=m,EMAIL=q@q",
                    "CN=one,CN=two",
                    "CN=Žluť",
                    "EMAIL=e,CN=q,DC=y,DC=z",
                    'EMAIL=e,CN=a\\,b<"c">\\+d;,O= sp ,L=#h',
                    (
                        "EMAIL=e,C=US,O=7,OU=6,OU=8,L=5,ST=4,STREET=3,POSTALCODE=2,"
                        "CN=al,SERIALNUMBER=1"
                    ),
                ]
            )
        ),
    ]
    own = authority.server()
    tls = TlsOptions(own.cert_file, own.key_file, authority.ca_file, verify_and_map=True)
    options = listed(*MAPPED_USERS[name], tls=tls)
    gate = build_gate(options)
    wrong = []
    accepted = 0
    with official(tmp_path, render(options)) as server:
        for certificate in certificates:
            for attempt in MAPPED_ATTEMPTS:
                client = RawClient(server.port)
                context = certificate.client_context(authority)
                client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
                sent = attempt.connect_options(client.info.get("nonce", ""))
                client.send(connect_line(sent))
                account = read_account(raw_lines(client))
                answer = gate_answer(gate, client.info, sent, certificate=certificate.der)
                shown = ""
                if account is not None:
                    accepted += 1
                    shown = authorized_users(server)[client.info["client_id"]]
                ours = answer.user if isinstance(answer, Identity) else ""
                if attempt.claims and account == expected_account(answer):
                    shown = ours
                if (account, shown) != (expected_account(answer), ours):
                    file = Path(certificate.cert_file).stem
                    wrong.append(
                        f"{file}, {attempt.name}: official {account} {shown}, gate {answer}"
                    )
                client.close()
    assert not wrong, "\n".join(wrong)
    assert accepted
