"""Formats Spark errors as one line.

Owns what is removed: Java and Python stack traces, plans, and advice that is not meant for users.
"""

from __future__ import annotations

import logging
import re
from typing import Final

TEXT_CHARACTERS_MAX: Final = 600
_OURS: Final = re.compile(r"^(?:[\w.]*\.)?\w+(?:Error|Exception|Exit): (.+)$", re.MULTILINE)
# What Java says of an exception of Python, before it or around it.
_EMPTY_WORDS: Final = ("An exception was thrown from the Python worker", "Job aborted", "Task ")
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE|\n|$)")
_CLASS: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] (.+?)(?: SQLSTATE: \w+|\n|$)")


def quiet_spark_loggers() -> None:
    """Spark's Python side writes each failed query to the log as JSON; we report it ourselves."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def short_reason(error: BaseException) -> str:
    """What an exception of Spark says, without its stacks."""
    text = str(error)
    if raised := _RAISED.search(text):
        return _cut(raised[1])
    _, is_stack, stack = text.partition("Traceback (most recent call last)")
    causes = [cause for cause in _OURS.findall(stack) if not cause.startswith(_EMPTY_WORDS)]
    if is_stack and causes:
        # The first line behind the innermost Python stack names the cause.
        return _cut(causes[0])
    classes = _CLASS.findall(text)
    if classes:
        return _cut(classes[-1])
    return _cut(text.strip().splitlines()[0] if text.strip() else type(error).__name__)


def sql_line(error: BaseException) -> tuple[int, int] | None:
    """The line and column of an SQL text that an error is about, both from 0."""
    found = re.search(r"\bline (\d+),? pos (\d+)", str(error))
    return (int(found[1]) - 1, int(found[2])) if found else None


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_CHARACTERS_MAX else f"{line[:TEXT_CHARACTERS_MAX]}..."
