"""The gate against a naive model of it, over random configurations and credentials."""

from __future__ import annotations

import base64
from pathlib import Path
from tempfile import TemporaryDirectory

import bcrypt
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from certificates import Authority
from thoroughness import some
from tradewind import nkeys
from tradewind.broker.identity import Credentials, DeferredCheck, Identity, Rejection
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

NONCE = b"nonce-of-model"
KEYS = [nkeys.KeyPair(nkeys.USER, bytes([number]) * 32) for number in (1, 2)]
HASHES = {
    password: bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode() for password in "pq"
}
PLAIN = {hashed: password for password, hashed in HASHES.items()}
NAMES = ["a", "b", "CN=a", "CN=b"]

with TemporaryDirectory() as directory:
    AUTHORITY = Authority(Path(directory))
    CERTIFICATES = {name: AUTHORITY.client(subject=name).der for name in ("CN=a", "CN=c")}

secrets = st.sampled_from(["", "p", "q", HASHES["p"], HASHES["q"]]).map(Secret)
types = st.sampled_from(
    [frozenset(), frozenset({"STANDARD"}), frozenset({"WEBSOCKET"}), frozenset({"MQTT"})]
)
members = st.builds(
    UserOptions, user=st.sampled_from(NAMES), password=secrets, connection_types=types
) | st.builds(
    UserOptions, nkey=st.sampled_from([key.public for key in KEYS]), connection_types=types
)
tls_blocks = st.sampled_from([None, TlsOptions(), TlsOptions(verify_and_map=True)])
simple = st.builds(
    AuthorizationOptions,
    user=st.sampled_from(["", "a"]),
    password=secrets,
    token=st.sampled_from(["", "", "t", HASHES["p"]]).map(Secret),
)


@st.composite
def servers(draw: st.DrawFn) -> ServerOptions:
    """Options that do not contradict themselves, with none to three users in one or two places."""
    unique = st.lists(members, max_size=3, unique_by=lambda member: member.nkey or member.user)
    users = draw(unique)
    place = draw(st.sampled_from(["$G", "A", "$SYS"]))
    first, rest = users[:1], users[1:]
    names = [""] + [user.nkey or user.user for user in users]
    accounts = dict.fromkeys(draw(st.sets(st.sampled_from(["A", "$SYS"]))), ())
    if place != "$G":
        accounts[place] = tuple(rest)
    listed = tuple(first + (rest if place == "$G" else []))
    if place == "$SYS" and draw(st.booleans()):
        listed, accounts = (), {"$SYS": tuple(users)}
    bare = st.just(AuthorizationOptions())
    own = draw(bare if users else simple)
    return ServerOptions(
        authorization=replace(draw(bare | simple), users=listed),
        accounts={name: AccountOptions(name, users=found) for name, found in accounts.items()},
        no_auth_user=draw(st.sampled_from(names)),
        tls=draw(tls_blocks),
        websocket=draw(
            st.none()
            | st.builds(
                WebsocketOptions,
                authorization=st.sampled_from([None, own]),
                no_auth_user=st.sampled_from(names),
                tls=tls_blocks,
            )
        ),
    )


texts = st.sampled_from(["", "", "", "p", "q", "t", HASHES["p"]])


@st.composite
def presented(draw: st.DrawFn) -> Credentials:
    key, signer = draw(st.sampled_from([None, None, *KEYS])), draw(st.sampled_from([None, *KEYS]))
    return Credentials(
        user=draw(st.sampled_from(["", "", "c", *NAMES])),
        password=draw(texts),
        token=draw(texts),
        nkey=key.public if key else "",
        signature=base64.b64encode(signer.sign(NONCE)).decode() if signer else "",
        jwt=draw(st.sampled_from(["", "x.y.z"])),
        nonce=NONCE,
        connection_type=draw(st.sampled_from(["STANDARD", "WEBSOCKET"])),
        certificate=draw(st.sampled_from([None, *CERTIFICATES.values()])),
    )


