"""Dialogs on a real terminal: lists, help, answers that are wrong or refused, and Ctrl-C."""

from __future__ import annotations

from typing import Any

import pytest

from cli_outcome import Cli
from terminal_session import DOWN, INTERRUPT, UP, TerminalSession
from tradewind.cli.frame.failures import EXIT_INTERRUPTED


def config_of(cli: Cli, *words: str) -> dict[str, Any]:
    config: dict[str, Any] = cli(*words, "--json").ok().json["config"]
    return config


def test_a_list_is_selected_from_with_the_arrow_keys(cli: Cli) -> None:
    for name in ("A", "B", "C"):
        cli("stream", "add", name, "--subjects", name, "--defaults").ok()
    session = TerminalSession("stream", "info")
    session.wait("? Select a Stream")
    session.wait("> A\n")
    session.type(DOWN)
    session.wait("> B\n")
    session.type(DOWN)
    session.wait("> C\n")
    session.type(UP)
    session.wait("> B\n")
    session.type("\n")
    session.wait("Information for Stream B")
    assert session.end() == 0


def test_a_list_finds_what_is_typed(cli: Cli) -> None:
    for name in ("APPLES", "PEARS", "PLUMS"):
        cli("stream", "add", name, "--subjects", name, "--defaults").ok()
    session = TerminalSession("stream", "info")
    session.wait("> APPLES\n")
    session.type("pl")
    session.wait("> PLUMS\n")
    session.type("\n")
    session.wait("Information for Stream PLUMS")
    assert session.end() == 0


def test_a_list_that_is_longer_than_the_screen_scrolls(cli: Cli) -> None:
    for number in range(30):
        cli("stream", "add", f"S{number:02}", "--subjects", f"s.{number}", "--defaults").ok()
    session = TerminalSession("stream", "info")
    first = session.wait("  S19\n")
    assert "1 of 30" in first
    session.type(UP)
    last = session.wait("> S29\n")
    assert "30 of 30" in last
    assert len(last.splitlines()) < 24
    session.type("\n")
    session.wait("Information for Stream S29")
    assert session.end() == 0


def test_a_question_mark_explains_a_question(cli: Cli) -> None:
    session = TerminalSession("stream", "add")
    session.answer("? Stream Name ", "?")
    session.wait("for example ORDERS.")
    session.wait("In scripts: the name: stream add NAME")
    session.answer("? Stream Name ", "ORDERS")
    session.answer("? Subjects ", "orders.>")
    session.wait("> file\n")
    session.type("?")
    session.wait("file survives a restart of the server")
    session.type(DOWN)
    session.wait("> memory\n")
    session.type("\n" * 13)
    session.wait("Stream ORDERS was created")
    assert session.end() == 0
    config = config_of(cli, "stream", "info", "ORDERS")
    assert (config["storage"], config["num_replicas"]) == ("memory", 1)


def test_each_answer_is_checked_at_once(cli: Cli) -> None:
    cli("stream", "add", "OTHER", "--subjects", "orders.eu", "--defaults").ok()
    session = TerminalSession("stream", "add")
    session.answer("? Stream Name ", "a.b")
    session.wait("the name of a stream must have")
    session.answer("? Stream Name ", "OTHER")
    session.wait("Stream OTHER exists already")
    session.wait("tradewind stream edit OTHER")
    session.answer("? Stream Name ", "ORDERS")
    session.answer("? Subjects ", "orders..eu")
    session.wait("'orders..eu' must be a subject")
    session.answer("? Subjects ", "orders.>")
    session.wait("'orders.>' overlaps with the subjects of Stream OTHER")
    session.answer("? Subjects ", "refunds.>")
    session.wait("> file\n")
    session.type("\n")
    session.answer("? Replication [1] ", "9")
    session.wait("--replicas must be from 1 to 5, not '9'")
    session.wait("? Replication [1] ")
    session.type(INTERRUPT)
    assert session.end() == EXIT_INTERRUPTED
    assert "Traceback" not in session.shown
    assert session.shown.endswith("\n")


def test_a_refused_answer_is_asked_for_again_and_the_others_are_kept(cli: Cli) -> None:
    """The server refuses a duplicate window that is longer than the age of messages."""
    session = TerminalSession("stream", "add", "ORDERS", "--ask", "--subjects", "orders.>")
    session.wait("> file\n")
    session.type("\n")
    session.answer("? Replication [1] ", "")
    for _ in range(2):
        session.wait("> ")
        session.type("\n")
    session.answer("? Stream Messages Limit [-1] ", "500")
    session.answer("? Per Subject Messages Limit ", "")
    session.answer("? Total Stream Size ", "")
    session.answer("? Message TTL ", "1h")
    session.answer("? Max Message Size ", "")
    session.answer("? Duplicate tracking time window [2m0s] ", "2h")
    for question in ("Roll-ups", "deletion", "entire stream"):
        session.answer(question, "")
    session.wait("refused: ")
    asked_again = session.answer("? Message TTL [1h] ", "")
    asked_again += session.answer("? Duplicate tracking time window [2h] ", "30m")
    assert "Stream Messages Limit" not in asked_again
    session.wait("Stream ORDERS was created")
    assert session.end() == 0
    config = config_of(cli, "stream", "info", "ORDERS")
    assert config["max_msgs"] == 500
    assert config["duplicate_window"] == 30 * 60 * 10**9


