"""`tradewind context`: the files that the nats tool has, too."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from cli_outcome import Cli
from tradewind.client.core.contexts import load_context


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "config" / "nats"


def test_a_context_is_written_as_the_nats_tool_writes_it(offline: Cli, folder: Path) -> None:
    outcome = offline(
        *("context", "add", "prod", "--server", "nats://a:1,nats://b:2", "--user", "u"),
        *("--password", "very secret", "--js-domain", "hub", "--description", "The real one"),
    ).ok()
    path = folder / "context" / "prod.json"
    fields = json.loads(path.read_text())
    assert fields["url"] == "nats://a:1,nats://b:2"
    assert (fields["user"], fields["password"]) == ("u", "very secret")
    assert (fields["jetstream_domain"], fields["description"]) == ("hub", "The real one")
    assert {"nkey", "creds", "token", "color_scheme", "socks_proxy"} <= set(fields)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "very secret" not in outcome.out
    options = load_context("prod")
    assert (options.user, options.jetstream_domain) == ("u", "hub")


def test_saving_again_changes_only_what_is_given(offline: Cli, folder: Path) -> None:
    path = folder / "context" / "x.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"url": "nats://a:1", "creds": "/c", "windows_cert_store": "user"}')
    offline("ctx", "save", "x", "--description", "new").ok()
    fields = json.loads(path.read_text())
    assert (fields["url"], fields["creds"], fields["description"]) == ("nats://a:1", "/c", "new")
    assert fields["windows_cert_store"] == "user"


def test_a_user_without_a_password_is_a_token(offline: Cli) -> None:
    offline("ctx", "add", "t", "--user", "s3cr3t").ok()
    options = load_context("t")
    assert (options.token, options.user) == ("s3cr3t", "")


def test_selecting_goes_to_a_context_and_back(offline: Cli, folder: Path) -> None:
    for name in ("one", "two"):
        offline("ctx", "add", name, "--server", f"nats://{name}:4222").ok()
    offline("ctx", "select", "one").ok()
    assert (folder / "context.txt").read_text() == "one"
    offline("ctx", "select", "two").ok()
    assert (folder / "previous-context.txt").read_text() == "one"
    assert 'Context "one"' in offline("ctx", "-").ok().out
    assert offline("ctx", "previous").ok().out.startswith('NATS Configuration Context "two"')
    listed = offline("ctx", "ls").ok().out
    assert "two*" in listed
    assert "one*" not in listed
    assert offline("ctx", "info", "--json").ok().json["url"] == "nats://two:4222"
    offline("ctx", "unselect").ok()
    assert not (folder / "context.txt").exists()
    assert offline("ctx", "info").code == 1


def test_listing_shows_names_and_no_secrets(offline: Cli) -> None:
    offline("ctx", "add", "b", "--token", "hidden-token", "--server", "nats://u:hidden-pw@h").ok()
    offline("ctx", "add", "a").ok()
    assert offline("ctx", "ls", "--names").ok().out == "a\nb\n"
    shown = offline("ctx", "ls", "--json").ok()
    assert [each["name"] for each in shown.json] == ["a", "b"]
    assert shown.json[1]["url"] == "nats://u:********@h"
    everything = shown.out + offline("ctx", "info", "b").ok().out
    assert "hidden" not in everything


def test_copies_do_not_overwrite(offline: Cli) -> None:
    offline("ctx", "add", "a", "--server", "nats://a:1", "--description", "first").ok()
    offline("ctx", "copy", "a", "b", "--description", "second").ok()
    assert offline("ctx", "info", "b", "--json").ok().json["url"] == "nats://a:1"
    again = offline("ctx", "cp", "a", "b")
    assert again.code == 1
    assert "already exists" in again.err


def test_removing_the_selected_context_unselects_it(offline: Cli, folder: Path) -> None:
    offline("ctx", "add", "a", "--select").ok()
    refused = offline("ctx", "rm", "a")
    assert refused.code == 2
    assert "--force" in refused.err
    offline("ctx", "rm", "a", "-f").ok()
    assert offline("ctx", "ls").ok().out == "No known contexts\n"
    assert not (folder / "context.txt").exists()


@pytest.mark.parametrize("command", ["info", "select", "edit"])
def test_an_unknown_context_gets_near_names(
    offline: Cli, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    offline("ctx", "add", "production").ok()
    outcome = offline("ctx", command, "prodution")
    assert outcome.code == 1
    assert "did you mean 'production'?" in outcome.err


@pytest.mark.parametrize("name", ["../evil", "a/b", ".."])
def test_a_name_stays_in_the_folder(offline: Cli, name: str) -> None:
    outcome = offline("ctx", "add", name)
    assert outcome.code == 1
    assert "must not contain slashes" in outcome.err


def test_an_edit_that_breaks_the_file_changes_nothing(
    offline: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline("ctx", "add", "a", "--server", "nats://a:1").ok()
    path = folder / "context" / "a.json"
    before = path.read_bytes()
    for script in ("s/nats:/{{/;s/,$//", 's/"tls_first": false/"tls_first": "maybe"/'):
        monkeypatch.setenv("EDITOR", f"sed -i '{script}'")
        outcome = offline("ctx", "edit", "a")
        assert outcome.code == 1
        assert "nothing was changed" in outcome.err
        assert path.read_bytes() == before
    monkeypatch.setenv("EDITOR", "sed -i s/a:1/b:2/")
    offline("ctx", "edit", "a").ok()
    assert json.loads(path.read_text())["url"] == "nats://b:2"


def test_validating_finds_files_that_are_missing(offline: Cli, tmp_path: Path) -> None:
    (tmp_path / "there.creds").write_text("x")
    offline("ctx", "add", "good", "--creds", str(tmp_path / "there.creds")).ok()
    offline("ctx", "validate").ok()
    offline("ctx", "add", "bad", "--creds", str(tmp_path / "gone.creds")).ok()
    outcome = offline("ctx", "validate")
    assert outcome.code == 1
    assert "there.creds (OK)" in outcome.out
    assert "gone.creds (ERROR)" in outcome.out
