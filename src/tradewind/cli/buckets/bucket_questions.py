"""The questions of `tradewind kv add` and `tradewind object add`.

Owns their texts, defaults and checks. The answers are settings of the client library.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tradewind.cli.buckets.bucket_flags import seconds
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.prompts import can_ask
from tradewind.cli.frame.questions import Dialog, DialogQuestion, replicas_answer
from tradewind.cli.frame.text_formats import parse_size

HISTORY_MAX: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def bucket_dialog(
    command: str, bucket: str, settings: dict[str, Any], *, ask_for_all: bool
) -> Dialog:
    """The dialog with the questions that flags and name leave open.

    There are none if the name is given, unless `ask_for_all`. CommandError if the name is missing
    and the input is not a terminal.
    """
    questions = _questions(command)
    given: dict[str, Any] = {**settings}
    if bucket:
        given["bucket"] = bucket
    if not can_ask() or (bucket and not ask_for_all):
        skipped = [each.key for each in questions if each.key != "bucket"]
        given = {key: given.get(key) for key in skipped} | given
    dialog = Dialog(questions, given)
    dialog.check()
    return dialog


def _questions(command: str) -> list[DialogQuestion]:
    name = DialogQuestion(
        "bucket",
        "Bucket Name",
        f"the name: {command} add NAME",
        "Letters, digits, '-' and '_', for example PRICES.",
        convert=_bucket_name,
        words=("bucket '",),
    )
    history = DialogQuestion(
        "history",
        "Values kept per key",
        "--history",
        f"How many values of each key stay, 1 to {HISTORY_MAX}: the last one and those before it.",
        default="1",
        convert=_history,
        words=("history",),
    )
    value_size = DialogQuestion(
        "max_value_size",
        "Maximum size of a value",
        "--max-value-size",
        "The largest value that is stored, such as 64KB; -1 for no limit.",
        default="-1",
        convert=lambda text: parse_size(text, "--max-value-size"),
        words=("value size", "message size"),
    )
    of_values = [history, value_size] if command == "kv" else []
    return [name, *of_values, *_common_questions()]


def _common_questions() -> list[DialogQuestion]:
    return [
        DialogQuestion(
            "ttl",
            "Maximum age of values",
            "--ttl",
            "How long values are stored, such as 30s, 2h or 7d; -1 for no limit.",
            default="-1",
            convert=lambda text: seconds(text, "--ttl"),
            words=("ttl", "max age"),
        ),
        DialogQuestion(
            "max_bytes",
            "Maximum size of the bucket",
            "--max-bucket-size",
            "The size of everything in it, such as 10MB or 1.5GiB; -1 for no limit.",
            default="-1",
            convert=lambda text: parse_size(text, "--max-bucket-size"),
            words=("max bytes", "max_bytes", "storage resources", "memory resources"),
        ),
        DialogQuestion(
            "storage",
            "Storage",
            "--storage",
            "file survives a restart of the server, memory does not.",
            default="file",
            options=("file", "memory"),
        ),
        DialogQuestion(
            "replicas",
            "Replication",
            "--replicas",
            "How many servers of a cluster store each value, 1 to 5. A server alone has 1.",
            default="1",
            convert=replicas_answer,
            words=("replicas",),
        ),
    ]


def _bucket_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise CommandError(
            f"the name of a bucket must have only letters, digits, '-' and '_', not {text!r}",
            exit_code=EXIT_USAGE,
        )
    return text


def _history(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= HISTORY_MAX):
        raise CommandError(
            f"--history must be a number from 1 to {HISTORY_MAX}, not {text!r}",
            exit_code=EXIT_USAGE,
        )
    return int(text)
