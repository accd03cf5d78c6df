"""Cookies, tokens and logins, without a server."""

from __future__ import annotations

import pytest

from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.web import sessions as module
from tradewind.dashboard.web.sessions import (
    IDLE_SECONDS,
    LOGINS_MAX,
    NOTICES_MAX,
    LoginRefusedError,
    LoginSession,
    Sessions,
    login_settings,
)
from tradewind.nkeys import KeyPair


class FakeWorkspace:
    """Only knows whether it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


def make(now: list[float] | None = None) -> Sessions:
    times = now or [0.0]
    return Sessions(ConnectOptions(), needs_login=True, clock=lambda: times[0])


async def test_a_token_fits_only_the_session_and_the_process_that_made_it() -> None:
    one, other = make(), make()
    first, second = one.new_id(), one.new_id()
    assert one.is_csrf(first, one.csrf(first))
    assert not one.is_csrf(second, one.csrf(first))
    assert not other.is_csrf(first, one.csrf(first))
    assert not one.is_csrf(first, "")
    assert not one.is_csrf(first, "\udcff")


async def test_a_notice_is_told_once_and_notices_are_bounded() -> None:
    sessions = make()
    for number in range(NOTICES_MAX + 10):
        sessions.tell(str(number), "done")
    assert sessions.told("0") == ""
    assert sessions.told(str(NOTICES_MAX + 9)) == "done"
    assert sessions.told(str(NOTICES_MAX + 9)) == ""


async def test_a_login_that_nobody_uses_ends_with_its_connection() -> None:
    now = [0.0]
    sessions = make(now)
    workspace = FakeWorkspace()
    sessions._logins["id"] = LoginSession(workspace, "u", 0.0)  # type: ignore[arg-type]
    now[0] = IDLE_SECONDS - 1
    assert sessions.find("id") is not None
    now[0] += IDLE_SECONDS + 1
    assert sessions.find("id") is None
    await sessions.drop_idle()
    assert workspace.is_closed
    assert len(sessions) == 0


async def test_the_number_of_logins_is_bounded() -> None:
    sessions = make()
    for number in range(LOGINS_MAX):
        workspace = FakeWorkspace()
        sessions._logins[str(number)] = LoginSession(workspace, "u", 0.0)  # type: ignore[arg-type]
    with pytest.raises(LoginRefusedError, match="try again later"):
        await sessions.log_in({"user": "u", "password": "p"})


async def test_nobody_is_let_in_without_a_login() -> None:
    assert make().find("anything") is None


async def test_a_server_that_is_away_is_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOGIN_SECONDS", 0.1)
    monkeypatch.setattr(module, "WRONG_SECONDS", 0.0)
    sessions = Sessions(ConnectOptions(servers="nats://127.0.0.1:1"), needs_login=True)
    with pytest.raises(LoginRefusedError, match="does not respond"):
        await sessions.log_in({"user": "u", "password": "secret"})
    assert len(sessions) == 0


def test_a_login_form_replaces_the_login_of_the_dashboard() -> None:
    for fields in ({"user": "u", "password": "p"}, {"token": "t"}):
        made = login_settings(fields)
        assert {name for name, value in made.items() if value} == set(fields)
        assert "nkey_seed" in made
        assert "credentials" in made


def test_a_seed_is_taken_and_a_broken_credentials_file_is_not() -> None:
    seed = KeyPair.create("U").seed
    assert login_settings({"credentials": f" {seed}\n"})["nkey_seed"] == seed
    with pytest.raises(LoginRefusedError):
        login_settings({"credentials": "-----BEGIN NATS USER JWT-----\nx"})


@pytest.mark.parametrize("fields", [{}, {"user": "u"}, {"password": "p"}, {"credentials": " "}])
def test_half_a_login_is_refused_with_what_is_missing(fields: dict[str, str]) -> None:
    with pytest.raises(LoginRefusedError, match="user and a password"):
        login_settings(fields)


def test_a_choice_of_a_context_changes_the_token_of_forms() -> None:
    contexts = {"staging": ConnectOptions(servers="nats://127.0.0.1:1")}
    sessions = Sessions(ConnectOptions(), needs_login=False, contexts=contexts)
    before = sessions.csrf("visitor")
    sessions.choose("visitor", "staging")
    assert not sessions.is_csrf("visitor", before)
    other = sessions.csrf("somebody")
    assert sessions.is_csrf("somebody", other)
    sessions.choose("visitor", "")
    assert sessions.is_csrf("visitor", before)
    with pytest.raises(LoginRefusedError, match="no context 'x'"):
        sessions.choose("visitor", "x")
    with_logins = Sessions(ConnectOptions(), needs_login=True, contexts=contexts)
    with pytest.raises(LoginRefusedError, match="Log out first"):
        with_logins.choose("visitor", "staging")
