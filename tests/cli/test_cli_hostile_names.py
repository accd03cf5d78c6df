"""Names, headers and bodies of others steer no terminal, whichever command shows them."""

from __future__ import annotations

import ast
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tradewind.cli
from cli_outcome import Cli, Outcome
from harness import RawClient, ServerProcess
from tradewind.cli.frame import output
from tradewind.cli.frame.message_text import write_body
from tradewind.cli.frame.reporting import complain
from tradewind.cli.main import make_root
from tradewind.sync import connect
from tradewind.visible_text import visible, visible_lines

if TYPE_CHECKING:
    from tradewind.sync import Connection

# A title, a cleared screen, a colour in C1, a delete, and marks that turn text around.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e\u2066\u200f"
STEERING = {
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
} - {"\n", "\t"}


def steering(text: str) -> set[str]:
    return STEERING & set(text)


# ------------------------------------------------------------------ every command

STREAM, CONSUMER, BUCKET, OBJECTS = "ORDERS", "worker", "settings", "files"
# What is shown of a server that holds hostile names; {s} is the name of a stream.
WALKED = [
    "account info",
    "consumer find ORDERS",
    "consumer info {s} {c}",
    "consumer ls {s}",
    "consumer next {s} {c}",
    "consumer report {s}",
    "consumer state {s} {c}",
    "consumer why {s} {c}",
    "dead-letters ls {s}",
    "dead-letters show {s} 1",
    "export",
    "kv get settings colour",
    "kv history settings colour",
    "kv info settings",
    "kv ls",
    "kv ls settings --verbose --display-value",
    "object info files",
    "object info files {o}",
    "object ls",
    "object ls files",
    "request ask x",
    "rtt",
    "server check stream --stream {s}",
    "server check consumer --stream {s} --consumer {c}",
    "server check kv --bucket settings --key colour",
    "stream find",
    "stream gaps {s}",
    "stream get {s} 1",
    "stream get {s} 1 --json",
    "stream info {s}",
    "stream info {s} --json",
    "stream info MISSING\x1b[2J",
    "stream ls",
    "stream ls --json",
    "stream report",
    "stream state {s}",
    "stream subjects {s}",
    "stream view {s}",
    "stream why {s}",
    "template ls",
    "trace hostile.trace",
]
# The same for an administrator.
WALKED_BY_ADMINISTRATOR = [
    "server info",
    "server list",
    "server ping",
    "server report accounts",
    "server report connections",
    "server report jetstream",
    "server request connections",
    "server request jetstream",
    "server request subscriptions",
    "server request variables",
]
# By their first word or words: why they need not be walked.
NOT_WALKED = {
    "account backup": "prints names of streams as `stream backup`",
    "account restore": "prints what is in files of the user",
    "apply": "prints the user's own file, and values as `export` does",
    "auth": "shows the user's own keys and claims, in tables and columns",
    "bench": "prints figures",
    "cheat": "prints our own text",
    "cluster": "prints figures of servers that the user runs",
    "consumer": "changes something, and names what the user named",
    "context": "shows the user's own files",
    "counter": "prints numbers and subjects in tables",
    "dashboard": "prints its own address",
    "dead-letters": "changes something, and names what the user named",
    "demo": "shows its own data",
    "dr": "prints a plan in columns and lines",
    "errors": "prints our own text",
    "events": "prints events as lines",
    "job": "prints figures",
    "kv": "changes something or watches, and prints lines",
    "latency": "prints figures",
    "move": "prints a plan in columns and lines",
    "object": "changes something or watches, and prints lines",
    "pipeline": "shows tables of the user's own pipelines",
    "pub": "names what the user named",
    "reply": "runs until it is stopped, and prints lines and bodies",
    "schema": "prints our own text",
    "server": "checks, changes or starts something, and prints lines",
    "sql": "needs Spark, and writes by `write_text`",
    "stream": "changes something, and names what the user named",
    "sub": "runs until it is stopped, and prints lines and bodies",
    "table": "prints tables, columns and lines",
    "template": "changes something, and names what the user named",
    "top": "redraws its lines by LiveScreen",
    "transaction": "names what the user named",
}


