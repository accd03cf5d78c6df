"""Configuration texts judged by `nats-server -t` and by ours: the same verdict and the same digest.

Where they differ on purpose, the text is in `DIFFERS` with the reason. nats-server is only ever
asked to check files here; it never starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from realistic_configs import REALISTIC

from tradewind.server.lifecycle.command import run_command

OFFICIAL = Path(sys.executable).parent / "nats-server"
NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
ENVIRONMENT = {"TW_NUMBER": "5", "TW_NAME": "name", "TW_TWO_WORDS": "a b"}

ACCEPTED = [
    "port: -1",
    "port = -1; host = localhost",
    "port -1, debug yes",
    "port\n4222",
    '{"port": -1, "host": "localhost"}',
    "{ port: 4222 } # comment",
    "{\nport: 4222\n} debug: true",
    "port: -1 }",
    "'port' 4222",
    '"port"4222',
    "# c\nport: 1 // c\n// c",
    "max_payload: 1k",
    "max_payload: 1KiB",
    "max_pending: 1pb",
    "listen: 127.0.0.1:4222",
    'listen: "[::1]:4222"',
    "server_name: foo#bar",
    r'server_name: "foo\x41\\"',
    'server_name: "<é&>"',
    "pid_file: (\nblock )\n)\n",
    "server_name: $2a$11$abc",
    "server_name: $TW_NAME",
    "port: $TW_NUMBER",
    "foo: 3, port: $foo",
    "A: {user: x}\nauthorization: $A",
    "server_tags: [a, b, c,]",
    "server_tags: [\n a\n b\n]",
    "server_tags: 'a:b'",
    "server_metadata { a b; c d }",
    "ping_interval: 10s, write_deadline: '1h30m'",
    "http: localhost:8222, http_base_path: foo",
    "max_connections: 0, max_payload: 0, max_subs: 10, max_sub_tokens: 255",
    "lame_duck_duration: '60s', lame_duck_grace_period: '5s'",
    "trace_verbose: true, trace_headers: true, logtime_utc: true",
    "accounts { A { msg_trace: 'a.b' } }",
    "accounts { A { trace_dest: {dest: a} } }",
    "accounts { A { msg_trace: {dest: a, sampling: 50} } }",
    "accounts { A { msg_trace: {dest: a, sampling: '100%'} } }",
    "logfile: x, logfile_size_limit: 1k, logfile_max_num: 3, log_max_num: 4",
    "write_timeout: close, no_fast_producer_stall: true, connect_error_reports: 3",
    "accounts [A, B]",
    "accounts { A {} }, system_account: A",
    "accounts { V: 5, A: { limits {max_conn: $V, max_leafs: 4} } }",
    "accounts { A { users [ {user: a, password: b} ] } }, no_auth_user: a",
    f"accounts {{ A {{ users: [{{nkey: {NKEY}}}] }} }}",
    "accounts { A { jetstream: {max_mem: 1k, max_store: 5, streams: 3, max_bytes: true} } }",
    "authorization { user: a, password: b, timeout: 1.5 }",
    "authorization { timeout: 2.0, token: x }",
    "authorization { users: [] }",
    "authorization { users: [{user: a, password: b, permissions: {publish: [], sub: 'b q'}}] }",
    "authorization { users: [{user: a, permissions: {allow_responses: {max: 3, ttl: '1m'}}}] }",
    "authorization { users: [{user: a, allowed_connection_types: [STANDARD, websocket]}] }",
    "authorization { P: x, user: a, password: $P }",
    "jetstream: enabled",
    "jetstream {store_dir: x, max_mem: 1gb, max_file: '10G', domain: hub, sync_interval: always}",
    "jetstream {limits: {duplicate_window: '2s', batch: {max_msgs: 3, timeout: '2s'}}}",
    "websocket {port: -1, no_tls: true, headers: {a: b}, authorization {user: a, token: c}}",
    "cluster { name: x, port: -1, routes: ['nats://localhost:1'] }",
    "leafnodes { remotes: [{url: 'nats://x'}] }",
    "gateway { name: x, port: -1 }",
    "mqtt { port: -1 }",
]

REFUSED = [
    "",
    "# only a comment",
    "foo",
    "foo: 3",
    ": 4222",
    "port:\n4222",
    "port: 4222a",
    "port: '4222'",
    "port: 1.5",
    "port: 18446744073709551616",
    "port: $TW_MISSING",
    "server_name: $TW_TWO_WORDS",
    "port: 1 debug: true",
    "port: 1,, debug: true",
    "{ port: 4222",
    "{{ port: 4222",
    "port: -1 }}}}",
    "max_payload: 1 kb",
    "max_payload: 1kx",
    "max_payload: 2gb",
    "server_name: foo bar",
    "server_name: 'foo bar'",
    "server_name: 'foo",
    r'server_name: "foo\qbar"',
    "server_name: (foo",
    "server_name: -a",
    "server_name: true",
    "server_name: ${HOME}",
    "X: 2020-01-02, server_name: $X",
    "server_tags: [a b]",
    "server_tags: [a,,b]",
    "server_tags: [a",
    "server_metadata: {a: 1}",
    "authorization{user:a}",
    "jetstream{\n  max_mem: 1G\n}",
    "max_payload: 1_000",
    "leafnodes { reconnect: 5 }",
    "debug: 1",
    "ping_interval: 10",
    "ping_interval: 'abc'",
    "lame_duck_duration: '1s'",
    "max_sub_tokens: 256",
    "write_timeout: bogus",
    "listen: 'localhost'",
    "include nofile.conf",
    "accounts { '$G' {} }",
    "accounts { A { bogus: 1 } }",
    "accounts { A { msg_trace: 'a.*' } }",
    "accounts { A { msg_trace: 5 } }",
    "accounts { A { msg_trace: {sampling: '7'} } }",
    "accounts { A { msg_trace: {dest: 'a..b'} } }",
    "accounts { A { msg_trace: {dest: a, sampling: 0} } }",
    "accounts { A { trace_dest: {dest: a, sampling: 101} } }",
    "accounts { A { msg_trace: {dest: a, sampling: '101%'} } }",
    "accounts { A { msg_trace: {dest: a, sampling: half} } }",
    "accounts { A { msg_trace: {dest: a, sampling: true} } }",
    "accounts { A { msg_trace: {dest: a, sampled: 5} } }",
    "accounts { A { users [{user: a}] }, B { users [{user: a}] } }",
    "authorization: 5",
    "authorization { token: b, user: a }",
    "authorization { token: b, users: [{user: a}] }",
    "authorization { users: [{user: a}, {user: a}] }",
    "authorization { users: [{nkey: abc}] }",
    f"authorization {{ users: [{{nkey: {NKEY[:-1]}5}}] }}",
    "authorization { users: [{user: a, permissions: {publish: 'foo..bar'}}] }",
    "authorization { users: [{user: a, permissions: {publish: 'a b'}}] }",
    "authorization { users: [{user: a, permissions: {publish: {denied: a}}}] }",
    "authorization { user: a, password: b }, accounts { A { users: [{user: x}] } }",
    "jetstream: {max_file: '10X'}",
    "jetstream {store_dir: x}, store_dir: y",
    "tls { cert_file: nofile, key_file: nofile }",
    "tls { bogus: x }",
    "operator: x",
]

STARTS_NOT = "nats-server accepts the file and then does not start"
ABSENT = "silently ignoring it would be less safe than the file says"
NONSENSE = "no meaning: better told than guessed"
LAX = "nats-server guesses; a mistake is more likely"

# text, accepted by nats-server, reason
DIFFERS = [
    ("max_payload: 65mb", True, STARTS_NOT),
    ("port: 99999", True, STARTS_NOT),
    ("no_auth_user: foo", True, STARTS_NOT),
    ("system_account: foo", True, STARTS_NOT),
    ("client_advertise: 'foo:abc'", True, STARTS_NOT),
    ("lame_duck_grace_period: '60s', lame_duck_duration: '30s'", True, STARTS_NOT),
    ("jetstream: {domain: 'a.b'}", True, STARTS_NOT),
    ("websocket {port: -1}", True, STARTS_NOT),
    ("http_port: 8222, https_port: 8223", True, STARTS_NOT),
    ("tls {}", True, "TLS without a certificate cannot complete a single handshake"),
    ("ocsp: true", True, ABSENT),
    ("jetstream { key: '' }", True, "nothing would be encrypted"),
    ("jetstream { prev_key: abc }", True, "nothing would be encrypted"),
    ("ping_interval: '-5s'", True, NONSENSE),
    ("max_control_line: -1", True, NONSENSE),
    ("max_pending: 50eib", True, "it overflows to another number"),
    ("accounts: x", True, NONSENSE),
    ("server_name:", True, LAX),
    ("server_name: a'", True, LAX),
    ("server_tags: ['a'/c\n'b']", True, LAX),
    ("accounts { A { jetstream: {max_file: '1G'} } }", False, "accepted as in the server's block"),
    ("cluster { bogus: x }", False, "the block is ignored as a whole"),
]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "test.conf"


def official(path: Path) -> tuple[bool, str]:
    result = subprocess.run(
        [OFFICIAL, "-t", "-c", str(path)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=30,
        env=dict(os.environ),
    )
    return result.returncode == 0, result.stderr


def ours(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[bool, str]:
    code = run_command(["-t", "-c", str(path)])
    return code == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "accepted"),
    [(text, True) for text in ACCEPTED] + [(text, False) for text in REFUSED],
)
def test_both_servers_judge_a_file_alike(
    config: Path, capsys: pytest.CaptureFixture[str], text: str, accepted: bool
) -> None:
    config.write_text(text)
    official_accepts, official_text = official(config)
    we_accept, our_text = ours(config, capsys)
    assert (official_accepts, we_accept) == (accepted, accepted), official_text + our_text
    if accepted:
        assert our_text == official_text  # with the same digest


@pytest.mark.parametrize("name", REALISTIC)
def test_both_servers_accept_a_realistic_file(
    config: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    config.write_text(REALISTIC[name], newline="")
    verdict = official(config)
    assert verdict[0], verdict[1]
    assert ours(config, capsys) == verdict


@pytest.mark.parametrize(("text", "official_verdict", "reason"), DIFFERS)
def test_known_difference_still_exists(
    config: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    official_verdict: bool,
    reason: str,
) -> None:
    config.write_text(text)
    assert official(config)[0] is official_verdict, reason
    assert ours(config, capsys)[0] is not official_verdict, reason


def test_included_files_count_for_the_digest(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("include sub/a.conf\nport: $V")
    (config.parent / "sub").mkdir()
    (config.parent / "sub" / "a.conf").write_text("include '../b.conf'")
    (config.parent / "b.conf").write_text("V: -1")
    assert ours(config, capsys) == official(config)
