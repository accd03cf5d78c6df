"""`tradewind auth`: operators, accounts and users, on both servers; and the page about them."""

from __future__ import annotations

import json
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_outcome import Cli
from harness import ServerProcess
from tradewind.client.core.credentials import parse_credentials
from tradewind.jwt import AccountClaims, UserClaims, decode_as

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "OPERATORS.md"
KEY = re.compile(r"\b([AOU])[A-D][A-Z2-7]{54}\b")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRADEWIND_AUTH", str(tmp_path / "auth"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "auth"


@pytest.fixture
def acme(folder: Path, offline: Cli) -> Cli:
    """An operator with one account."""
    for line in ("operator add acme", "account add orders"):
        assert offline("auth", *line.split()).code == 0
    return offline


def user_token(folder: Path, name: str) -> UserClaims:
    path = folder / "acme" / "accounts" / "orders" / "users" / f"{name}.jwt"
    return decode_as(UserClaims, path.read_text().strip())


def account_token(folder: Path) -> AccountClaims:
    path = folder / "acme" / "accounts" / "orders" / "account.jwt"
    return decode_as(AccountClaims, path.read_text().strip())


@pytest.fixture(params=["official", "tradewind"])
def operated(
    request: pytest.FixtureRequest, tmp_path: Path, acme: Cli, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServerProcess]:
    """A server of the operator."""
    config = acme("auth", "operator", "config", "--accounts", str(tmp_path / "accounts"))
    path = tmp_path / "server.conf"
    path.write_text(config.out + f'jetstream {{ store_dir: "{tmp_path}/js" }}\n')
    process = ServerProcess(
        str(request.param), ["-c", str(path), "-a", "127.0.0.1", "-p", "-1", "-D"]
    )
    try:
        monkeypatch.setenv("NATS_URL", process.wait_ready().url)
        yield process
    finally:
        process.stop()


def test_accounts_are_pushed_and_their_users_enter_until_they_are_revoked(
    acme: Cli, operated: ServerProcess, folder: Path
) -> None:
    assert acme("auth", "user", "add", "ann").code == 0
    assert acme("auth", "user", "creds", "ann", "-o", "ann.creds").code == 0
    assert stat.S_IMODE(Path("ann.creds").stat().st_mode) == 0o600
    assert acme("rtt", "--creds", "ann.creds").code != 0, "the server knows no account yet"
    pushed = acme("auth", "account", "push")
    assert (pushed.code, pushed.out) == (0, "SYS: jwt updated\norders: jwt updated\n")
    assert acme("pub", "hello", "world", "--creds", "ann.creds").code == 0
    acme("auth", "account", "revoke", "orders", "ann")
    acme("auth", "account", "push", "orders")
    assert acme("pub", "hello", "world", "--creds", "ann.creds").code != 0
    pulled = acme("auth", "account", "pull", "orders")
    assert pulled.out == "orders: already up to date\n"


def test_a_role_decides_what_its_users_may(acme: Cli, operated: ServerProcess) -> None:
    may = ("--allow-pub", "devices.{{name()}}.>", "--allow-sub", "_INBOX.>")
    assert acme("auth", "account", "role", "orders", "device", *may).code == 0
    assert acme("auth", "account", "push", "orders").code == 0
    refused = acme("auth", "user", "add", "x", "--role", "device", "--bearer")
    assert "--role sets the permissions" in refused.err
    assert acme("auth", "user", "add", "pump7", "--role", "device").code == 0
    acme("auth", "user", "creds", "pump7", "-o", "pump7.creds")
    sent = acme("pub", "devices.pump7.state", "ok", "--creds", "pump7.creds")
    assert sent.code == 0
    elsewhere = acme("pub", "devices.pump8.state", "ok", "--creds", "pump7.creds")
    assert "Permissions Violation" in elsewhere.err


