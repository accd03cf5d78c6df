"""Holes that nats-server once had, tried on both servers: each test is named after its advisory.

The others of docs/SECURITY.md have their tests where the code that they concern is tested.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_operators import JwtClient, deletion, push, system_client

from harness import ServerProcess, StartServer
from jwt_kit import (
    OPERATOR,
    SYSTEM,
    account_jwt,
    account_key,
    memory_configuration,
    now,
    raw_jwt,
    user_jwt,
    user_key,
)
from tradewind.jwt.claims import (
    ActivationClaims,
    ActivationFields,
    Import,
    SubjectClaims,
)
from tradewind.jwt.codec import encode
from tradewind.store.format import s2

ACCOUNT, OTHER, VICTIM = account_key(1), account_key(2), account_key(3)
USER = user_key(1)
STORAGE = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    JwtClient.close_all()


@pytest.fixture
def server(start: StartServer, tmp_path: Path) -> ServerProcess:
    accounts = {key.public: account_jwt(key, limits=STORAGE) for key in (ACCOUNT, OTHER)}
    text = memory_configuration(accounts).replace(
        "resolver: MEMORY", f'resolver: {{type: full, dir: "{tmp_path}/a/b", allow_delete: true}}'
    )
    return start(f'{text}jetstream {{ store_dir: "{tmp_path}/js" }}\n')


def member_of(server: ServerProcess, **fields: Any) -> JwtClient:
    return JwtClient(server, user_jwt(USER, ACCOUNT, **fields), USER).enter()


def refused(server: ServerProcess, token: str, **options: Any) -> None:
    client = JwtClient(server, token, USER, **options)
    client.expect("-ERR 'Authorization Violation'")


def test_cve_2020_26521_claims_in_a_state_that_no_tool_makes(server: ServerProcess) -> None:
    """An account signs users whose parts are missing, null or of other types."""
    common = {"iss": ACCOUNT.public, "sub": USER.public, "iat": now()}
    odd: list[Any] = [
        {"type": "user", "version": 2, "pub": None, "sub": None, "times": None, "src": None},
        {"type": "user", "version": 2, "times": [None]},
        {"type": "user", "version": 2, "pub": {"allow": [None]}},
        {"type": "user", "version": 2, "resp": {}},
        {"type": "user", "version": 2, "src": {}},
        {"type": "user"},
        {},
        None,
        [],
        "user",
    ]
    for fields in odd:
        client = JwtClient(server, raw_jwt({**common, "nats": fields}, ACCOUNT), USER)
        client.read_line()
    for document in (None, [], 5, {}, {"nats": {"type": "user", "version": 2}}):
        refused(server, raw_jwt(document, ACCOUNT))
    member_of(server).ping()


def test_cve_2020_26892_credentials_expire_and_are_revoked(server: ServerProcess) -> None:
    refused(server, user_jwt(USER, ACCOUNT, top={"exp": now() - 1}))
    member_of(server, top={"exp": now() + 60}).ping()
    system = system_client(server)
    push(system, account_jwt(ACCOUNT, issued_at=now() + 1, revocations={USER.public: now() - 5}))
    refused(server, user_jwt(USER, ACCOUNT, issued_at=now() - 10, top={"exp": now() + 60}))
    member_of(server).ping()


def test_cve_2021_3127_an_import_token_is_for_its_account_and_subject(
    server: ServerProcess,
) -> None:
    system = system_client(server)

    def importing(to: str, subject: str) -> str:
        claims = ActivationClaims(sub=to, nats=ActivationFields(subject="a.b", kind="stream"))
        token = encode(claims, VICTIM, now())
        entry = Import(subject=subject, account=VICTIM.public, type="stream", token=token)
        return account_jwt(ACCOUNT, issued_at=now() + 1, imports=[entry])

    answer = push(system, importing(OTHER.public, "a.b"))
    assert "activation token doesn't match account it is being included in" in answer["description"]
    answer = push(system, importing(ACCOUNT.public, "a.c"))
    assert "doesn't match import" in answer["description"]
    assert push(system, importing(ACCOUNT.public, "a.b"))["code"] == 200


def test_cve_2022_24450_a_client_cannot_name_its_account(server: ServerProcess) -> None:
    token = user_jwt(USER, ACCOUNT)
    for account in (SYSTEM.public, OTHER.public, "$SYS", "$G"):
        client = JwtClient(server, token, USER, account=account, protocol=1)
        line = client.read_line()
        if line == b"PONG":  # ignored: then it is where its JWT says
            assert json.loads(client.read_line()[5:])["remote_account"] == ACCOUNT.public
        else:
            assert line == b"-ERR 'Authorization Violation'"


def restored(client: JwtClient, name: str, data: bytes) -> dict[str, Any]:
    """Upload a backup of a stream; gives the answer to the last chunk."""
    request = {"config": {"name": name, "subjects": [name]}, "state": {}}
    begun = client.request(f"$JS.API.STREAM.RESTORE.{name}", json.dumps(request))[2]
    place = json.loads(begun)["deliver_subject"]
    assert client.request(place, data)[2] == b""
    answer: dict[str, Any] = json.loads(client.request(place)[2])
    return answer


def everything_below(folder: Path) -> Iterator[Path]:
    """Also while the server removes what it made on the way."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))


