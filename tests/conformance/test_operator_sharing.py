"""Exports and imports that JWTs declare, and the tokens that private ones need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_operators import JwtClient, push, system_client

from harness import ServerProcess, StartServer
from jwt_kit import account_jwt, account_key, memory_configuration, now, user_jwt, user_key
from tradewind.jwt.claims import (
    ActivationClaims,
    ActivationFields,
    Export,
    Import,
    TraceFields,
)
from tradewind.jwt.codec import encode

EXPORTER, IMPORTER, SIGNER = account_key(1), account_key(2), account_key(3)
USER = user_key(1)
NO_RESPONDERS = b"NATS/1.0 503"


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    JwtClient.close_all()


def activation(subject: str, kind: str, **top: Any) -> str:
    fields = ActivationFields(subject=subject, kind=kind, issuer_account=EXPORTER.public)
    return encode(ActivationClaims(sub=IMPORTER.public, nats=fields, **top), SIGNER, now() - 20)


def exporting(issued_at: int, **private: Any) -> str:
    return account_jwt(
        EXPORTER,
        issued_at=issued_at,
        signing_keys=[SIGNER.public],
        exports=[
            Export(subject="open.*", type="service"),
            Export(subject="closed.>", type="service", token_req=True, **private),
            Export(subject="news.>", type="stream"),
        ],
    )


def importing(token: str, issued_at: int) -> str:
    def taken(subject: str, **fields: Any) -> Import:
        return Import(subject=subject, account=EXPORTER.public, **fields)

    return account_jwt(
        IMPORTER,
        issued_at=issued_at,
        imports=[
            taken("open.*", type="service", local_subject="far.$1"),
            taken("closed.a", type="service", token=token),
            taken("news.>", type="stream", local_subject="far.news.>"),
        ],
    )


@pytest.fixture
def server(start: StartServer, tmp_path: Path) -> ServerProcess:
    accounts = {
        EXPORTER.public: exporting(now() - 50),
        IMPORTER.public: importing(activation("closed.>", "service"), now() - 50),
    }
    text = memory_configuration(accounts)
    return start(text.replace("resolver: MEMORY", f'resolver: {{type: full, dir: "{tmp_path}/a"}}'))


def client_of(server: ServerProcess, account: Any) -> JwtClient:
    return JwtClient(server, user_jwt(USER, account), USER).enter()


class Responder:
    """A service in the exporting account that answers once at a time."""

    def __init__(self, server: ServerProcess) -> None:
        self._client = client_of(server, EXPORTER)
        self._client.send("SUB open.* 1\r\nSUB closed.> 2\r\n")
        self._client.ping()

    def answer(self, importer: JwtClient, subject: str) -> str:
        """What the service sees of a request; "" if nobody gets it."""
        importer.send(f"SUB reply 9\r\nPUB {subject} reply 1\r\nx\r\nUNSUB 9 1\r\nPING\r\n")
        line = importer.read_line()
        while line == b"PING" or line.startswith(b"INFO"):
            line = importer.read_line()
        if line.startswith(b"HMSG"):
            importer.read_exact(int(line.split()[-1]) + 2)
            importer.expect("PONG")
            return ""
        assert line == b"PONG"
        control, _, _ = self._client.read_message()
        _, seen, _, reply, *_ = control.split()
        self._client.send(f"PUB {reply} 2\r\nok\r\n")
        assert importer.read_message()[2] == b"ok"
        return seen


def test_services_and_streams_cross_accounts_as_their_jwts_say(server: ServerProcess) -> None:
    responder = Responder(server)
    importer = client_of(server, IMPORTER)
    assert responder.answer(importer, "far.x") == "open.x"
    assert responder.answer(importer, "closed.a") == "closed.a"
    assert responder.answer(importer, "closed.b") == ""
    importer.send("SUB far.news.* 3\r\n")
    importer.ping()
    publisher = client_of(server, EXPORTER)
    publisher.send("PUB news.today 2\r\nhi\r\n")
    control, _, payload = importer.read_message()
    assert (control.split()[1], payload) == ("far.news.today", b"hi")


def test_a_revoked_token_ends_the_import_of_those_who_are_connected(server: ServerProcess) -> None:
    responder = Responder(server)
    importer = client_of(server, IMPORTER)
    assert responder.answer(importer, "closed.a") == "closed.a"
    system = system_client(server)
    push(system, exporting(now(), revocations={IMPORTER.public: now() - 10}))
    assert responder.answer(importer, "closed.a") == ""
    assert responder.answer(importer, "far.x") == "open.x"


def test_a_token_of_somebody_else_opens_nothing(server: ServerProcess) -> None:
    system = system_client(server)
    responder = Responder(server)
    importer = client_of(server, IMPORTER)
    fields = ActivationFields(subject="closed.>", kind="service", issuer_account=EXPORTER.public)
    forged = encode(ActivationClaims(sub=IMPORTER.public, nats=fields), account_key(9), now())
    push(system, importing(forged, now()))
    assert responder.answer(importer, "closed.a") == ""


def test_cve_2020_28466_imports_that_form_a_cycle_are_left_out(server: ServerProcess) -> None:
    """Two accounts import the same service from each other. CVE-2022-42709 was the same again."""
    system = system_client(server)
    for own, other in ((EXPORTER, IMPORTER), (IMPORTER, EXPORTER)):
        imports = [Import(subject="loop", account=other.public, type="service")]
        exports = [Export(subject="loop", type="service")]
        token = account_jwt(own, issued_at=now() + 1, imports=imports, exports=exports)
        assert push(system, token)["code"] == 200
    for account in (EXPORTER, IMPORTER):
        client = client_of(server, account)
        client.send("SUB reply 1\r\nPUB loop reply 1\r\nx\r\n")
        client.ping_through()


def test_a_token_expires_while_its_import_is_used(server: ServerProcess) -> None:
    system = system_client(server)
    responder = Responder(server)
    importer = client_of(server, IMPORTER)
    ends = now() + 4
    push(system, importing(activation("closed.>", "service", exp=ends), now()))
    assert responder.answer(importer, "closed.a") == "closed.a"
    # Not a request in between: one that is under way when the token expires gets no answer.
    while now() <= ends:
        importer.ping_through()
    if server.kind == "official":
        # It goes on with a token that has expired, until the account is loaded anew.
        assert responder.answer(importer, "closed.a") == "closed.a"
        return
    assert responder.answer(importer, "closed.a") == ""


@pytest.mark.parametrize("sampling", [0, 100])
def test_messages_are_traced_to_where_the_jwt_of_the_account_says(
    start: StartServer, sampling: int
) -> None:
    trace = TraceFields(dest="traces", sampling=sampling)
    server = start(memory_configuration({EXPORTER.public: account_jwt(EXPORTER, trace=trace)}))
    client = client_of(server, EXPORTER)
    client.send("SUB traces 1\r\n")
    header = "NATS/1.0\r\ntraceparent: a-b-c-01\r\n\r\n"
    client.send(f"HPUB nobody {len(header)} {len(header)}\r\n{header}\r\n")
    events = json.loads(client.read_message()[2])["events"]
    assert [(event["type"], event["acc"]) for event in events] == [("in", EXPORTER.public)]