def model(options: ServerOptions, listener: str, sent: Credentials) -> tuple[str, str] | None:
    """(account, name) of who enters, None for who does not: the rules again, plainly."""
    own = options.websocket if listener == "websocket" else None
    block = own.authorization if own and own.authorization else AuthorizationOptions()
    has_own = own is not None and bool(block.user or block.token or own.no_auth_user)
    authorization = block if has_own else options.authorization
    no_auth_user = own.no_auth_user if own and has_own else options.no_auth_user
    tls = (own.tls if own else None) if listener == "websocket" else options.tls
    members = [("$G", member) for member in options.authorization.users]
    members += [(a.name, member) for a in options.accounts.values() for member in a.users]
    system_only = list(options.accounts) == ["$SYS"] and not options.no_auth_user
    strangers = system_only and options.authorization == AuthorizationOptions() and not has_own
    by_name = {member.nkey or member.user: (account, member) for account, member in members}
    has_nkeys = any(member.nkey for _, member in members)
    has_users = any(member.user for _, member in members) or strangers
    if not (members or strangers or authorization.user or authorization.token):
        return "$G", sent.nkey or sent.user or ("[REDACTED]" if sent.token else "")

    def same(secret: Secret, text: str) -> bool:
        return text == PLAIN.get(secret.reveal(), secret.reveal())

    def enter(name: str, password: str | None, *, nkey: bool = False) -> tuple[str, str] | None:
        account, member = by_name.get(name, ("", UserOptions()))
        allowed = not member.connection_types or sent.connection_type in member.connection_types
        known = name in by_name and bool(member.nkey) == nkey
        right = password is None or same(member.password, password)
        return (account, name) if known and allowed and right else None

    nothing = not (sent.user or sent.password or sent.token)
    if has_nkeys and (sent.nkey or (nothing and no_auth_user[:1] == "U")):
        name = sent.nkey or no_auth_user
        signer = next(key for key in KEYS if key.public == name).sign(NONCE)
        proved = base64.b64encode(signer).decode() == sent.signature or name == no_auth_user
        return enter(name, None, nkey=True) if proved else None
    if has_users and tls is not None and tls.verify_and_map:
        names = [name for name, der in CERTIFICATES.items() if der == sent.certificate]
        return enter(names[0], sent.password) if names else None
    if has_users and nothing and (strangers or no_auth_user):
        hashed = not strangers and by_name[no_auth_user][1].password.reveal() in PLAIN
        return ("$G", "") if strangers else None if hashed else enter(no_auth_user, None)
    if has_users and sent.user:
        return enter(sent.user, sent.password)
    if authorization.token:
        return ("$G", "[REDACTED]") if same(authorization.token, sent.token) else None
    if authorization.user and authorization.user == sent.user:
        return ("$G", sent.user) if same(authorization.password, sent.password) else None
    return None


@pytest.mark.slow
@settings(max_examples=some(200, 600))
@given(servers(), st.sampled_from(["standard", "websocket"]), st.lists(presented(), min_size=5))
def test_the_gate_decides_as_the_model(
    options: ServerOptions, listener: Listener, attempts: list[Credentials]
) -> None:
    gate = build_gate(options, listener)
    for credentials in attempts:
        answer = gate.check(credentials)
        final = answer.decide() if isinstance(answer, DeferredCheck) else answer
        expected = model(options, listener, credentials)
        event("accepted" if expected else "refused")
        if expected is None:
            assert isinstance(final, Rejection), final
        else:
            assert isinstance(final, Identity), final
            assert (final.account, final.user) == expected


@pytest.mark.slow
@settings(max_examples=some(100, 300))
@given(servers(), st.sampled_from(["standard", "websocket"]))
def test_announcing_no_auth_means_that_presenting_nothing_enters(
    options: ServerOptions, listener: Listener
) -> None:
    gate = build_gate(options, listener)
    if not gate.auth_required:
        assert isinstance(gate.check(Credentials(connection_type=listener.upper())), Identity)
    assert gate.nonce_required == any(
        member.nkey
        for members in (
            options.authorization.users,
            *(account.users for account in options.accounts.values()),
        )
        for member in members
    )


@pytest.mark.slow
@settings(max_examples=some(100, 300))
@given(servers(), st.builds(Credentials, *[st.text(max_size=8)] * 6, st.binary(max_size=8)))
def test_random_credentials_never_raise(options: ServerOptions, credentials: Credentials) -> None:
    answer = build_gate(options).check(credentials)
    final = answer.decide() if isinstance(answer, DeferredCheck) else answer
    assert isinstance(final, Identity | Rejection)