EVIL = b"evil" * 200


HOSTILE_MEMBERS = [
    (tarfile.REGTYPE, "../up", ""),
    (tarfile.REGTYPE, "../../../../../../../../up", ""),
    (tarfile.REGTYPE, "OUTSIDE/up", ""),
    (tarfile.REGTYPE, "msgs/../../../../../../up", ""),
    (tarfile.REGTYPE, "obs/../../../../../../../up/meta.inf", ""),
    (tarfile.SYMTYPE, "msgs", "OUTSIDE"),
    (tarfile.SYMTYPE, "meta.inf", "OUTSIDE/up"),
    (tarfile.LNKTYPE, "msgs/1.blk", "OUTSIDE/there"),
    (tarfile.DIRTYPE, "../up", ""),
]


def test_cve_2022_26652_members_of_a_backup_lead_nowhere_else(
    server: ServerProcess, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "there").write_bytes(b"mine")
    client = member_of(server)
    for kind, name, target in HOSTILE_MEMBERS:
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for one, kind_of_one, leads_to in ((name, kind, target), ("msgs/1.blk", b"0", "")):
                member = tarfile.TarInfo(one.replace("OUTSIDE", str(outside)))
                member.type = kind_of_one
                member.linkname = leads_to.replace("OUTSIDE", str(outside))
                member.size = len(EVIL) if kind_of_one == tarfile.REGTYPE else 0
                tar.addfile(member, io.BytesIO(EVIL))
        answer = restored(client, "BAD", s2.compress(plain.getvalue()))
        assert answer["error"]["code"] in (400, 500), name
    assert [path.name for path in outside.iterdir()] == ["there"]
    assert (outside / "there").read_bytes() == b"mine"
    for path in everything_below(tmp_path):
        assert not path.is_symlink()
        assert path.name != "up"
        if path.is_file() and not path.is_relative_to(tmp_path / "js"):
            assert b"evil" not in path.read_bytes()
    client.ping()


def test_cve_2022_42708_a_stream_has_no_odd_number_of_replicas(server: ServerProcess) -> None:
    client = member_of(server)
    for number in (-1, 2, 6, 2**31, 2**63 - 1, -(2**63)):
        config = json.dumps({"name": "R", "subjects": ["r"], "num_replicas": number})
        answer = json.loads(client.request("$JS.API.STREAM.CREATE.R", config)[2])
        assert answer["error"]["code"] in (400, 500), number
    client.ping()


def test_cve_2022_28357_the_name_of_an_account_is_no_path(
    server: ServerProcess, tmp_path: Path
) -> None:
    system = system_client(server)
    before = {path.name for path in tmp_path.rglob("*.jwt*")}
    for name in ("../up", "../../up", "/tmp/up", "", ".", "x" * 300, ACCOUNT.public + "/../up"):
        fields = {"type": "account", "version": 2}
        token = raw_jwt({"iss": OPERATOR.public, "sub": name, "nats": fields}, OPERATOR)
        assert push(system, token)["code"] == 500
    answer = system.ask("$SYS.REQ.CLAIMS.DELETE", deletion(["../../a/b/" + ACCOUNT.public]))
    assert answer["code"] == 500
    assert {path.name for path in tmp_path.rglob("*.jwt*")} == before
    assert not (tmp_path / "up.jwt").exists()