@pytest.fixture
def hostile(js_server: ServerProcess, cli: Cli) -> Iterator[dict[str, str]]:
    """Everything that may have a text of its own has a hostile one, where the server allows it.

    Our client makes no such names; other clients do.
    """
    assert cli
    text = {"description": f"text{HOSTILE}", "metadata": {f"key{HOSTILE}": f"value{HOSTILE}"}}
    names = {"s": STREAM, "c": CONSUMER, "o": f"file{HOSTILE}"}
    raw = RawClient(js_server.port).connect(name=f"client{HOSTILE}", headers=True)
    for name in (f"ORDERS{HOSTILE}", STREAM):
        ask(raw, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"], **text})
        for consumer in (f"worker{HOSTILE}", CONSUMER):
            config = {"durable_name": consumer, "ack_policy": "explicit", **text}
            ask(
                raw,
                f"CONSUMER.DURABLE.CREATE.{name}.{consumer}",
                {"stream_name": name, "config": config},
            )
        block = f"NATS/1.0\r\nName{HOSTILE}: {HOSTILE}\r\nBytes: \udcff\r\n\r\n"
        raw.send(
            f"HPUB {name}.a{HOSTILE} {len(encoded(block))} "
            f"{len(encoded(block + HOSTILE))}\r\n{block}{HOSTILE}\r\n".encode(
                errors="surrogateescape"
            )
        )
    raw.send(f"SUB hostile.{HOSTILE} 7\r\n".encode())
    raw.ping()
    with connect(js_server.url, name=f"client{HOSTILE}", timeout=60) as connection:
        js = connection.jetstream()
        bucket = js.kv.create(BUCKET, description=HOSTILE, history=5)
        bucket.put("colour", HOSTILE.encode())
        store = js.objects.create(OBJECTS, description=HOSTILE)
        store.put(names["o"], HOSTILE.encode(), description=HOSTILE, headers={"H": HOSTILE})
        connection.subscribe("ask", callback=lambda message: answer(connection, message.reply))
        connection.flush()
        yield names
    ask(raw, f"STREAM.DELETE.ORDERS{HOSTILE}", None)
    raw.close()


def encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def ask(raw: RawClient, subject: str, body: object) -> None:
    """Ask the API, and wait for its answer, whatever it is."""
    data = msgspec.json.encode(body) if body is not None else b""
    # Each with a number of its own: nats-server may still know the one before.
    number = secrets.token_hex(8)
    inbox = f"_INBOX.{number}"
    raw.send(f"SUB {inbox} {number}\r\nUNSUB {number} 1\r\n")
    raw.send(f"PUB $JS.API.{subject} {inbox} {len(data)}\r\n")
    raw.send(data + b"\r\n")
    raw.read_message()


def answer(connection: Connection, reply: str) -> None:
    connection.publish(reply, HOSTILE.encode(), headers={"H": HOSTILE})


def test_no_command_sends_text_of_others_to_a_terminal_as_it_is(
    hostile: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("NATS_TIMEOUT", "2s")
    seen = ""
    for words in WALKED:
        shown = run_on_terminal([word.format_map(hostile) for word in words.split()], capsys)
        assert not steering(shown.out + shown.err), (words, shown.out, shown.err)
        assert "this is a bug" not in shown.err, (words, shown.err)
        seen += shown.out + shown.err
    assert seen.count("\\x1b") > 20, "hardly anything hostile was shown at all"


@pytest.mark.parametrize("kind", ["official", "tradewind"])
def test_no_report_of_a_server_sends_names_of_clients_to_a_terminal_as_they_are(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    config = tmp_path / "server.conf"
    config.write_text(
        f"""
        listen: "127.0.0.1:-1"
        jetstream: {{ store_dir: "{tmp_path}" }}
        accounts {{
          $SYS {{ users: [ {{ user: admin, password: pw }} ] }}
          APP {{ jetstream: enabled, users: [ {{ user: app, password: pw }} ] }}
        }}
        no_auth_user: app
        """
    )
    server = ServerProcess(kind, ["-c", str(config)])
    try:
        server.wait_ready()
        monkeypatch.setenv("NATS_URL", f"nats://admin:pw@127.0.0.1:{server.port}")
        with RawClient(server.port) as raw:
            raw.connect(name=f"client{HOSTILE}", lang=HOSTILE, version=HOSTILE)
            raw.send(f"SUB hostile.{HOSTILE} 7\r\n".encode())
            raw.ping()
            seen = ""
            for words in WALKED_BY_ADMINISTRATOR:
                shown = run_on_terminal(words.split(), capsys)
                assert shown.code == 0, (words, shown.err)
                assert not steering(shown.out + shown.err), (words, shown.out, shown.err)
                seen += shown.out
        assert seen.count("\\x1b") + seen.count("\\u001b") > 3
    finally:
        server.stop()


def run_on_terminal(words: list[str], capsys: pytest.CaptureFixture[str]) -> Outcome:
    from tradewind.cli.main import run

    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: True)
        patch.setattr(sys.stderr, "isatty", lambda: True)
        code = run(words)
    printed = capsys.readouterr()
    return Outcome(code, printed.out, printed.err)


def test_every_command_is_walked_or_said_why_not() -> None:
    walked = {tuple(words.split()) for words in [*WALKED, *WALKED_BY_ADMINISTRATOR]}
    for path in commands():
        is_walked = any(words[: len(path)] == path for words in walked)
        reasons = [name for name in NOT_WALKED if tuple(name.split()) == path[: len(name.split())]]
        assert is_walked or reasons, f"{' '.join(path)}: walk it, or say why not"


def commands() -> Iterator[tuple[str, ...]]:
    root = make_root()
    yield from below(root, (), click.Context(root, info_name="tradewind"))


def below(
    command: click.Command, path: tuple[str, ...], context: click.Context
) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        yield path
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        inner = click.Context(found, parent=context, info_name=name)
        yield from below(found, (*path, name), inner)


# ------------------------------------------------------------------ the one place

# Modules that write bytes as they are, because they were asked to, or that own the streams.
WRITERS = {"frame/output.py", "frame/message_text.py", "frame/message_display.py"}
RAW = {"buckets/kv_commands.py", "buckets/object_commands.py"}


def test_only_the_output_writes_to_the_terminal() -> None:
    """Everybody else would have to remember what a terminal obeys."""
    root = Path(tradewind.cli.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        place = str(path.relative_to(root))
        if place in WRITERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            is_text = called in ("print", "sys.stdout.write", "sys.stderr.write", "click.echo")
            is_raw = called in ("sys.stdout.buffer.write", "write_raw") and place not in RAW
            if is_text or is_raw:
                found.append(f"{place}:{node.lineno}: {called}")
    assert not found


class Terminal:
    """A standard output on a terminal that keeps what it was sent."""

    def __init__(self) -> None:
        self.sent = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.sent += text

    def flush(self) -> None:
        pass


ANY = st.text(st.characters(codec=None) | st.sampled_from(sorted(STEERING)), max_size=20)


@given(ANY)
def test_no_text_steers_the_terminal(text: str) -> None:
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", terminal)
        patch.setenv("NO_COLOR", "1")
        table = output.Table(text, text, "n")
        table.row(text, 1)
        table.print()
        columns = output.Columns(text)
        columns.section(text)
        columns.row(text, text)
        columns.row(text, [text, text])
        columns.text(text)
        columns.print()
        output.line(text)
        output.note(text)
        output.print_json({text: [text]})
        output.print_json_line({text: text})
        complain("tradewind", text, text)
        write_body(text.encode(errors="surrogatepass"))
    assert not steering(terminal.sent)
    terminal.sent.replace("�", "").encode()


@given(ANY)
def test_tables_stay_tables_and_errors_one_message(text: str) -> None:
    """No name makes a line that looks like one of ours."""
    table = output.Table("Streams", "Name", "Count")
    table.row(text, 1)
    assert len(table.lines()) == 7
    assert len({output.width(each) for each in table.lines()}) == 1 or not text.isascii()
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setattr(sys, "stdout", terminal)
        complain("tradewind", text)
    first, *rest = terminal.sent.removesuffix("\n").split("\n")
    assert "error" in first
    assert all(each.startswith("  ") for each in rest)


@given(st.text(max_size=20))
def test_json_keeps_its_values(text: str) -> None:
    assert msgspec.json.decode(output.json_text({text: [text]})) == {text: [text]}


def test_own_colours_reach_a_terminal_and_those_of_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.line(f"{output.styled('OK', 'green')} \x1b[31mred")
    assert terminal.sent == "\x1b[32mOK\x1b[0m \\x1b[31mred\n"


def test_bodies_go_into_a_pipe_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_body(b"\x1b[31m\xff\r\n")
    assert capfdbinary.readouterr().out == b"\x1b[31m\xff\r\n"


def test_escapes_are_written_out() -> None:
    assert visible("a\x1b[1m\n\t\r\x9b\x7f\u202e\udcff") == r"a\x1b[1m\n\t\r\x9b\x7f\u202e\xff"
    assert visible_lines("a\nb\tc\rd") == "a\nb\tc\\rd"
    assert visible("Grüße 世界 🚀") == "Grüße 世界 🚀"
