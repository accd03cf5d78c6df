"""Accounts that are pushed, changed and deleted while their users are connected."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import signal
import stat
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from helpers_operators import JwtClient, deletion, push, system_client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as connect_websocket

from harness import RawClient, ServerProcess, StartServer
from jwt_kit import (
    OPERATOR,
    STRANGER,
    SYSTEM,
    account_jwt,
    account_key,
    login,
    memory_configuration,
    now,
    raw_jwt,
    user_jwt,
    user_key,
)
from leaf_kit import RawLeaf
from tradewind.jwt.claims import Export, PermissionClaims, ScopeTemplate, SubjectClaims, UserScope

ACCOUNT, OTHER = account_key(1), account_key(2)
SIGNER = account_key(3)
USER, SECOND_USER = user_key(1), user_key(2)
EXPIRED = "-ERR 'Account Authentication Expired'"


def folder_configuration(folder: Path, **accounts: str) -> str:
    text = memory_configuration(accounts)
    return text.replace(
        "resolver: MEMORY", f'resolver: {{type: full, dir: "{folder}", allow_delete: true}}'
    )


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    JwtClient.close_all()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "accounts"


@pytest.fixture
def server(start: StartServer, folder: Path) -> ServerProcess:
    preload = {ACCOUNT.public: account_jwt(ACCOUNT, issued_at=now() - 100)}
    return start(folder_configuration(folder, **preload))


def member(server: ServerProcess, **fields: Any) -> JwtClient:
    return JwtClient(server, user_jwt(USER, ACCOUNT, **fields), USER).enter()


def changed(**fields: Any) -> str:
    return account_jwt(ACCOUNT, issued_at=now(), **fields)


# ---------------------------------------------------------------- requests


def updates() -> list[tuple[str, dict[str, Any]]]:
    failed = "jwt update resulted in error - "
    key = ACCOUNT.public
    invalid = changed(exports=[Export(subject="a b", type="stream")])
    return [
        (account_jwt(OTHER), {"account": OTHER.public, "code": 200, "message": "jwt updated"}),
        (changed(), {"account": key, "code": 200, "message": "jwt updated"}),
        ("", {"account": "n/a", "code": 500, "description": f"{failed}expected 3 chunks"}),
        (
            user_jwt(USER, ACCOUNT),
            {"account": "n/a", "code": 500, "description": f"{failed}not account claim"},
        ),
        (
            invalid,
            {
                "account": key,
                "code": 500,
                "description": (
                    'jwt validation failed - validation errors: [subject "a b" cannot have spaces]'
                ),
            },
        ),
    ]


def test_accounts_are_pushed_listed_looked_up_and_packed(
    server: ServerProcess, folder: Path
) -> None:
    system = system_client(server)
    for token, wanted in updates():
        assert push(system, token) == wanted
    named = f"$SYS.REQ.ACCOUNT.{ACCOUNT.public}.CLAIMS.UPDATE"
    assert system.ask(named, account_jwt(OTHER)) == {
        "account": ACCOUNT.public,
        "code": 500,
        "description": "jwt update resulted in error - subject does not match jwt content",
    }
    latest = account_jwt(OTHER, issued_at=now() + 5)
    old = f"$SYS.ACCOUNT.{OTHER.public}.CLAIMS.UPDATE"
    assert system.ask(old, latest)["message"] == "jwt updated"
    assert system.request(f"$SYS.REQ.ACCOUNT.{OTHER.public}.CLAIMS.LOOKUP")[2].decode() == latest
    assert system.request(f"$SYS.REQ.ACCOUNT.{SIGNER.public}.CLAIMS.LOOKUP")[2] == b""
    keys = sorted((ACCOUNT.public, OTHER.public, SYSTEM.public))
    assert sorted(system.ask("$SYS.REQ.CLAIMS.LIST")) == keys
    file = folder / f"{OTHER.public}.jwt"
    assert file.read_text() == latest
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    packed = pack(system, b"")
    assert [line.split(b"|")[0].decode() for line in packed] == keys
    total = 0
    for line in packed:
        total ^= int.from_bytes(hashlib.sha256(line.split(b"|")[1]).digest(), "big")
    assert pack(system, total.to_bytes(32, "big")) == []


def pack(system: JwtClient, digest: bytes) -> list[bytes]:
    system.send(b"SUB packed 99\r\nPUB $SYS.REQ.CLAIMS.PACK packed %d\r\n" % len(digest))
    system.send(digest + b"\r\n")
    lines = []
    while line := system.read_message()[2]:
        lines.append(line)
    system.send("UNSUB 99\r\n")
    return lines


def test_only_the_operator_deletes_accounts(server: ServerProcess, folder: Path) -> None:
    system = system_client(server)
    client = member(server)
    subject = "$SYS.REQ.CLAIMS.DELETE"
    by = f"delete accounts request by {OPERATOR.public} failed - "
    refused = {
        deletion([ACCOUNT.public], STRANGER): (
            f"delete accounts request by {STRANGER.public} failed - not trusted"
        ),
        deletion([ACCOUNT.public], ACCOUNT): (
            f"delete accounts request by {ACCOUNT.public} failed - not trusted"
        ),
        deletion([ACCOUNT.public], OPERATOR, STRANGER.public): (
            f"delete accounts request by {STRANGER.public} failed - not self signed"
        ),
        deletion([SYSTEM.public]): f"{by}not allowed to delete system account",
        deletion(5): f"{by}malformed request",
        deletion(["../x"]): f"{by}malformed request",
        "x": "delete accounts request by  failed - expected 3 chunks",
    }
    for token, text in refused.items():
        assert system.ask(subject, token) == {"code": 500, "description": text}
    client.ping()
    assert system.ask(subject, deletion([ACCOUNT.public])) == {
        "code": 200,
        "message": "deleted 1 accounts",
    }
    client.expect(EXPIRED)
    client.expect_closed()
    assert (folder / f"{ACCOUNT.public}.jwt.deleted").exists()
    refused_client = JwtClient(server, user_jwt(USER, ACCOUNT), USER)
    refused_client.expect("-ERR 'Authorization Violation'")
    push(system, changed())
    member(server).ping()


def test_in_memory_only_accounts_in_use_are_changed(start: StartServer) -> None:
    server = start(memory_configuration({ACCOUNT.public: account_jwt(ACCOUNT, issued_at=5)}))
    system = system_client(server)
    subject = f"$SYS.REQ.ACCOUNT.{ACCOUNT.public}.CLAIMS.UPDATE"
    skipped = {"account": ACCOUNT.public, "code": 200, "message": "jwt update skipped"}
    assert system.ask(subject, changed()) == skipped
    client = member(server)
    assert system.ask(subject, "")["description"] == "jwt update error - request body is empty"
    failed = "jwt update resulted in error - account validation failed"
    assert system.ask(subject, account_jwt(ACCOUNT, STRANGER))["description"] == failed
    client.ping()
    assert system.ask(subject, changed(limits={"conn": 0}))["message"] == "jwt updated"
    client.expect("-ERR 'maximum account active connections exceeded'")
    assert b" 503" in system.request("$SYS.REQ.CLAIMS.LIST")[1]


# ---------------------------------------------------------------- those who are connected


def test_a_revoked_user_is_told_and_closed_and_enters_with_a_newer_jwt(
    server: ServerProcess,
) -> None:
    system = system_client(server)
    client = member(server, issued_at=now() - 50)
    bystander = JwtClient(server, user_jwt(SECOND_USER, ACCOUNT), SECOND_USER).enter()
    push(system, changed(revocations={USER.public: now() - 10}))
    client.expect("-ERR 'User Authentication Revoked'")
    client.expect_closed()
    bystander.ping()
    again = JwtClient(server, user_jwt(USER, ACCOUNT, issued_at=now() - 50), USER)
    again.expect("-ERR 'Authorization Violation'")
    member(server).ping()


def test_leaf_node_of_a_revoked_user_is_closed(start: StartServer, folder: Path) -> None:
    preload = {ACCOUNT.public: account_jwt(ACCOUNT, issued_at=now() - 100)}
    leafnodes = 'leafnodes { listen: "127.0.0.1:-1" }\n'
    server = start(folder_configuration(folder, **preload) + leafnodes)
    port = int(server.wait_for_log(r"Listening for leafnode connections on \S+:(\d+)")[1])
    system = system_client(server)
    tokens = [user_jwt(key, ACCOUNT, issued_at=now() - 50) for key in (USER, SECOND_USER)]
    with RawLeaf(port) as peer, RawLeaf(port) as bystander:
        for one, token, key in zip((peer, bystander), tokens, (USER, SECOND_USER), strict=True):
            fields = login(token, key, one.info["nonce"])
            answer = one.login(name=key.public, jwt=token, sig=fields["sig"])
            assert answer["remote_account"] == ACCOUNT.public
        push(system, changed(revocations={USER.public: now() - 10}))
        peer.read_to_end()
        bystander.quiet_ping()


def test_the_oldest_connections_stay_when_fewer_are_allowed(server: ServerProcess) -> None:
    system = system_client(server)
    clients = [member(server) for _ in range(3)]
    push(system, changed(limits={"conn": 1}))
    for client in clients[1:]:
        client.expect("-ERR 'maximum account active connections exceeded'")
    clients[0].ping()


def test_a_removed_signing_key_closes_its_users_without_a_word(server: ServerProcess) -> None:
    system = system_client(server)
    scope = UserScope(key=OTHER.public, template=ScopeTemplate())
    push(system, changed(signing_keys=[SIGNER.public, scope]))
    plain = JwtClient(server, user_jwt(USER, SIGNER, account=ACCOUNT.public), USER).enter()
    token = user_jwt(USER, OTHER, account=ACCOUNT.public, is_scoped=True)
    scoped = JwtClient(server, token, USER).enter()
    own = member(server)
    push(system, account_jwt(ACCOUNT, issued_at=now() + 1))
    plain.expect_closed()
    # nats-server may find first that without its role it has no limits, which means none allowed.
    said = scoped.read_to_end().replace(b"PING\r\n", b"")
    assert said in (b"", b"-ERR 'maximum subscriptions exceeded'\r\n")
    own.ping()


def test_bearers_go_when_the_account_forbids_them(server: ServerProcess) -> None:
    system = system_client(server)
    client = JwtClient(server, user_jwt(USER, ACCOUNT, bearer_token=True), None).enter()
    push(system, changed(limits={"disallow_bearer": True}))
    client.expect("-ERR 'Authorization Violation'")
    client.expect_closed()


def test_default_permissions_are_applied_in_place(server: ServerProcess) -> None:
    system = system_client(server)
    client = member(server)
    client.send("SUB dd.x 1\r\nSUB ok 2\r\n")
    client.ping()
    rules = PermissionClaims(sub=SubjectClaims(deny=["dd.>"]), pub=SubjectClaims(deny=["no"]))
    push(system, changed(default_permissions=rules))
    client.expect('-ERR \'Permissions Violation for Subscription to "dd.x" (sid "1")\'')
    client.send("PUB no 0\r\n\r\nPUB ok 0\r\n\r\n")
    client.expect("-ERR 'Permissions Violation for Publish to \"no\"'", "MSG ok 2 0")


def test_a_connection_above_a_lowered_limit_of_subscriptions_is_closed(
    server: ServerProcess,
) -> None:
    system = system_client(server)
    client = member(server)
    few = member(server)
    client.send("SUB a 1\r\nSUB b 2\r\n")
    client.ping()
    push(system, changed(limits={"subs": 2}))
    client.expect("-ERR 'maximum subscriptions exceeded'")
    client.expect_closed()
    few.send("SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
    few.expect("-ERR 'maximum subscriptions exceeded'")


def test_users_and_accounts_expire_while_connected(server: ServerProcess) -> None:
    system = system_client(server)
    client = member(server, top={"exp": now() + 4})
    client.expect("-ERR 'User Authentication Expired'")
    client.expect_closed()
    stays = member(server)
    push(system, changed(top={"exp": now() + 4}))
    stays.expect(EXPIRED)
    stays.expect_closed()


def test_no_subscriptions_at_all_means_no_connection(server: ServerProcess) -> None:
    client = JwtClient(server, user_jwt(USER, ACCOUNT, subs=0), USER)
    assert b"-ERR 'maximum subscriptions exceeded'" in client.read_to_end()


@pytest.mark.parametrize(
    ("nats", "is_let_in"), [({}, True), ({"data": 5}, True), ({"subs": 0}, False)]
)
def test_a_user_of_version_one_has_no_limits_but_those_it_names(
    server: ServerProcess, nats: dict[str, int], is_let_in: bool
) -> None:
    fields = {"iss": ACCOUNT.public, "sub": USER.public, "iat": now(), "type": "user", "nats": nats}
    token = raw_jwt(fields, ACCOUNT, {"typ": "jwt", "alg": "ed25519"}, old_signature=True)
    client = JwtClient(server, token, USER)
    if not is_let_in:
        assert b"-ERR 'maximum subscriptions exceeded'" in client.read_to_end()
        return
    assert client.enter().ask("$SYS.REQ.USER.INFO")["user"] == USER.public


def test_user_info_names_the_user_and_its_account(server: ServerProcess) -> None:
    client = member(server, top={"exp": now() + 100})
    info = client.ask("$SYS.REQ.USER.INFO")
    assert (info["user"], info["account"]) == (USER.public, ACCOUNT.public)
    assert (info["user_name"], info["account_name"]) == ("user", "account")
    assert 0 < info["expires"] <= 100 * 10**9
    assert info["expires"] % 10**9 == 0


def test_monitoring_shows_what_jwts_say(server: ServerProcess) -> None:
    system = system_client(server)
    client = member(server, tags=["team:a"])
    client.ping()
    body = json.dumps({"auth": True, "acc": ACCOUNT.public})
    (shown,) = system.ask("$SYS.REQ.SERVER.PING.CONNZ", body)["connections"]
    assert (shown["authorized_user"], shown["account"]) == (USER.public, ACCOUNT.public)
    assert (shown["issuer_key"], shown["name_tag"]) == (ACCOUNT.public, "account")
    assert shown["tags"] == ["team:a"]
    body = json.dumps({"account": ACCOUNT.public})
    detail = system.ask("$SYS.REQ.SERVER.PING.ACCOUNTZ", body)["account_detail"]
    assert (detail["issuer_key"], detail["name_tag"]) == (OPERATOR.public, "account")
    assert detail["decoded_jwt"]["sub"] == ACCOUNT.public
    assert detail["jwt"].startswith("eyJ")
    assert not detail["expired"]


# ---------------------------------------------------------------- other ways in


def test_a_sentinel_stands_in_only_for_clients_that_have_connected(start: StartServer) -> None:
    sentinel = user_jwt(USER, ACCOUNT, bearer_token=True)
    server = start(
        memory_configuration(
            {ACCOUNT.public: account_jwt(ACCOUNT)}, more=f"default_sentinel: {sentinel}\n"
        )
    )
    client = JwtClient(server, "", None).enter()
    assert client.ask("$SYS.REQ.USER.INFO")["user"] == USER.public
    junk = JwtClient(server, "x.y.z", None).enter()
    assert junk.ask("$SYS.REQ.USER.INFO")["user"] == USER.public
    with RawClient(server.port) as silent:
        silent.send("SUB a 1\r\n")
        silent.expect("-ERR 'Authorization Violation'")


def test_a_reload_reads_preloaded_accounts_again_and_leaves_others_alone(
    start: StartServer, tmp_path: Path
) -> None:
    accounts = {key.public: account_jwt(key, issued_at=now() - 50) for key in (ACCOUNT, OTHER)}
    server = start(memory_configuration(accounts))
    client = member(server)
    bystander = JwtClient(server, user_jwt(USER, OTHER), USER).enter()
    accounts[ACCOUNT.public] = changed(revocations={"*": now() + 1000})
    path = next(tmp_path.glob("*.conf"))
    token = re.search(r"operator: (\S+)", path.read_text())
    assert token is not None
    path.write_text(memory_configuration(accounts, token[1]))
    server.signal(signal.SIGHUP)
    client.expect("-ERR 'User Authentication Revoked'")
    server.wait_for_log("Reloaded server configuration")
    bystander.ping()


def test_limits_of_a_preloaded_account_change_with_a_reload(
    start: StartServer, tmp_path: Path
) -> None:
    accounts = {ACCOUNT.public: account_jwt(ACCOUNT, issued_at=now() - 50, limits={"conn": 1})}
    server = start(memory_configuration(accounts))
    client = member(server)
    refused = JwtClient(server, user_jwt(USER, ACCOUNT), USER)
    refused.expect("-ERR 'maximum account active connections exceeded'")
    accounts[ACCOUNT.public] = changed(limits={"conn": 2})
    path = next(tmp_path.glob("*.conf"))
    token = re.search(r"operator: (\S+)", path.read_text())
    assert token is not None
    path.write_text(memory_configuration(accounts, token[1]))
    server.signal(signal.SIGHUP)
    server.wait_for_log("Reloaded server configuration")
    member(server).ping()
    client.ping()


def test_only_pinned_accounts_enter(start: StartServer) -> None:
    accounts = {key.public: account_jwt(key) for key in (ACCOUNT, OTHER)}
    more = f"resolver_pinned_accounts: [{ACCOUNT.public}]\n"
    server = start(memory_configuration(accounts, more=more))
    member(server).ping()
    system_client(server).ping()
    refused = JwtClient(server, user_jwt(USER, OTHER), USER)
    refused.expect("-ERR 'Authorization Violation'")


def test_a_browser_sends_its_jwt_as_a_cookie(start: StartServer) -> None:
    more = 'websocket { listen: "127.0.0.1:-1", no_tls: true, jwt_cookie: "ticket" }\n'
    server = start(memory_configuration({ACCOUNT.public: account_jwt(ACCOUNT)}, more=more))
    port = server.wait_for_log(r"Listening for websocket clients on ws://[\d.]+:(\d+)")[1]

    def answer(cookie: str) -> str:
        headers = {"Cookie": f"ticket={cookie}"} if cookie else {}
        with connect_websocket(
            f"ws://127.0.0.1:{port}", additional_headers=headers, compression=None
        ) as socket:
            info = socket.recv()
            assert bytes(info).startswith(b"INFO")
            socket.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
            try:
                return bytes(socket.recv()).decode().strip()
            except ConnectionClosed as closed:
                return str(closed)

    assert answer(user_jwt(USER, ACCOUNT, bearer_token=True)) == "PONG"
    for cookie in (user_jwt(USER, ACCOUNT), "", "x.y.z"):
        assert answer(cookie) == "-ERR 'Authorization Violation'"


def test_jetstream_of_an_account_is_what_its_jwt_allows(start: StartServer, tmp_path: Path) -> None:
    limits = {"mem_storage": 1 << 20, "disk_storage": 1 << 20, "streams": 1, "consumer": -1}
    accounts = {
        ACCOUNT.public: account_jwt(ACCOUNT, limits=limits),
        OTHER.public: account_jwt(OTHER),
    }
    text = memory_configuration(accounts, more=f'jetstream {{ store_dir: "{tmp_path}/js" }}\n')
    server = start(text)
    client = member(server)

    def create(name: str) -> dict[str, Any]:
        config = json.dumps({"name": name, "subjects": [name]})
        answer: dict[str, Any] = json.loads(
            client.request(f"$JS.API.STREAM.CREATE.{name}", config)[2]
        )
        return answer

    assert create("ONE")["config"]["name"] == "ONE"
    assert create("TWO")["error"]["err_code"] == 10027
    assert b'"stream":"ONE"' in client.request("ONE", "kept")[2]
    without = JwtClient(server, user_jwt(USER, OTHER), USER).enter()
    refused = json.loads(without.request("$JS.API.INFO")[2])
    assert refused["error"]["err_code"] == 10039
    server.stop()
    again = start(text)
    client = member(again)
    info = json.loads(client.request("$JS.API.STREAM.INFO.ONE")[2])
    assert info["state"]["messages"] == 1


def test_limits_of_a_tier_are_shown_as_those_of_the_tier(
    start: StartServer, tmp_path: Path
) -> None:
    tier = {"mem_storage": 1 << 20, "disk_storage": 1 << 20, "streams": 2}
    limits = {"mem_storage": 5, "disk_storage": 5, "tiered_limits": {"R1": tier}}
    accounts = {ACCOUNT.public: account_jwt(ACCOUNT, limits=limits)}
    client = member(
        start(memory_configuration(accounts, more=f'jetstream {{ store_dir: "{tmp_path}/js" }}\n'))
    )
    config = json.dumps({"name": "ONE", "max_bytes": 1000})
    client.request("$JS.API.STREAM.CREATE.ONE", config)
    info = json.loads(client.request("$JS.API.INFO")[2])
    assert not any(info["limits"].values())
    assert info["tiers"] == {
        "R1": {
            "memory": 0,
            "storage": 0,
            "reserved_memory": 0,
            "reserved_storage": 1000,
            "streams": 1,
            "consumers": 0,
            "limits": {
                "max_memory": 1 << 20,
                "max_storage": 1 << 20,
                "max_streams": 2,
                "max_consumers": 0,
                "max_ack_pending": -1,
                "memory_max_stream_bytes": -1,
                "storage_max_stream_bytes": -1,
                "max_bytes_required": False,
            },
        }
    }


@pytest.mark.both_servers
def test_either_server_takes_over_the_folder_of_the_other(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "accounts"
    path = tmp_path / "server.conf"
    path.write_text(folder_configuration(folder))
    other = {"official": "tradewind", "tradewind": "official"}[kind]
    flags = ["-c", str(path), "-a", "127.0.0.1", "-p", "-1"]
    first = ServerProcess(other, flags)
    try:
        system = system_client(first.wait_ready())
        assert push(system, changed())["code"] == 200
        (folder / "notes.txt").write_text("somebody else's")
        (folder / f"{OTHER.public}.jwt").write_text("no JWT")
    finally:
        first.stop()
    second = ServerProcess(kind, flags)
    try:
        second.wait_ready()
        member(second).ping()
        refused = JwtClient(second, user_jwt(USER, OTHER), USER)
        refused.expect("-ERR 'Authorization Violation'")
        assert (folder / "notes.txt").exists()
    finally:
        second.stop()


class AccountServer(BaseHTTPRequestHandler):
    """A web server with the JWTs of accounts."""

    tokens: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        key = self.path.rpartition("/")[2]
        body = self.tokens.get(key, "").encode()
        self.send_response(200 if body or not key else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nobody wants to know."""


