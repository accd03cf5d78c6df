"""The prompts of `jsm add` and `jsm add-obs`, and the interpretation of their answers.

Owns prompts, defaults and parsing lists, limits and times. Answers come line by line from a
terminal or a pipe; an invalid answer ends the dialog with an error that says what is valid.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Final

from tradewind.api.times import format_time
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.text_formats import parse_duration_ns
from tradewind.cli.legacy.legacy_api import LegacyApi, ObservableConfig, SetConfig

_YES: Final = ("y", "yes", "1", "t", "true")
_NO: Final = ("n", "no", "0", "f", "false")
ACK_POLICIES: Final = ("none", "all", "explicit")
REPLAY_POLICIES: Final = ("instant", "original")
LIMITS_MAX: Final = 3

Ask = Callable[[str], str]


def split_list(text: str) -> list[str]:
    """Items between commas, or else between tabs or blanks."""
    items = text.split(",") if "," in text else text.split()
    return [item.strip() for item in items if item.strip()]


def parse_limits(text: str) -> tuple[int, int, int]:
    """Messages, bytes and age in nanoseconds; what is not given has no limit."""
    items = split_list(text)
    if len(items) > LIMITS_MAX:
        raise CommandError(f"limits {text!r}: at most three, messages, bytes and age")
    items += ["-1"] * (LIMITS_MAX - len(items))
    return (
        parse_count("messages", items[0]),
        parse_count("bytes", items[1]),
        parse_duration_ns(items[2], "age"),
    )


def parse_count(what: str, text: str) -> int:
    """A number, -1 for no limit."""
    if not re.fullmatch(r"-1|[0-9]{1,18}", text):
        raise CommandError(f"{what} {text!r}: a number, or -1 for no limit")
    return int(text)


def parse_sequence(text: str) -> int:
    """A sequence of a message."""
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) == 0:
        raise CommandError(f"sequence {text!r}: a number from 1 on")
    return int(text)


def parse_choice(what: str, text: str, choices: tuple[str, ...], default: str) -> str:
    """One of some words, or the beginning of one; nothing is the default."""
    if not text:
        return default
    for choice in choices:
        if choice.startswith(text.lower()):
            return choice
    raise CommandError(f"{what} {text!r}: {', '.join(choices[:-1])} or {choices[-1]}")


def parse_yes(text: str, *, default: bool) -> bool:
    """Whether an answer means yes."""
    if not text:
        return default
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise CommandError(f"answer {text!r}: y or n")


def time_ago(text: str) -> str:
    """The moment that is a duration such as 1h30m before now."""
    return format_time(time.time_ns() - parse_duration_ns(text, "time"))


def ask_set(ask: Ask) -> SetConfig:
    """The dialog of `jsm add`."""
    name = ask("Name: ")
    subjects = split_list(ask("Subjects: "))
    messages, size, age_ns = parse_limits(ask("Limits (msgs, bytes, age): "))
    storage = "memory" if ask("Storage: ").lower().startswith("m") else "file"
    return SetConfig(
        name=name,
        subjects=subjects,
        max_msgs=messages,
        max_bytes=size,
        max_age=age_ns,
        storage=storage,
    )


def ask_observable(ask: Ask, api: LegacyApi) -> tuple[str, ObservableConfig]:
    """The dialog of `jsm add-obs`: the message set, and what to make for it."""
    sets = api.sets()
    if not sets:
        raise CommandError("No message sets available; create one with `jsm add`")
    name = ask("Message Set Name: ")
    if name not in sets:
        raise CommandError(f"Not a valid message set: {name!r}; there are {', '.join(sets)}")
    durable = ask("Durable Name: ")
    mode = parse_choice("push or pull", ask("Push or Pull: "), ("push", "pull"), "push")
    subject = ask("Delivery Subject: ") if mode == "push" else ""
    start = _ask_start(ask)
    policy = "explicit"
    if mode == "push":
        answer = ask("AckPolicy (None|all|explicit): ")
        policy = parse_choice("ack policy", answer, ACK_POLICIES, "none")
    answer = ask("Replay Policy (Instant|original): ")
    return name, ObservableConfig(
        durable_name=durable,
        delivery_subject=subject,
        ack_policy=policy,
        replay_policy=parse_choice("replay policy", answer, REPLAY_POLICIES, "instant"),
        **start,
    )


def _ask_start(ask: Ask) -> dict[str, Any]:
    """Where an observable begins: only as many questions as it takes."""
    if parse_yes(ask("Deliver All? (Y|n): "), default=True):
        return {"deliver_all": True}
    if parse_yes(ask("Deliver Last? (y|n): "), default=False):
        return {"deliver_last": True}
    if delta := ask("Start at Time Delta: "):
        return {"start_time": time_ago(delta)}
    if seq := ask("Start at Message Set Sequence: "):
        return {"msg_set_seq": parse_sequence(seq)}
    return {}
