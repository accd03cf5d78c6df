"""`pub`, `sub`, `request` and `reply`, against both servers."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cli_outcome import Cli, Spawn, type_in
from harness import ServerProcess, wait_for
from tradewind.cli.frame.command_loop import connect_async
from tradewind.sync import connect

if TYPE_CHECKING:
    from tradewind.sync import Connection

WAIT_SECONDS = 60


@pytest.fixture
def connection(js_server: ServerProcess) -> Iterator[Connection]:
    with connect(js_server.url, timeout=WAIT_SECONDS) as made:
        yield made


def make_stream(connection: Connection, **settings: object) -> None:
    connection.jetstream_manager().streams.add(
        name="ORDERS", subjects=["orders.>"], storage="memory", **settings
    )


def stored(connection: Connection, sequence: int) -> tuple[str, bytes]:
    message = connection.jetstream_manager().streams.get_message("ORDERS", seq=sequence)
    return message.subject, message.data


# ------------------------------------------------------------------ pub


def test_pub_sends_a_message_with_headers(cli: Cli, connection: Connection) -> None:
    subscription = connection.subscribe("greet")
    connection.flush()
    outcome = cli("pub", "greet", "hello", "-H", "Trace: 7", "--reply", "there").ok()
    message = subscription.next(timeout=WAIT_SECONDS)
    assert (message.data, message.reply) == (b"hello", "there")
    assert message.headers["Trace"] == "7"
    assert outcome.out == ""
    assert outcome.err.endswith('Published 5 bytes to "greet"\n')


def test_pub_fills_in_body_subject_and_headers_for_each_message(
    cli: Cli, connection: Connection
) -> None:
    subscription = connection.subscribe("n.*")
    connection.flush()
    cli("publish", "n.{{Count}}", "m{{Count}}", "-H", "N:{{Count}}", "--count", "3").ok()
    got = [subscription.next(timeout=WAIT_SECONDS) for _ in range(3)]
    assert [(m.subject, m.data, m.headers["N"]) for m in got] == [
        (f"n.{number}", f"m{number}".encode(), str(number)) for number in (1, 2, 3)
    ]


def test_pub_without_templates_sends_the_text_as_it_is(cli: Cli, connection: Connection) -> None:
    subscription = connection.subscribe("plain")
    connection.flush()
    cli("pub", "plain", "{{Nonsense}}", "--no-templates").ok()
    assert subscription.next(timeout=WAIT_SECONDS).data == b"{{Nonsense}}"


def test_pub_of_an_unknown_function_sends_nothing(cli: Cli) -> None:
    outcome = cli("pub", "plain", "{{Cuont}}")
    assert outcome.code == 1
    assert "did you mean {{Count}}?" in outcome.err
    assert "Published" not in outcome.err


def test_pub_reads_the_whole_input(
    cli: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = connection.subscribe("in")
    connection.flush()
    type_in(monkeypatch, b"one\ntwo\xff\n")
    outcome = cli("pub", "in").ok()
    assert subscription.next(timeout=WAIT_SECONDS).data == b"one\ntwo\xff\n"
    assert "Reading payload from STDIN" in outcome.err


def test_pub_without_an_input_sends_an_empty_body(cli: Cli, connection: Connection) -> None:
    subscription = connection.subscribe("in")
    connection.flush()
    command = f"exec {sys.executable} -m tradewind.cli pub in <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert subscription.next(timeout=WAIT_SECONDS).data == b""


def test_pub_sends_each_line_of_the_input(
    cli: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = connection.subscribe("in")
    connection.flush()
    type_in(monkeypatch, b"one\n\nthree")
    cli("pub", "in", "--send-on", "newline").ok()
    got = [subscription.next(timeout=WAIT_SECONDS).data for _ in range(3)]
    assert got == [b"one", b"", b"three"]


def test_pub_of_many_messages_prints_one_line(cli: Cli, connection: Connection) -> None:
    make_stream(connection)
    outcome = cli("pub", "orders.new", "x", "--count", "1000").ok()
    assert outcome.err.count("\n") == 1
    assert 'Published 1,000 messages to "orders.new"' in outcome.err
    outcome = cli("pub", "orders.new", "x", "--count", "1000", "-J").ok()
    assert 'Stored 1,000 messages of "orders.new"' in outcome.err
    state = connection.jetstream_manager().streams.info("ORDERS").state
    assert state.messages == 2000


def test_pub_quiet_says_nothing(cli: Cli) -> None:
    outcome = cli("pub", "x", "y", "-q").ok()
    assert (outcome.out, outcome.err) == ("", "")


def test_pub_into_a_stream_shows_where_it_is(cli: Cli, connection: Connection) -> None:
    make_stream(connection)
    outcome = cli("pub", "orders.new", "a", "--jetstream", "-H", "Nats-Msg-Id:1").ok()
    assert "Stored in Stream: ORDERS Sequence: 1\n" in outcome.err
    again = cli("pub", "orders.new", "a", "-J", "-H", "Nats-Msg-Id:1").ok()
    assert "Sequence: 1 Duplicate: true" in again.err


def test_pub_without_a_stream_says_how_to_make_one(cli: Cli) -> None:
    outcome = cli("pub", "orders.new", "a", "-J")
    assert outcome.code == 1
    assert "no stream stores subject 'orders.new'" in outcome.err
    assert "tradewind stream add NAME --subjects 'orders.new'" in outcome.err


def test_pub_of_lines_as_one_batch(
    cli: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_stream(connection, allow_atomic=True)
    type_in(monkeypatch, b"one\ntwo\nthree\n")
    outcome = cli("pub", "orders.b", "--atomic", "--send-on", "newline").ok()
    assert "Messages: 3 Sequence: 3" in outcome.err
    assert stored(connection, 2) == ("orders.b", b"two")


def test_pub_that_is_not_allowed_fails(start_secured: str, offline: Cli) -> None:
    outcome = offline("pub", "secret", "x", "-s", start_secured)
    assert outcome.code == 1
    assert "Permissions Violation" in outcome.err
    assert "Published" not in outcome.err


@pytest.fixture
def start_secured(js_server: ServerProcess, tmp_path: Path) -> Iterator[str]:
    """The address of a server whose user may not publish to `secret`."""
    config = tmp_path / "secured.conf"
    config.write_text(
        'listen: "127.0.0.1:-1"\n'
        "authorization { users: [{user: u, password: p, permissions: "
        "{publish: {deny: secret}}}] }\n"
    )
    process = ServerProcess(js_server.kind, ["-c", str(config)])
    try:
        process.wait_ready()
        yield f"nats://u:p@127.0.0.1:{process.port}"
    finally:
        process.stop()


# ------------------------------------------------------------------ sub


def test_sub_shows_messages_of_a_wildcard(spawn: Spawn, connection: Connection) -> None:
    process = spawn("sub", "news.>", "--count", "2", until="Subscribing on news.>")
    connection.publish("news.a", b"one", headers={"K": "V"}, reply="back")
    connection.publish("news.b.c", b"two")
    connection.flush()
    out, _ = process.communicate(timeout=WAIT_SECONDS)
    assert out == (
        '[#1] Received on "news.a" with reply "back"\nK: V\n\none\n\n'
        '[#2] Received on "news.b.c"\ntwo\n\n'
    )
    assert process.returncode == 0


def test_sub_of_several_subjects_leaves_out_ignored_ones(
    spawn: Spawn, connection: Connection
) -> None:
    process = spawn(
        "sub", "a.*", "b.*", "-I", "a.2", "--count", "2", "--subjects-only", until="Subscribing"
    )
    for subject in ("a.2", "b.1"):
        connection.publish(subject, b"")
    connection.flush()
    assert process.stdout is not None
    assert process.stdout.readline() == "b.1\n"
    connection.publish("a.1", b"")
    connection.flush()
    assert process.communicate(timeout=WAIT_SECONDS)[0] == "a.1\n"


def test_sub_members_of_a_queue_share_the_messages(spawn: Spawn, connection: Connection) -> None:
    members = [spawn("sub", "jobs", "--queue", "q", "-r", until="Subscribing") for _ in range(2)]
    shown: queue.Queue[tuple[int, str]] = queue.Queue()

    def read(member: int) -> None:
        for line in members[member].stdout or ():
            shown.put((member, line.strip()))

    readers = [threading.Thread(target=read, args=(member,)) for member in range(2)]
    for reader in readers:
        reader.start()
    for number in range(64):
        connection.publish("jobs", str(number))
    connection.flush()
    got = [shown.get(timeout=WAIT_SECONDS) for _ in range(64)]
    for member, reader in zip(members, readers, strict=True):
        member.send_signal(signal.SIGINT)
        reader.join(WAIT_SECONDS)
    assert shown.empty()
    assert sorted(int(text) for _, text in got) == list(range(64))
    assert {member for member, _ in got} == {0, 1}


def test_sub_ends_well_by_an_interruption(spawn: Spawn) -> None:
    process = spawn("sub", "x", until="Subscribing")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out, err) == (0, "", "")


def test_sub_ends_when_nothing_comes(cli: Cli) -> None:
    outcome = cli("sub", "silence", "--wait", "50ms").ok()
    assert outcome.out == ""


def test_sub_shows_requests_with_their_answers(spawn: Spawn, connection: Connection) -> None:
    process = spawn("sub", "ask", "--match-replies", until="Subscribing")
    connection.subscribe("ask", callback=lambda message: message.respond(b"answer"))
    connection.flush()
    connection.request("ask", b"question")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    assert lines[0].startswith('[#1] Received on "ask" with reply "_INBOX.')
    assert lines[1] == "question\n"
    assert lines[3].startswith('[#1] Matched reply on "_INBOX.')
    assert lines[4] == "answer\n"


def test_sub_reads_a_stream_from_any_place(cli: Cli, connection: Connection) -> None:
    make_stream(connection)
    js = connection.jetstream()
    for number in range(1, 4):
        js.publish("orders.a" if number % 2 else "orders.b", str(number).encode())
    everything = cli("sub", "--stream", "ORDERS", "--all", "--count", "3").ok()
    titles = [line for line in everything.out.splitlines() if line.startswith("[#")]
    assert [title.split(" / ")[0] for title in titles] == [
        f"[#{n}] Received JetStream message: stream: ORDERS seq {n}" for n in (1, 2, 3)
    ]
    assert "starting with the first message received" in everything.err

    def read(*args: str, count: int) -> list[str]:
        outcome = cli("sub", *args, "--count", str(count), "--raw").ok()
        return outcome.out.split()

    assert read("orders.a", "--all", count=2) == ["1", "3"]
    document = cli("sub", "--stream", "ORDERS", "--last", "--count", "1", "--json").ok().json
    assert (document["stream"], document["seq"], document["data"]) == ("ORDERS", 3, "Mw==")
    assert read("--stream", "ORDERS", "--last", count=1) == ["3"]
    assert read("--stream", "ORDERS", "--start-sequence", "2", count=2) == ["2", "3"]
    assert read("--stream", "ORDERS", "--last-per-subject", count=2) == ["2", "3"]
    assert read("--stream", "ORDERS", "--since", "1h", count=3) == ["1", "2", "3"]


def test_sub_by_a_durable_consumer_goes_on_where_it_was(cli: Cli, connection: Connection) -> None:
    make_stream(connection)
    for number in range(1, 6):
        connection.jetstream().publish("orders.a", str(number).encode())

    def read(count: int) -> list[str]:
        args = ("sub", "--stream", "ORDERS", "--durable", "D", "--all", "--raw", "--count")
        return cli(*args, str(count)).ok().out.split()

    assert read(2) == ["1", "2"]
    assert read(3) == ["3", "4", "5"]
    # Nobody confirms these acknowledgements; nats-server takes them a little later.
    consumers = connection.jetstream_manager().consumers
    wait_for(
        lambda: consumers.info("ORDERS", "D").ack_floor.stream_seq == 5,
        lambda: consumers.info("ORDERS", "D"),
    )


def test_sub_counts_messages_by_subject(cli: Cli, connection: Connection) -> None:
    make_stream(connection)
    for subject in ("orders.a", "orders.b", "orders.a"):
        connection.jetstream().publish(subject, b"1234")
    outcome = cli("sub", "--stream", "ORDERS", "--all", "--count", "3", "--report-subjects").ok()
    rows = [line.split("│")[1:4] for line in outcome.out.splitlines() if "orders." in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["orders.a", "2", "8 B"],
        ["orders.b", "1", "4 B"],
    ]
    assert "\x1b" not in outcome.out


def test_sub_saves_messages_as_files(cli: Cli, connection: Connection, tmp_path: Path) -> None:
    make_stream(connection)
    connection.jetstream().publish("orders.a", b"\x00\xff", headers={"K": "V"})
    cli("sub", "--stream", "ORDERS", "--all", "--count", "1", "--dump", str(tmp_path)).ok()
    document = json.loads((tmp_path / "1.json").read_bytes())
    assert document["Subject"] == "orders.a"
    assert (document["Data"], document["Header"]) == ("AP8=", {"K": ["V"]})


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "specify a subject"),
        (("x", "--all", "--new"), "--all and --new"),
        (("x", "--all", "--queue", "q"), "--durable CONSUMER"),
        (("--inbox", "--all"), "--inbox"),
        (("x", "--dump", "/nowhere/at/all"), "is not a folder"),
        (("x", "--wait", "soon"), "--wait"),
    ],
)
def test_sub_explains_wrong_flags(offline: Cli, args: tuple[str, ...], text: str) -> None:
    outcome = offline("sub", *args)
    assert outcome.code in (1, 2)
    assert text in outcome.err


# ------------------------------------------------------------------ request and reply


def test_request_shows_the_answer(cli: Cli, connection: Connection) -> None:
    connection.subscribe("up", callback=lambda m: m.respond(m.data.upper(), headers={"K": "V"}))
    connection.flush()
    outcome = cli("req", "up", "hello").ok()
    assert outcome.out == "HELLO\n"
    assert 'Sending request on "up"' in outcome.err
    assert "Received with rtt" in outcome.err
    assert "K: V" in outcome.err
    document = cli("request", "up", "hello", "--json").ok().json
    assert (document["data"], document["hdrs"]) == ("SEVMTE8=", {"K": ["V"]})
    raw = cli("request", "up", "a{{Count}}", "--raw", "--count", "2").ok()
    assert (raw.out, raw.err) == ("A1\nA2\n", "")


def test_request_without_responders_fails(cli: Cli) -> None:
    outcome = cli("req", "nobody", "hello")
    assert outcome.code == 1
    assert "No responders are available" in outcome.err


def test_request_without_an_answer_fails(
    cli: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def patient(**settings: Any) -> Any:
        return connect_async(connect_timeout=WAIT_SECONDS, **settings)

    monkeypatch.setattr("tradewind.cli.messaging.publish.connect_async", patient)
    subscription = connection.subscribe("deaf")
    connection.flush()
    outcome = cli("req", "deaf", "hello", "--timeout", "100ms")
    assert outcome.code == 1
    assert "No answer within 0.1 s" in outcome.err
    assert subscription.next(timeout=WAIT_SECONDS).data == b"hello"


def test_request_collects_several_answers(cli: Cli, connection: Connection) -> None:
    for number in (1, 2, 3):
        connection.subscribe("all", callback=lambda m, n=number: m.respond(str(n).encode()))
    connection.flush()
    outcome = cli("req", "all", "", "--replies", "3", "--raw", "--reply-timeout", "60s").ok()
    assert sorted(outcome.out.split()) == ["1", "2", "3"]


def test_request_reads_until_an_empty_answer(cli: Cli, connection: Connection) -> None:
    def answer(message: object) -> None:
        for part in (b"1", b"2", b""):
            connection.publish(message.reply, part)  # type: ignore[attr-defined]

    connection.subscribe("parts", callback=answer)
    connection.flush()
    outcome = cli("req", "parts", "", "--wait-for-empty", "--raw").ok()
    assert outcome.out == "1\n2\n"


def test_request_sends_answers_through_a_command(cli: Cli, connection: Connection) -> None:
    connection.subscribe("lines", callback=lambda m: m.respond(b"b\na\n"))
    connection.flush()
    assert cli("req", "lines", "", "--raw", "--translate", "sort").ok().out == "a\nb\n"
    failed = cli("req", "lines", "", "--raw", "--translate", "exit 3")
    assert failed.code == 1
    assert "exit code 3" in failed.err


def test_reply_answers_with_a_text(spawn: Spawn, connection: Connection) -> None:
    process = spawn("reply", "time", "it is {{Request}}", "--count", "1", until="Listening on")
    assert connection.request("time", b"late").data == b"it is late"
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert out == "\nlate\n"
    assert '[#0] Received on subject "time":' in err
    assert process.returncode == 0


def test_reply_echoes_with_headers(spawn: Spawn, connection: Connection) -> None:
    spawn("reply", "echo", "--echo", "-H", "From:here", until="Listening on")
    reply = connection.request("echo", b"\x00\x01", headers={"K": "V"})
    assert reply.data == b"\x00\x01"
    assert dict(reply.headers) == {"From": "here", "K": "V", "NATS-Reply-Counter": "0"}


def test_reply_runs_a_command_without_a_shell(spawn: Spawn, connection: Connection) -> None:
    spawn("reply", "weather.>", "--command", "echo {{1}} {{Request}}", until="Listening on")
    assert connection.request("weather.london", b"$(id); 'x").data == b"london $(id); 'x\n"


def test_reply_fills_a_command_in_once(spawn: Spawn, connection: Connection) -> None:
    """A token of the subject is no template, so the body does not come into the command."""
    script = "import sys; print(sys.argv[1:])"
    line = f"{sys.executable} -c '{script}' {{{{1}}}}"
    spawn("reply", "weather.>", "--command", line, until="Listening on")
    reply = connection.request("weather.{{Request}}", b"--help x")
    assert reply.data == b"['{{Request}}']\n"


def test_reply_outlives_requests_that_cannot_be_answered(
    spawn: Spawn, connection: Connection
) -> None:
    """A header that may not be sent again, or bytes that are no text."""
    spawn("reply", "echo", "--echo", "-H", "From: {{Request}}", until="Listening on")
    inbox = connection.new_inbox()
    for block in (b"NATS/1.0\r\na b: c\r\n\r\n", b"NATS/1.0\r\nK: \xff\xfe\r\n\r\n"):
        connection.publish("echo", b"x", reply=inbox, headers=block)
    connection.publish("echo", b"two\nlines", reply=inbox)
    assert connection.request("echo", b"fine", timeout=10).headers["From"] == "fine"


def test_reply_gives_the_request_to_a_command(spawn: Spawn, connection: Connection) -> None:
    spawn("reply", "env", "--command", "printenv NATS_REQUEST_BODY", until="Listening on")
    assert connection.request("env", b"in the body").data == b"in the body\n"


def test_reply_survives_a_command_that_is_not_there(spawn: Spawn, connection: Connection) -> None:
    spawn("reply", "gone", "--command", "no-such-command-here", until="Listening on")
    for _ in range(2):
        assert connection.request("gone").data == b"command failed: No such file or directory"
