"""The tests in the file of a pipeline, as far as they need no Spark.

Owns which names and keys a test may have, and turning sample messages into the rows that a source
would have read. The module never connects to a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from tradewind.documents import Key
from tradewind.pipelines.definition.model import ExpectedRows, Pipeline, PipelineCase, Source, texts
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.state.status import DEAD_SUFFIX
from tradewind.subjects import is_subset, is_valid_literal

MESSAGES_MAX: Final = 100_000
# When a sample message was stored, unless the test says it.
SAMPLE_TIME: Final = "2000-01-01T00:00:00Z"
SAMPLE_SUBJECT: Final = "test"
STREAM_KEYS: Final = ("stream", "seq", "subject", "time", "headers", "data")
BUCKET_KEYS: Final = ("bucket", "key", "revision", "time", "operation", "value")
OPERATIONS: Final = ("PUT", "DEL", "PURGE")


def rows_of(expected: list[dict[str, Any]] | ExpectedRows) -> ExpectedRows:
    """The rows that a test expects; a list is short for rows in any order."""
    return ExpectedRows(expected) if isinstance(expected, list) else expected


def check_cases(pipeline: Pipeline) -> None:
    """The names in the tests exist; what is in a message is checked when it is made."""
    from tradewind.pipelines.definition.loading import near

    error = pipeline.document.error
    targets = expectable(pipeline)
    for name, case in pipeline.cases.items():
        place = ("tests", name)
        for source in case.given:
            if source not in pipeline.sources:
                text = f"source {source!r} does not exist{near(source, pipeline.sources)}"
                raise error((*place, "given", source), text)
        for target in case.expect:
            if target not in targets:
                text = f"no table or sink is called {target!r}{near(target, targets)}"
                raise error((*place, "expect", target), text)
        if not case.expect and not case.fails:
            raise error(place, "a test needs `expect`: the rows of tables or sinks, or `fails`")
        if case.expect and case.fails:
            raise error((*place, "fails"), "use expect or fails, not both")


def expectable(pipeline: Pipeline) -> set[str]:
    """All that a test can expect rows of: tables, sinks and dead letters."""
    letters = {
        f"{name}{DEAD_SUFFIX}"
        for name, source in pipeline.sources.items()
        if source.payload is not None and source.payload.dead_letter is not None
    }
    return {*pipeline.sources, *pipeline.steps, *pipeline.sinks, *letters}


def sample_rows(pipeline: Pipeline, case: str, name: str) -> list[dict[str, Any]]:
    """The rows that a stream or bucket has in a test; an error names the line."""
    source = pipeline.sources[name]
    found: PipelineCase = pipeline.cases[case]
    messages = found.given.get(name, [])
    keys = ("tests", case, "given", name)
    if len(messages) > MESSAGES_MAX:
        raise pipeline.document.error(keys, f"more than {MESSAGES_MAX} messages")
    make = _change if source.bucket else _message
    rows: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        try:
            row = make(source, message, rows)
        except ValueError as error:
            place: tuple[Key, ...] = (*keys, index)
            raise pipeline.document.error(place, f"message {index + 1}: {error}") from None
        if source.bucket or _is_read(source, row["subject"]):
            rows.append(row)
    return rows


def _is_read(source: Source, subject: str) -> bool:
    wanted = [one for text in texts(source.subjects) for one in text.split(",")]
    return not wanted or any(is_subset(subject, one.strip()) for one in wanted)


def _message(
    source: Source, given: Mapping[str, Any], before: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    _check_known(given, STREAM_KEYS)
    stream = _text(given, "stream", source.streams[0])
    if any(sign in stream for sign in "*?["):
        raise ValueError(f"the source reads {stream!r}: specify `stream` in the message")
    subject = _text(given, "subject", SAMPLE_SUBJECT)
    if not is_valid_literal(subject):
        raise ValueError(f"{subject!r} is not the subject of a message")
    seqs = [row["seq"] for row in before if row["stream"] == stream]
    return {
        "stream": stream,
        "seq": _number(given, "seq", max(seqs, default=0)),
        "subject": subject,
        "time": _time(given),
        "headers": _headers(given.get("headers")),
        "data": payload_of(given.get("data")),
    }


def _change(
    source: Source, given: Mapping[str, Any], before: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    _check_known(given, BUCKET_KEYS)
    key = _text(given, "key", "")
    if not key:
        raise ValueError("a change of a bucket needs `key`")
    operation = _text(given, "operation", "PUT")
    if operation not in OPERATIONS:
        raise ValueError(f"operation {operation!r} is not one of {', '.join(OPERATIONS)}")
    revisions = [row["revision"] for row in before]
    return {
        "bucket": _text(given, "bucket", source.bucket),
        "key": key,
        "revision": _number(given, "revision", max(revisions, default=0)),
        "time": _time(given),
        "operation": operation,
        "value": payload_of(given.get("value")),
    }


def _check_known(given: Mapping[str, Any], known: Sequence[str]) -> None:
    from tradewind.pipelines.definition.loading import near

    for key in given:
        if key not in known:
            raise ValueError(f"key {key!r} does not exist{near(key, known)}")


def _text(given: Mapping[str, Any], key: str, default: str) -> str:
    value = given.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a string")  # noqa: TRY004 - one kind of error for a file
    return value


def _number(given: Mapping[str, Any], key: str, last: int) -> int:
    value = given.get(key, last + 1)
    if not isinstance(value, int) or isinstance(value, bool) or value <= last:
        raise ValueError(f"{key} must be a whole number above {last}, that of the message before")
    return value


def _time(given: Mapping[str, Any]) -> datetime:
    return parse_moment(_text(given, "time", SAMPLE_TIME))


def parse_moment(text: str) -> datetime:
    """A time of a test, in UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 2026-11-16T08:00:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _headers(value: object) -> dict[str, list[str]] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("headers must be a mapping of names to a value or several")  # noqa: TRY004
    found: dict[str, list[str]] = {}
    for name, one in value.items():
        several = one if isinstance(one, list) else [one]
        if not all(isinstance(each, str) for each in several):
            raise ValueError(f"header {name}: its values must be strings")
        found[name] = several
    return found


def payload_of(data: object) -> bytes:
    """The bytes of a payload: text as it is, all else as JSON; nothing is no bytes."""
    if data is None:
        return b""
    return data.encode() if isinstance(data, str) else msgspec.json.encode(data)


def check_chosen(pipeline: Pipeline, wanted: Sequence[str]) -> list[str]:
    """The tests to run: those that are asked for, or all."""
    from tradewind.pipelines.definition.loading import near

    if not pipeline.cases:
        raise PipelineError(
            f"{pipeline.document.path}: there are no tests: add a section `tests`, or a file"
            f" {pipeline.document.path.stem}_test.yaml"
        )
    for name in wanted:
        if name not in pipeline.cases:
            raise PipelineError(f"test {name!r} does not exist{near(name, pipeline.cases)}")
    return list(wanted) or list(pipeline.cases)