def test_a_server_with_accounts_in_memory_needs_no_push(
    acme: Cli, folder: Path, tmp_path: Path
) -> None:
    acme("auth", "user", "add", "ann")
    acme("auth", "user", "creds", "ann", "-o", "ann.creds")
    (tmp_path / "server.conf").write_text(acme("auth", "operator", "config").out)
    flags = ["-c", str(tmp_path / "server.conf"), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess("tradewind", flags)
    try:
        url = process.wait_ready().url
        assert acme("pub", "a", "b", "--creds", "ann.creds", "--server", url).code == 0
        assert acme("auth", "account", "edit", "orders", "--connections", "0").code == 0
        pushed = acme("auth", "account", "push", "orders", "--server", url)
        assert pushed.out == "orders: jwt updated\n"
        assert acme("pub", "a", "b", "--creds", "ann.creds", "--server", url).code != 0
    finally:
        process.stop()


def test_flags_become_claims_and_what_is_not_named_stays(acme: Cli, folder: Path) -> None:
    acme("auth", "account", "edit", "orders", "--js-disk", "1GB", "--payload", "1KB")
    acme("auth", "account", "edit", "orders", "--connections", "5", "--no-bearer", "--tag", "A:B")
    limits = account_token(folder).nats.limits
    assert (limits.disk_storage, limits.payload, limits.conn) == (1 << 30, 1 << 10, 5)
    assert (limits.subs, limits.streams, limits.disallow_bearer) == (-1, -1, True)
    assert account_token(folder).nats.tags == ["a:b"]
    acme("auth", "user", "add", "ann", "--allow-pub", "a", "--allow-pub", "b", "--expires", "1h")
    acme("auth", "user", "edit", "ann", "--source", "10.0.0.0/8", "--subscriptions", "7")
    claims = user_token(folder, "ann")
    assert claims.nats.pub.allow == ["a", "b"]
    assert (claims.nats.src, claims.nats.subs, claims.nats.payload) == (["10.0.0.0/8"], 7, -1)
    assert claims.exp - claims.iat in range(3590, 3610)
    assert claims.account == account_token(folder).sub != claims.iss
    acme("auth", "user", "edit", "ann", "--allow-pub", "", "--expires", "never")
    assert (user_token(folder, "ann").nats.pub.allow, user_token(folder, "ann").exp) == (None, 0)


def test_what_is_kept_can_be_read_by_its_owner_only(acme: Cli, folder: Path) -> None:
    acme("auth", "user", "add", "ann")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 6
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    shown = "".join(
        acme("auth", *words.split()).out
        for words in (
            "operator show",
            "operator ls",
            "account show orders",
            "account ls",
            "user show ann",
            "user ls",
            "nkey ls",
        )
    )
    seeds = [path.read_text().strip() for path in folder.glob("keys/*.seed")]
    assert not any(seed in shown for seed in seeds)
    assert "ann" in shown
    printed = acme("auth", "user", "creds", "ann").out
    token, seed = parse_credentials(printed)
    assert decode_as(UserClaims, token) == user_token(folder, "ann")
    assert seed in seeds


def test_an_operator_that_is_strict_signs_with_signing_keys_only(
    offline: Cli, folder: Path
) -> None:
    offline("auth", "operator", "add", "acme", "--strict")
    offline("auth", "account", "add", "orders")
    offline("auth", "user", "add", "ann")
    operator = json.loads(offline("auth", "operator", "show", "--json").out)
    account = account_token(folder)
    assert account.iss in operator["nats"]["signing_keys"]
    assert user_token(folder, "ann").iss in account.scopes()
    offline("auth", "operator", "edit", "--signing-key")
    offline("auth", "account", "edit", "orders", "--signing-key")
    assert account_token(folder).iss != account.iss
    assert len(account_token(folder).scopes()) == 2


MISTAKES = [
    ("operator add acme", "operator 'acme' already exists"),
    ("operator add ../x", "a name may contain letters"),
    ("operator add .x", "a name may contain letters"),
    ("operator show --operator acne", "operator 'acne' does not exist; did you mean 'acme'?"),
    ("operator edit --remove-key X", "is not a signing key of acme"),
    ("account add orders", "account 'orders' already exists"),
    ("account add a/b", "a name may contain letters"),
    ("account add x --connections many", "--connections: a number, or unlimited, not 'many'"),
    ("account add x --js-disk lots", "--js-disk"),
    ("account add x --expires soon", "--expires"),
    ("account add x --expires 1ms", "--expires: a second or more"),
    ("account show nobody", "account 'nobody' does not exist"),
    ("account revoke orders nobody", "has no user 'nobody'"),
    ("account revoke orders all --undo", "all is not revoked"),
    ("user add x --source 10.0.0.1", 'invalid cidr "10.0.0.1" in user src limits'),
    ("user add x --allow-pub a..b", "cannot contain consecutive"),
    ("user add x --role nothing", "has no role 'nothing'"),
    ("user show x", "has no user 'x'"),
    ("user add x --account nowhere", "account 'nowhere' does not exist"),
    ("nkey gen banana", "KIND: one of server, cluster, operator, account, user"),
    ("nkey show /nowhere", "No such file"),
]


@pytest.mark.parametrize(("words", "text"), MISTAKES)
def test_mistakes_are_named_and_change_nothing(
    acme: Cli, folder: Path, words: str, text: str
) -> None:
    before = set(folder.rglob("*.jwt"))
    outcome = acme("auth", *words.split())
    assert outcome.code != 0
    assert text in outcome.err
    assert set(folder.rglob("*.jwt")) == before


def test_keys_are_made_and_shown(offline: Cli, folder: Path, tmp_path: Path) -> None:
    seed, public = offline("auth", "nkey", "gen", "user").out.split()
    (tmp_path / "seed").write_text(seed)
    assert offline("auth", "nkey", "show", str(tmp_path / "seed")).out.strip() == public
    kept = offline("auth", "nkey", "gen", "account", "--keep").out.split()
    assert offline("auth", "nkey", "ls").out.split() == kept
    assert (
        "an nkey seed must have 58 characters" in offline("auth", "nkey", "show", "/dev/null").err
    )


def test_files_of_somebody_else_are_refused_by_name(acme: Cli, folder: Path) -> None:
    path = folder / "acme" / "accounts" / "orders" / "account.jwt"
    path.write_text("not a JWT")
    outcome = acme("auth", "account", "show", "orders")
    assert f"{path}: there is no JWT" in outcome.err
    path.write_bytes(b"\xff\xfe")
    assert "account.jwt" in acme("auth", "account", "show", "orders").err


def commands() -> list[tuple[str, list[str]]]:
    """The commands of the page, each with what it prints."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for text in block.splitlines():
            if text.startswith("$ "):
                found.append((text[2:], []))
            else:
                found[-1][1].append(text)
    return found


@pytest.mark.parametrize("kind", ["official", "tradewind"])
def test_the_page_does_what_it_says(
    kind: str, offline: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: ServerProcess | None = None
    try:
        for text, wanted in commands():
            words, _, target = text.partition(" > ")
            program, *args = shlex.split(words)
            assert program == "tradewind"
            if args[:2] == ["server", "run"]:
                flags = ["-c", args[3], "-a", "127.0.0.1", "-p", "-1"]
                server = ServerProcess(kind, flags)
                monkeypatch.setenv("NATS_URL", server.wait_ready().url)
                continue
            outcome = offline(*args)
            assert outcome.code == 0, f"{text}: {outcome.err}"
            if target:
                (tmp_path / target).write_text(outcome.out)
                continue
            shown = KEY.sub(lambda key: f"{key[1]}...", outcome.out)
            shown = shown.replace(str(folder), "~/.local/share/tradewind/auth")
            expected = [re.sub(r": ([AU])[AB]\.\.\.$", r": \1...", line) for line in wanted]
            assert shown.splitlines() == expected, text
        refused = offline("pub", "hello", "again", "--creds", "ann.creds")
        assert refused.code != 0, "revoked"
    finally:
        if server is not None:
            server.stop()
