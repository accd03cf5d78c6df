"""`tradewind counter`."""

from __future__ import annotations

from cli_outcome import Cli


def test_counters_are_changed_and_shown(cli: Cli) -> None:
    cli("stream", "add", "HITS", "--subjects", "hits.>", "--allow-counter", "--defaults").ok()
    assert cli("counter", "get", "hits.home").ok().out == "0\n"
    assert cli("counter", "incr", "hits.home").ok().out == "1\n"
    assert cli("counter", "incr", "hits.home", "41").ok().out == "42\n"
    assert cli("counter", "decr", "hits.home", "50").ok().out == "-8\n"
    assert cli("counter", "incr", "hits.other", "9" * 40, "--json").ok().json == {
        "subject": "hits.other",
        "value": "9" * 40,
    }
    assert cli("counter", "get", "hits.home", "--json").ok().json["value"] == "-8"
    assert cli("counter", "ls", "HITS", "--json").ok().json == {
        "hits.home": "-8",
        "hits.other": "9" * 40,
    }
    assert "hits.home" in cli("counter", "ls", "HITS").ok().out
    shown = cli("counter", "view", "hits.home").ok().out
    assert "-8" in shown
    assert "-50" in shown
    cli("stream", "rm", "HITS", "-f").ok()


def test_what_is_no_counter_is_named(cli: Cli) -> None:
    cli("stream", "add", "PLAIN", "--subjects", "plain", "--defaults").ok()
    assert "no stream has the subject 'nowhere'" in cli("counter", "get", "nowhere").err
    assert cli("counter", "incr", "plain", "x").code == 2
    assert "counters" in cli("counter", "incr", "plain").err
    assert "has no counters" in cli("counter", "ls", "PLAIN").err
    cli("stream", "rm", "PLAIN", "-f").ok()
