"""Formats Spark errors as one line.

Owns what is removed: Java and Python stack traces, plans, and advice that is not meant for users.
Owns what is added if a process of Spark was too slow or was ended: that it is not what the query
does, and what to do about it.
"""

from __future__ import annotations

import logging
import re
from typing import Final

TEXT_CHARACTERS_MAX: Final = 600
# A Python process of Spark did not come up in time.
SLOW_SIGNS: Final = ("Python worker failed to connect back", "CANNOT_OPEN_SOCKET")
SLOW_ADVICE: Final = (
    "the machine is too busy to start Spark's Python processes in the time that Spark gives them:"
    " try again, with fewer sinks, with fewer tasks at a time (--master local[1]), or with more"
    " cores"
)
# One was ended.
ENDED_SIGNS: Final = ("Python worker exited unexpectedly", "while reading the port number from")
ENDED_ADVICE: Final = (
    "a Python process of Spark was ended, as the system does when memory runs out: try again, with"
    " fewer tasks at a time (--master local[1]), or with more memory"
)
# Java itself was ended.
LOST_SIGNS: Final = ("Answer from Java side is empty", "trying to connect to the Java server")
LOST_ADVICE: Final = (
    "Spark's Java process has ended, as the system ends one when memory runs out: try again, or"
    " with more memory; its log may say more"
)
_ADVICE: Final = ((SLOW_SIGNS, SLOW_ADVICE), (ENDED_SIGNS, ENDED_ADVICE), (LOST_SIGNS, LOST_ADVICE))
_PACKAGES: Final = ("py4j.", "pyspark.")
_OURS: Final = re.compile(r"^(?:[\w.]*\.)?\w+(?:Error|Exception|Exit): (.+)$", re.MULTILINE)
# Words of Java about an exception of Python, before it or around it.
_EMPTY_WORDS: Final = ("An exception was thrown from the Python worker", "Job aborted", "Task ")
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE|\n|$)")
_CLASS: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] (.+?)(?: SQLSTATE: \w+|\n|$)")


def quiet_spark_loggers() -> None:
    """Spark's Python side writes each failed query to the log as JSON; we report it ourselves."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def short_reason(error: BaseException) -> str:
    """The message of an exception of Spark, without its stacks, and what to do if it is Spark's
    own.
    """
    text = str(error)
    reason = _reason(text) or type(error).__name__
    if _is_lost(error):
        return LOST_ADVICE
    for signs, advice in _ADVICE:
        if any(sign in reason for sign in signs):
            return f"{reason.rstrip('.')}: {advice}"
    return reason


def is_of_spark(error: BaseException | None) -> bool:
    """Whether an exception, or one that it comes from, is of Spark, or of its way to Java."""
    while error is not None:
        is_theirs = any(kind.__module__.startswith(_PACKAGES) for kind in type(error).__mro__)
        if is_theirs or _is_lost(error):
            return True
        error = error.__cause__
    return False


def _is_lost(error: BaseException) -> bool:
    """Whether Java could not be asked: its socket is closed, or answers nothing."""
    if type(error).__name__ == "Py4JNetworkError" or any(
        str(error).startswith(sign) or f" {sign}" in str(error).partition("\n")[0]
        for sign in LOST_SIGNS
    ):
        return True
    trace = error.__traceback__ if isinstance(error, ConnectionError) else None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("py4j."):
            return True
        trace = trace.tb_next
    return False


def _reason(text: str) -> str:
    if raised := _RAISED.search(text):
        return _cut(raised[1])
    _, is_stack, stack = text.partition("Traceback (most recent call last)")
    causes = [cause for cause in _OURS.findall(stack) if not cause.startswith(_EMPTY_WORDS)]
    if is_stack and causes:
        # The first line after the innermost Python stack names the cause.
        return _cut(causes[0])
    classes = _CLASS.findall(text)
    if classes:
        return _cut(classes[-1])
    return _cut(text.strip().splitlines()[0] if text.strip() else "")


def sql_line(error: BaseException) -> tuple[int, int] | None:
    """The line and column of an SQL text that an error is about, both from 0."""
    found = re.search(r"\bline (\d+),? pos (\d+)", str(error))
    return (int(found[1]) - 1, int(found[2])) if found else None


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_CHARACTERS_MAX else f"{line[:TEXT_CHARACTERS_MAX]}..."