def test_accounts_come_from_a_web_server(start: StartServer) -> None:
    AccountServer.tokens = {
        SYSTEM.public: account_jwt(SYSTEM),
        ACCOUNT.public: account_jwt(ACCOUNT),
        OTHER.public: account_jwt(ACCOUNT),
        SIGNER.public: "x" * (2 << 20),
    }
    with ThreadingHTTPServer(("127.0.0.1", 0), AccountServer) as web:
        Thread(target=web.serve_forever, daemon=True).start()
        text = memory_configuration({}).partition("resolver: MEMORY")[0]
        server = start(f"{text}resolver: URL(http://127.0.0.1:{web.server_port}/accounts/)\n")
        member(server).ping()
        system_client(server).ping()
        for key in (SIGNER, account_key(9)):
            refused = JwtClient(server, user_jwt(USER, key), USER)
            refused.expect("-ERR 'Authorization Violation'")
        web.shutdown()


def test_a_signature_is_of_the_nonce_and_of_nothing_else(server: ServerProcess) -> None:
    client = JwtClient(server, user_jwt(USER, ACCOUNT), None, sig=signature(b"x"))
    client.expect("-ERR 'Authorization Violation'")


def signature(message: bytes) -> str:
    return base64.urlsafe_b64encode(USER.sign(message)).rstrip(b"=").decode()