@pytest.mark.parametrize("queue", ["", " workers"])
def test_cve_2022_29946_and_2026_17_denied_subjects_do_not_come_by_wildcards(
    server: ServerProcess, queue: str
) -> None:
    rules = SubjectClaims(allow=["a.>", "a.*"], deny=["a.secret", "*.hidden.>"])
    reader = member_of(server, sub=rules)
    writer = member_of(server)
    reader.send(f"SUB a.*{queue} 1\r\nSUB a.>{queue} 2\r\nSUB a.hidden.*{queue} 3\r\n")
    group = ' using queue "workers"' if queue else ""
    reader.expect(f"-ERR 'Permissions Violation for Subscription to \"a.hidden.*\"{group}'")
    reader.ping()
    for subject in ("a.secret", "a.hidden.x", "a.open"):
        writer.send(f"PUB {subject} 0\r\n\r\n")
    writer.ping()
    seen = {reader.read_message()[0].split()[1] for _ in range(1 if queue else 2)}
    assert seen == {"a.open"}
    reader.ping()


def test_2026_18_a_denied_subject_stays_denied_with_a_queue(server: ServerProcess) -> None:
    rules = SubjectClaims(allow=[">"], deny=["secret", "open bad"])
    client = member_of(server, sub=rules)
    client.send("SUB secret good 1\r\nSUB open bad 2\r\nSUB open good 3\r\n")
    client.expect(
        '-ERR \'Permissions Violation for Subscription to "secret" using queue "good"\'',
        '-ERR \'Permissions Violation for Subscription to "open" using queue "bad"\'',
    )
    client.ping()


def test_2025_01_streams_of_another_account_are_out_of_reach(server: ServerProcess) -> None:
    victim = JwtClient(server, user_jwt(USER, OTHER), USER).enter()
    config = json.dumps({"name": "KEPT", "subjects": ["kept"]})
    victim.request("$JS.API.STREAM.CREATE.KEPT", config)
    assert b'"seq":1' in victim.request("kept", "x")[2]
    attacker = member_of(server)
    for subject in (
        f"$JS.API.ACCOUNT.PURGE.{OTHER.public}",
        f"$JS.API.ACCOUNT.STREAM.MOVE.{OTHER.public}.KEPT",
        f"$JS.API.ACCOUNT.STREAM.CANCEL_MOVE.{OTHER.public}.KEPT",
        "$JS.API.SERVER.REMOVE",
        "$JS.API.STREAM.DELETE.KEPT",
        "$JS.API.STREAM.PURGE.KEPT",
        "$JS.API.STREAM.LEADER.STEPDOWN.KEPT",
    ):
        attacker.send(f"PUB {subject} 2\r\n{{}}\r\n")
    attacker.ping()
    info = json.loads(victim.request("$JS.API.STREAM.INFO.KEPT")[2])
    assert info["state"]["messages"] == 1


def test_2026_12_a_restore_is_of_the_stream_that_its_subject_names(server: ServerProcess) -> None:
    allowed = ["$JS.API.STREAM.RESTORE.MINE", "in.>"]
    client = member_of(server, pub=SubjectClaims(allow=allowed))
    request = {"config": {"name": "YOURS", "subjects": ["y"]}, "state": {}}
    answer = json.loads(client.request("$JS.API.STREAM.RESTORE.MINE", json.dumps(request))[2])
    assert "error" in answer
    client.send("PUB $JS.API.STREAM.RESTORE.YOURS in.x 2\r\n{}\r\n")
    client.expect("-ERR 'Permissions Violation for Publish to \"$JS.API.STREAM.RESTORE.YOURS\"'")


def test_2026_28_pages_of_connections_have_no_end_to_run_over(server: ServerProcess) -> None:
    client = member_of(server)
    for offset, limit in ((2**63 - 1, 1024), (1, 2**63 - 1), (2**63 - 1, 2**63 - 1)):
        body = json.dumps({"offset": offset, "limit": limit})
        answer = json.loads(client.request("$SYS.REQ.ACCOUNT.PING.CONNZ", body)[2])
        assert answer["server"]["id"]
    client.ping()


def test_2026_14_secrets_of_the_command_line_are_not_shown(start: StartServer) -> None:
    server = start(memory_configuration({}), "--user", "u", "--pass", "hunter2")
    system = system_client(server)
    for page in ("EXPVARZ", "VARZ"):
        answer = system.request(f"$SYS.REQ.SERVER.PING.{page}")[2]
        assert b'"data"' in answer
        assert b"hunter2" not in answer
