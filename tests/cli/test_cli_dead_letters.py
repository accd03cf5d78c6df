"""`tradewind dead-letters`."""

from __future__ import annotations

import pytest

from cli_outcome import Cli
from harness import wait_for
from terminal_session import TerminalSession

# Only our server has dead letters.
pytestmark = pytest.mark.parametrize("js_server", ["tradewind"], indirect=True)


def give_up_next(cli: Cli, letters: int) -> None:
    """Terminate the next message, and wait until so many dead letters are stored."""
    cli("consumer", "next", "WORK", "w", "--term").ok()

    def stored() -> int:
        count: int = cli("stream", "info", "DEAD", "--json").ok().json["state"]["messages"]
        return count

    wait_for(lambda: stored() >= letters, stored)


def test_dead_letters_are_listed_shown_changed_sent_back_and_removed(cli: Cli) -> None:
    cli("stream", "add", "WORK", "--subjects", "work.>", "--defaults").ok()
    cli("stream", "add", "DEAD", "--subjects", "dead.>", "--defaults").ok()
    cli(
        *("consumer", "add", "WORK", "w", "--pull", "--ack", "explicit", "--defaults"),
        *("--dead-letters", "DEAD"),
    ).ok()
    for letters, word in enumerate(("one", "two", "three"), 1):
        cli("pub", "-J", "work.in", word).ok()
        give_up_next(cli, letters)
    listed = cli("dead-letters", "ls", "DEAD").ok().out
    assert "WORK > w" in listed
    assert "work.in" in listed
    assert cli("dead-letters", "ls", "DEAD", "--reason", "max_deliver").ok().out == (
        "No dead letters found in DEAD\n"
    )
    shown = cli("dead-letters", "show", "DEAD", "1").ok().out
    assert "term" in shown
    assert shown.endswith("one\n")
    assert cli("dead-letters", "edit", "DEAD", "1", "--body", "ONE").ok().out == (
        "Dead letter 1 is now 4\n"
    )
    assert cli("dead-letters", "redrive", "DEAD", "4").ok().out == (
        "Dead letter 4 was sent to work.in as 4\n"
    )
    cli("dead-letters", "rm", "DEAD", "2", "--force").ok()
    assert cli("dead-letters", "redrive", "DEAD", "--all", "--force").ok().out == (
        "Dead letters sent back: 1\n"
    )
    assert cli("dead-letters", "ls", "DEAD", "--json").ok().json == []
    cli("consumer", "edit", "WORK", "w", "--dead-letters", "", "--force").ok()
    metadata = cli("consumer", "info", "WORK", "w", "--json").ok().json["config"]["metadata"]
    assert not [key for key in metadata if "dead_letter" in key]


def test_a_dead_letter_goes_back_to_its_consumer(cli: Cli) -> None:
    cli("stream", "add", "WORK", "--subjects", "work.>", "--defaults").ok()
    cli("stream", "add", "DEAD", "--subjects", "dead.>", "--defaults").ok()
    cli(
        *("consumer", "add", "WORK", "w", "--pull", "--ack", "explicit", "--defaults"),
        *("--dead-letters", "DEAD"),
    ).ok()
    cli("pub", "-J", "work.in", "one").ok()
    give_up_next(cli, 1)
    both = cli("dead-letters", "redrive", "DEAD", "1", "--to", "x", "--to-consumer")
    assert "use --to or --to-consumer, not both" in both.err
    assert cli("dead-letters", "redrive", "DEAD", "1", "--to-consumer").ok().out == (
        "Dead letter 1 was sent to WORK > w as 1\n"
    )
    assert "one" in cli("consumer", "next", "WORK", "w", "--ack").ok().out
    assert cli("stream", "info", "WORK", "--json").ok().json["state"]["last_seq"] == 1


def test_wrong_questions_are_explained(cli: Cli) -> None:
    cli("stream", "add", "DEAD", "--subjects", "dead.>", "--defaults").ok()
    cli("pub", "-J", "dead.x", "plain").ok()
    for words, text in (
        (("show", "DEAD", "1"), "message 1 of stream 'DEAD' is not a dead letter"),
        (("show", "DEAD", "7"), "Stream DEAD has no message 7"),
        (("redrive", "DEAD"), "specify a sequence or --all"),
        (
            ("ls", "DEAD", "--reason", "bored"),
            "--reason: max_deliver or term or expired, not 'bored'",
        ),
    ):
        assert text in cli("dead-letters", *words).err


@pytest.mark.parametrize("flags", [(), ("--no-allow-direct",), ("--retention", "workqueue")])
def test_many_dead_letters_are_read_in_batches(cli: Cli, flags: tuple[str, ...]) -> None:
    """With direct gets, without them, and where a consumer would take the messages away."""
    cli("stream", "add", "DEAD", "--subjects", "dead.>", "--defaults", *flags).ok()
    header = "Tradewind-Dead-Letter-"
    for consumer, count in (("packer", 1200), ("printer", 3)):
        cli(
            *("pub", "-J", "dead.{{Count}}", "text", "--count", str(count), "-H"),
            *(f"{header}Stream:ORDERS", "-H", f"{header}Consumer:{consumer}"),
        ).ok()
    found = cli("dlq", "ls", "DEAD", "--consumer", "printer", "--json").ok().json
    assert [letter["seq"] for letter in found] == [1201, 1202, 1203]
    assert len(cli("dlq", "ls", "DEAD", "--limit", "5000", "--json").ok().json) == 1203
    assert "There are more than 100" in cli("dlq", "ls", "DEAD").ok().out
    state = cli("stream", "info", "DEAD", "--json").ok().json["state"]
    assert state["messages"] == 1203
    assert state["consumer_count"] == 0


def test_a_long_listing_shows_its_progress(cli: Cli) -> None:
    cli("stream", "add", "DEAD", "--subjects", "dead.>", "--defaults").ok()
    header = "Tradewind-Dead-Letter-"
    flags = ("--count", "1200", "-H", f"{header}Stream:ORDERS", "-H", f"{header}Consumer:packer")
    cli("pub", "-J", "dead.x", "text", *flags).ok()
    session = TerminalSession("dlq", "ls", "DEAD", "--consumer", "nobody")
    session.wait("Reading DEAD")
    session.wait("1000/1200")
    session.wait("No dead letters found in DEAD")
    assert session.end() == 0