def test_consumer_add_asks_for_the_stream_first(cli: Cli) -> None:
    for name in ("ORDERS", "REFUNDS"):
        cli("stream", "add", name, "--subjects", f"{name.lower()}.>", "--defaults").ok()
    session = TerminalSession("consumer", "add", "REFUND", "--pull", "--filter", "refunds.eu")
    session.wait("Stream 'REFUND' does not exist; did you mean 'REFUNDS'?")
    session.wait("> ORDERS\n")
    session.type("ref\n")
    session.answer("? Consumer name ", "packer")
    session.answer("? Start policy (all, new, last, subject, 1h, msg sequence) [all] ", "never")
    session.answer("? Start policy (all, new, last, subject, 1h, msg sequence) [all] ", "new")
    for shown in ("> explicit\n", "> instant\n"):
        session.wait(shown)
        session.type("\n")
    for question in ("Maximum Allowed", "Maximum Acknowledgments", "headers only", "Backoff"):
        session.answer(question, "")
    session.wait("Consumer REFUNDS > packer was created")
    assert session.end() == 0
    config = config_of(cli, "consumer", "info", "REFUNDS", "packer")
    assert (config["deliver_policy"], config["filter_subject"]) == ("new", "refunds.eu")


def test_a_filter_is_checked_against_the_stream_while_it_is_asked(cli: Cli) -> None:
    cli("stream", "add", "ORDERS", "--subjects", "orders.>", "--defaults").ok()
    session = TerminalSession("consumer", "add")
    session.wait("> ORDERS\n")
    session.type("\n")
    session.answer("? Consumer name ", "packer")
    session.answer("? Delivery target ", "")
    session.answer("? Start policy ", "")
    for shown in ("> explicit\n", "> instant\n"):
        session.wait(shown)
        session.type("\n")
    session.answer("? Filter Stream by subjects ", "refunds.>")
    session.wait("'refunds.>' matches no subject of Stream ORDERS: orders.>")
    session.wait("? Filter Stream by subjects ")
    session.type(INTERRUPT)
    assert session.end() == EXIT_INTERRUPTED
    assert cli("consumer", "ls", "ORDERS", "--names").ok().out == ""


@pytest.mark.parametrize("command", ["kv", "object"])
def test_buckets_ask_for_their_settings(cli: Cli, command: str) -> None:
    session = TerminalSession(command, "add")
    session.answer("? Bucket Name ", "a.b")
    session.wait("the name of a bucket must have only letters")
    session.answer("? Bucket Name ", "PRICES")
    if command == "kv":
        session.answer("? Values kept per key [1] ", "65")
        session.wait("--history must be a number from 1 to 64, not '65'")
        session.answer("? Values kept per key [1] ", "5")
        session.answer("? Maximum size of a value [-1] ", "1KB")
    session.answer("? Maximum age of values [-1] ", "1h")
    session.answer("? Maximum size of the bucket [-1] ", "1MB")
    session.wait("> file\n")
    session.type("\n")
    session.answer("? Replication [1] ", "")
    assert session.end() == 0
    stream = {"kv": "KV_PRICES", "object": "OBJ_PRICES"}[command]
    config = config_of(cli, "stream", "info", stream)
    assert (config["max_age"], config["max_bytes"]) == (3600 * 10**9, 1 << 20)
    if command == "kv":
        assert (config["max_msgs_per_subject"], config["max_msg_size"]) == (5, 1024)


def test_buckets_do_not_ask_if_the_name_is_given_or_nobody_answers(cli: Cli) -> None:
    session = TerminalSession("kv", "add", "PRICES")
    session.wait("PRICES")
    assert session.end() == 0
    assert "? " not in session.shown
    refused = cli("kv", "add")
    assert refused.code == 2
    assert "use the name: kv add NAME" in refused.err


def test_context_add_asks_and_shows_no_password(offline: Cli) -> None:
    session = TerminalSession("context", "add")
    session.answer("? Context Name ", "a/b")
    session.answer("? Context Name ", "shop")
    session.answer("? Description ", "The shop")
    session.answer("? Server URLs [nats://127.0.0.1:4222] ", "nats://one:port")
    session.answer("? Server URLs [nats://127.0.0.1:4222] ", "nats://one:4333")
    session.wait("> none\n")
    session.type(f"{DOWN}\n")
    session.answer("? User ", "Ann")
    session.answer("? Password ", "secret-word")
    session.wait("Configuration Context")
    assert session.end() == 0
    assert "secret-word" not in session.shown
    [found] = offline("context", "ls", "--json").ok().json
    expected = {"url": "nats://one:4333", "user": "Ann", "description": "The shop"}
    assert {name: found[name] for name in expected} == expected
    session = TerminalSession("context", "add")
    session.answer("? Context Name ", "shop")
    session.wait("context 'shop' exists already")
    session.type(INTERRUPT)
    assert session.end() == EXIT_INTERRUPTED


def test_ctrl_c_in_a_list_leaves_the_terminal_as_it_was(cli: Cli) -> None:
    cli("stream", "add", "A", "--subjects", "a", "--defaults").ok()
    session = TerminalSession("stream", "rm")
    session.wait("> A\n")
    session.type(INTERRUPT)
    assert session.end() == EXIT_INTERRUPTED
    assert "Traceback" not in session.shown
    assert cli("stream", "ls", "--names").ok().out == "A\n"


def test_a_terminal_without_cursor_codes_gets_numbers(cli: Cli) -> None:
    for name in ("A", "B"):
        cli("stream", "add", name, "--subjects", name, "--defaults").ok()
    session = TerminalSession("stream", "info", TERM="dumb")
    session.wait("  1) A\n  2) B\n")
    session.answer("? Select a Stream [A] ", "2")
    session.wait("Information for Stream B")
    assert session.end() == 0
    assert "\x1b" not in session.shown
