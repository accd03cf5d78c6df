"""Exports and imports judged by `nats-server -t` and by ours, with the same texts where those help.

What nats-server takes and makes nothing of is refused here; it is in `STRICTER`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tradewind.route import sharing_rules
from tradewind.server.lifecycle.command import run_command

OFFICIAL = Path(sys.executable).parent / "nats-server"


def both(exports: str, imports: str = "", more: str = "") -> str:
    """An account that exports and one that imports."""
    return f"accounts {{\n E {{ exports: [{exports}] }}\n I {{ imports: [{imports}] }}\n {more}\n}}"


ACCEPTED = [
    both("{stream: a}", "{stream: {account: E, subject: a}}"),
    both("{service: a, accounts: []}", "{service: {account: E, subject: a}}"),
    both("{stream: a}", "{stream: {account: E, subject: a}, prefix: 'x.'}"),
    both("{stream: a}", "{stream: {account: E, subject: a}, prefix: ''}"),
    both("{stream: a}", "{stream: {account: E, subject: a}, to: q}"),
    both("{stream: 'a.*.*'}", "{stream: {account: E, subject: 'a.*.*'}, to: 'y.$2.$1'}"),
    both(
        "{stream: 'a.*.*'}",
        "{stream: {account: E, subject: 'a.*.*'}, to: 'y.{{wildcard(2)}}.{{wildcard(1)}}'}",
    ),
    both("{stream: 'a.*.*'}", "{stream: {account: E, subject: 'a.*.*'}, to: 'y.*.*'}"),
    both("{stream: 'a.*.>'}", "{stream: {account: E, subject: 'a.*.>'}, to: 'y.$1.>'}"),
    both("{stream: 'a.>'}", "{stream: {account: E, subject: 'a.>'}, to: 'y.>'}"),
    both("{stream: 'a.>'}", "{stream: {account: E, subject: 'a.b.>'}, to: 'y.>'}"),
    both("{stream: '>'}", "{stream: {account: E, subject: '>'}, prefix: 'y'}"),
    both("{stream: 'a.*'}", "{stream: {account: E, subject: 'a.*'}, to: 'y.$1.$1'}"),
    both("{service: 'a.*'}", "{service: {account: E, subject: 'a.*'}, to: 'q.*'}"),
    both("{service: 'a.*'}", "{service: {account: E, subject: 'a.*'}, to: 'q.$1'}"),
    both("{service: 'a.*'}", "{service: {account: E, subject: 'a.1'}, to: 'q'}"),
    both("{service: 'a.*.*'}", "{service: {account: E, subject: 'a.*.*'}, to: 'q.$2.$1'}"),
    both("{service: 'a.*.*'}", "{service: {account: E, subject: 'a.$2.$1'}, to: 'q.*.*'}"),
    both("{service: 'a.>'}", "{service: {account: E, subject: 'a.>'}, to: 'q.>'}"),
    both(
        "{service: a}",
        "{service: {account: E, subject: a}, to: q},{service: {account: F, subject: b}, to: q}",
        "F { exports: [{service: b}] }",
    ),
    both("{service: a, response_type: single}", ""),
    both("{service: a, response: Stream}", ""),
    both("{service: a, response: chunk}", ""),
    both("{response: chunk, service: a}", ""),
    both("{service: a, threshold: '1s'}", ""),
    both("{service: a, response: stream, threshold: '1s'}", ""),
    both("{service: a, latency: l}", ""),
    both("{service: a, latency: {sampling: 50, subject: l}}", ""),
    both("{service: a, latency: {sampling: '50%', subject: l}}", ""),
    both("{service: a, latency: {sampling: headers, subject: l}}", ""),
    both("{service: a, latency: {sampling: HEADERS, subject: l}}", ""),
    both("{service: a, latency: {subject: l}}", ""),
    both("{service: a, latency: l},{service: l}", ""),
    both("{service: a, allow_trace: true}", ""),
    both("{stream: a}", "{stream: {account: E, subject: a}, allow_trace: true}"),
    both("{service: a}", "{service: {account: E, subject: a}, share: true}"),
    both("{service: 'a.*', account_token_position: 2}", "{service: {account: E, subject: a.I}}"),
    both("{stream: 'a.*', account_token_position: 2}", "{stream: {account: E, subject: 'a.I'}}"),
    both("{service: 'a.*', account_token_position: 0}", ""),
    both(
        "{service: 'a.*', account_token_position: 2, accounts: [I]}",
        "{service: {account: E, subject: a.I}}",
    ),
    both(
        "{service: 'a.*', account_token_position: 2, accounts: [X]}",
        "{service: {account: E, subject: a.I}}",
        "X {}",
    ),
    ("accounts { A { exports: [{stream: a}], imports: [{stream: {account: A, subject: a}}] } }"),
    ("accounts { A { exports: [{service: a}], imports: [{service: {account: A, subject: a}}] } }"),
    (
        "accounts { A { exports: [{service: a}], imports: [{service: {account: A, subject: "
        "a}, to: b}] } }"
    ),
    (
        "accounts { A { exports: [{stream: a}], imports: [{stream: {account: A, subject: "
        "a}, prefix: b}] } }"
    ),
    (
        "accounts { A { exports: [{service: a}], imports: [{service: {account: B, subject: "
        "b}, to: x}] }\n B { exports: [{service: b}], imports: [{service: {account: A, "
        "subject: a}, to: y}] } }"
    ),
    (
        "accounts { A { exports: [{stream: a}], imports: [{stream: {account: B, subject: "
        "b}}] }\n B { exports: [{stream: b}], imports: [{stream: {account: A, subject: a}}] "
        "} }"
    ),
    (
        "accounts { A { exports: [{stream: a}, {stream: b}], imports: [{stream: {account: "
        "B, subject: b}}] }\n B { exports: [{stream: b}, {stream: a}], imports: [{stream: "
        "{account: A, subject: a}}] } }"
    ),
    "accounts { A { exports: [{service: a}, {service: a}] } }",
    "accounts { A { exports: [{stream: a}, {stream: a, accounts: [B]}] }\n B {} }",
    "accounts { A { exports: [{service: a, response: stream}, {service: a}] } }",
    (
        "accounts { '$SYS' { exports: [{service: a}] }\n A { imports: [{service: {account: "
        "'$SYS', subject: a}}] } }"
    ),
]
SAME_TEXT = [
    both("{stream: a}", "{stream: {account: E, subject: b}}"),
    both("{service: a}", "{service: {account: E, subject: b}}"),
    both("{stream: a}", "{service: {account: E, subject: a}}"),
    both("{stream: a, accounts: [X]}", "{stream: {account: E, subject: a}}", "X {}"),
    both("{service: a, accounts: [X]}", "{service: {account: E, subject: a}}", "X {}"),
    both("{stream: a, accounts: [NOPE]}", ""),
    both("{service: a, accounts: [NOPE]}", ""),
    both("", "{stream: {account: NOPE, subject: a}}"),
    both("", "{service: {account: NOPE, subject: a}}"),
    both("{stream: a}", "{stream: {account: E, subject: a}, prefix: 'x.*'}"),
    both("{stream: a}", "{stream: {account: E, subject: a}, prefix: 'x.>'}"),
    both("{stream: a}", "{stream: {account: E, subject: a}}, {stream: {account: E, subject: a}}"),
    both(
        "{stream: a}",
        "{stream: {account: E, subject: a}}, {stream: {account: E, subject: a}, prefix: p}",
    ),
    both("{stream: 'a.*.*'}", "{stream: {account: E, subject: 'a.*.*'}, to: 'y.$1'}"),
    both("{stream: 'a.*.*'}", "{stream: {account: E, subject: 'a.*.*'}, to: 'y.$1.$3'}"),
    both(
        "{stream: 'a.*.*'}",
        "{stream: {account: E, subject: 'a.*.*'}, to: 'y.{{partition(2,1)}}.$1.$2'}",
    ),
    both("{stream: 'a.*.>'}", "{stream: {account: E, subject: 'a.*.>'}, to: 'y.$1'}"),
    both("{stream: 'a.>'}", "{stream: {account: E, subject: 'a.>'}, to: 'y'}"),
    both("{stream: a}", "{stream: {account: E, subject: 'a..b'}}"),
    both("{service: 'a.*.*'}", "{service: {account: E, subject: 'a.$1'}, to: 'q.*.*'}"),
    both("{service: 'a.*.*'}", "{service: {account: E, subject: 'a.*.*'}, to: 'q.*'}"),
    both("{service: 'a.*'}", "{service: {account: E, subject: 'a.*'}, to: 'q'}"),
    both("{service: 'a.>'}", "{service: {account: E, subject: 'a.>'}, to: 'q'}"),
    both("{service: a}", "{service: {account: E, subject: a}, to: 'q..r'}"),
    both("{service: a}", "{service: {account: E, subject: a}, to: 'q r'}"),
    both(
        "{service: a},{service: b}",
        "{service: {account: E, subject: a}, to: q},{service: {account: E, subject: b}, to: q}",
    ),
    both(
        "{service: a},{service: b}",
        "{service: {account: E, subject: a}},{service: {account: E, subject: a}}",
    ),
    both("{service: a, response_type: x}", ""),
    both("{service: a, threshold: 'x'}", ""),
    both("{stream: a, latency: l}", ""),
    both("{service: a, latency: {sampling: 0, subject: l}}", ""),
    both("{service: a, latency: {sampling: 101, subject: l}}", ""),
    both("{service: a, latency: {sampling: 50}}", ""),
    both("{service: a, latency: {subject: 'l.*'}}", ""),
    both("{service: a, latency: {subject: a}}", ""),
    both("{service: 'a.>', latency: {subject: a.l}}", ""),
    both("{service: a, response: stream, latency: l}", ""),
    both("{stream: a, allow_trace: true}", ""),
    both("{service: a}", "{service: {account: E, subject: a}, allow_trace: true}"),
    both("{stream: a, account_token_position: 1}", ""),
    both("{service: a, account_token_position: 1}", ""),
    both("{service: 'a.*', account_token_position: 2}", "{service: {account: E, subject: a.J}}"),
    both("{service: 'a.*', account_token_position: 2}", "{service: {account: E, subject: 'a.*'}}"),
    both("{stream: 'a.*', account_token_position: 2}", "{stream: {account: E, subject: 'a.*'}}"),
    both("{stream: 'a.*', account_token_position: 2}", "{stream: {account: E, subject: 'a.J'}}"),
    both("{service: 'a.*', account_token_position: 3}", ""),
    both("{service: 'a.>', account_token_position: 2}", ""),
    both("{stream: a}", "{stream: {account: E}}"),
    both("{stream: a}", "{stream: {subject: a}}"),
    both("{service: a}", "{service: {account: E}}"),
    (
        "accounts { A { exports: [{service: a}], imports: [{service: {account: B, subject: "
        "a}}] }\n B { exports: [{service: a}], imports: [{service: {account: A, subject: "
        "a}}] } }"
    ),
    (
        "accounts { A { exports: [{stream: a}], imports: [{stream: {account: B, subject: "
        "a}}] }\n B { exports: [{stream: a}], imports: [{stream: {account: A, subject: a}}] "
        "} }"
    ),
    (
        "accounts { A { imports: [{service: {account: '$SYS', subject: "
        "'$SYS.REQ.SERVER.PING.VARZ'}}] } }"
    ),
    (
        "accounts { A { imports: [{service: {account: '$SYS', subject: "
        "'$SYS.REQ.SERVER.PING.VARZ'}}] }\n '$SYS' {} }"
    ),
    "accounts { A { imports: [{service: {account: '$G', subject: 'a'}}] } }",
    (
        "system_account: S\naccounts { S {}\n A { imports: [{service: {account: S, subject: "
        "'$SYS.REQ.ACCOUNT.A.CONNZ'}}] } }"
    ),
]
SAME_VERDICT = [
    both("{service: a, accounts: I}", ""),
    both("{service: a, threshold: 5}", ""),
    both("{service: a, response_type: 5}", ""),
    both("{service: a, latency: {sampling: 'x', subject: l}}", ""),
    both("{service: a, latency: {sampling: 1.5, subject: l}}", ""),
    both("{service: a, latency: 5}", ""),
    both("{service: a, allow_trace: 5}", ""),
    both("{service: a}", "{service: {account: E, subject: a}, share: 5}"),
    both("{service: 'a.*', account_token_position: -1}", ""),
    both("{service: 'a.*', account_token_position: x}", ""),
    both("{foo: a}", ""),
    both("{stream: a, foo: b}", ""),
    both("", "{foo: a}"),
    both("{stream: a}", "{stream: {account: E, subject: a}, foo: b}"),
    both("{stream: a}", "{stream: {account: E, subject: a, foo: 1}}"),
    both("{stream: a}", "{stream: a}"),
    both("{service: a}", "{service: a}"),
    both("{service: a}", "{service: {account: E, subject: 5}}"),
    both("{service: a}", "{service: {account: 5, subject: a}}"),
    both("{service: 5}", ""),
    both("{stream: 5}", ""),
    both("5", ""),
    both("", "5"),
    both("{service: a, accounts: [5]}", ""),
    both("{stream: a}", "{stream: {account: E, subject: a}, to: 5}"),
    both("{stream: a}", "{stream: {account: E, subject: a}, prefix: 5}"),
    "accounts { A { exports: {stream: a} } }",
    "accounts { A { imports: {stream: {account: A, subject: a}} } }",
    (
        "accounts { A { exports: [{service: 'a.>'}], imports: [{service: {account: B, "
        "subject: 'a.b.>'}}] }\n B { exports: [{service: 'a.>'}], imports: [{service: "
        "{account: C, subject: 'a.>'}}] }\n C { exports: [{service: 'a.>'}], imports: "
        "[{service: {account: A, subject: 'a.b.c'}}] } }"
    ),
]
STRICTER = [
    both("{stream: a}", "{stream: {account: E, subject: a}, prefix: 'x..y'}"),
    both("{stream: a}", "{stream: {account: E, subject: a}, prefix: 'x y'}"),
    both("{stream: a}", "{stream: {account: E, subject: a}, to: 'q.*'}"),
    both("{stream: 'a..b'}", ""),
    both("{service: 'a..b'}", ""),
    both("{stream: 'a b'}", ""),
    both("{service: 'a b'}", ""),
    both("{service: a, threshold: '-1s'}", ""),
    both("{service: a, latency: {subject: l, foo: 1}}", ""),
    both("{stream: a}", "{stream: {account: E, subject: a}, share: true}"),
    both("{service: a}", "{service: {account: E, subject: a}, prefix: p}"),
    both("{}", ""),
    both("", "{}"),
]
# nats-server reads keys in a random order, and sometimes misses these.
UNSTEADY = [
    both("{stream: a, threshold: '1s'}"),
    both("{stream: a, response: chunk}"),
    both("{stream: a, service: b}"),
    both("{stream: a}", "{stream: {account: E, subject: a}, prefix: p, to: q}"),
    both("{stream: a}, {service: a}", "{service: {account: E, subject: a}, stream: {account: E}}"),
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "test.conf"


def official(path: Path, text: str) -> str | None:
    """None, or why not: without the place."""
    path.write_text(text)
    command = [OFFICIAL, "-t", "-c", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if result.returncode == 0:
        return None
    return re.sub(r"^(nats-server: )?\S+:\d+:\d+: ", "", result.stderr.strip())


def ours(path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> str | None:
    path.write_text(text)
    code = run_command(["-t", "-c", str(path)])
    said = capsys.readouterr().err
    return None if code == 0 else said


@pytest.mark.parametrize("text", ACCEPTED)
def test_both_accept(config: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert (official(config, text), ours(config, text, capsys)) == (None, None)


@pytest.mark.parametrize("text", SAME_TEXT)
def test_both_refuse_with_the_same_words(
    config: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    reason, ours_said = official(config, text), ours(config, text, capsys)
    assert reason
    assert ours_said
    assert reason in ours_said


@pytest.mark.parametrize("text", SAME_VERDICT)
def test_both_refuse_and_ours_names_the_place(
    config: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert official(config, text)
    assert re.search(r"test\.conf:\d: \S", ours(config, text, capsys) or "")


@pytest.mark.parametrize("text", STRICTER)
def test_what_means_nothing_is_refused(
    config: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert official(config, text) is None
    assert ours(config, text, capsys)


@pytest.mark.parametrize("text", UNSTEADY)
def test_ours_refuses_however_the_keys_stand(
    config: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert re.search(r"test\.conf:\d: \S", ours(config, text, capsys) or "")


def test_a_long_chain_is_no_cycle_and_one_beyond_the_limit_is_refused(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing_rules, "CYCLE_DEPTH_MAX", 50)

    def chain(length: int) -> str:
        accounts = [
            f"A{n} {{ exports: [{{service: s}}], imports: [{{service: {{account: A{n - 1},"
            f" subject: s}}}}] }}"
            for n in range(1, length)
        ]
        return "accounts {\n A0 { exports: [{service: s}] }\n" + "\n".join(accounts) + "\n}"

    assert ours(config, chain(50), capsys) is None
    assert "search cycle depth exhausted" in (ours(config, chain(52), capsys) or "")


@pytest.mark.slow
def test_thousands_of_imports_are_read_at_once(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exports = ", ".join(f"{{service: 's.{n}.*'}}" for n in range(3_000))
    imports = ", ".join(f"{{service: {{account: E, subject: 's.{n}.x'}}}}" for n in range(3_000))
    assert ours(config, both(exports, imports), capsys) is None
