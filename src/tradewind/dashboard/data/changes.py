"""Preview changes of a configuration, and describe a configuration in words.

Owns the edited JSON, the difference, and the preview of a purge. Only the last one sends
requests, to count.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tradewind.api.configs import consumer_config_from_dict, stream_config_from_dict
from tradewind.api.stream_types import (
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamInfo,
)
from tradewind.api.versioning import user_metadata
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.streams.direct import read_batch
from tradewind.dashboard.data.page_texts import count, many, size, span_ns
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream

CONFIG_CHARACTERS_MAX: Final = 1 << 20
LINES_COMPARED_MAX: Final = 2000
SUBJECTS_COUNTED_MAX: Final = 100_000
_KEPT: Final = {
    RetentionPolicy.LIMITS: "Messages stay until a limit removes them",
    RetentionPolicy.INTEREST: "Messages stay until every consumer has acknowledged them",
    RetentionPolicy.WORK_QUEUE: "Messages stay until one consumer has acknowledged them",
}


class BadConfigError(TradewindError):
    """A configuration that cannot be parsed; the text says where."""


class StaleConfigError(TradewindError):
    """Another client has changed the configuration meanwhile."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a difference."""

    kind: Literal["same", "added", "removed"]
    text: str


def config_text(config: Mapping[str, Any]) -> str:
    """A configuration as edited text: without the additions of the server."""
    document = dict(config)
    if isinstance(metadata := document.get("metadata"), dict):
        document["metadata"] = user_metadata(metadata)
        if not document["metadata"]:
            del document["metadata"]
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def fingerprint(config: Mapping[str, Any]) -> str:
    """A fingerprint that detects whether a configuration has changed since."""
    return hashlib.sha256(config_text(config).encode()).hexdigest()[:32]


def parse_config(text: str, name: str) -> dict[str, Any]:
    """The edited configuration of a stream; BadConfigError says what is not valid."""
    document = _parse(text, stream_config_from_dict)
    if document.get("name") != name:
        raise BadConfigError(f"the name of the configuration must stay {name!r}")
    return document


def parse_consumer(text: str, name: str) -> dict[str, Any]:
    """The edited configuration of a consumer; BadConfigError says what is not valid."""
    document = _parse(text, consumer_config_from_dict)
    for member in ("name", "durable_name"):
        if document.get(member, name) != name:
            raise BadConfigError(f"the {member} of the configuration must stay {name!r}")
    return document


def parse_new(text: str, convert: Callable[[Mapping[str, Any]], object]) -> dict[str, Any]:
    """The configuration of something new; BadConfigError says what is not valid."""
    return _parse(text, convert)


def _parse(text: str, convert: Callable[[Mapping[str, Any]], object]) -> dict[str, Any]:
    if len(text) > CONFIG_CHARACTERS_MAX:
        raise BadConfigError(
            f"the configuration must not exceed {CONFIG_CHARACTERS_MAX} characters"
        )
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
        convert(document)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadConfigError(f"the configuration: {error}") from None
    return document


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[DiffLine]:
    """The lines that would change, with a few lines around them."""
    return line_differences(config_text(before).splitlines(), config_text(after).splitlines(), 3)


def line_differences(old: list[str], new: list[str], around: int) -> list[DiffLine]:
    """The differences between two texts, with some lines around them.

    If too many lines differ, all of them count as replaced: comparing them takes quadratic time.
    """
    begin = next(
        (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
        min(len(old), len(new)),
    )
    left = min(len(old), len(new)) - begin
    pairs = zip(reversed(old), reversed(new), strict=False)
    end = next((at for at, (one, other) in enumerate(pairs) if at >= left or one != other), left)
    first, last_old, last_new = max(begin - around, 0), len(old) - end, len(new) - end
    if max(last_old, last_new) - begin > LINES_COMPARED_MAX:
        return [
            *(DiffLine("same", f" {line}") for line in old[first:begin]),
            *(DiffLine("removed", f"-{line}") for line in old[begin:last_old]),
            *(DiffLine("added", f"+{line}") for line in new[begin:last_new]),
            *(DiffLine("same", f" {line}") for line in old[last_old : last_old + around]),
        ]
    kinds: dict[str, Literal["same", "added", "removed"]] = {"+": "added", "-": "removed"}
    parts = old[first : last_old + around], new[first : last_new + around]
    lines = list(difflib.unified_diff(*parts, lineterm="", n=around))[2:]
    return [
        DiffLine(kinds.get(line[:1], "same"), line) for line in lines if not line.startswith("@@")
    ]


def in_words(config: StreamConfig) -> list[str]:
    """The behaviour of a stream, in sentences."""
    where = "on disk" if config.storage is StorageType.FILE else "in memory"
    if config.mirror is not None:
        first = f"It is a copy of the stream {config.mirror.name}, kept {where}."
    else:
        subjects = ", ".join(config.subjects) or "nothing"
        first = f"It stores what is published to {subjects}, {where}."
    sentences = [first, f"{_KEPT[config.retention]}{_limits(config)}."]
    if config.discard is DiscardPolicy.NEW and _limits(config):
        sentences.append("When a limit is reached, new messages are refused.")
    if config.num_replicas > 1:
        sentences.append(f"{config.num_replicas} servers keep a copy.")
    if config.sources:
        names = ", ".join(source.name for source in config.sources)
        sentences.append(f"It also stores the messages of {names}.")
    if config.duplicate_window > 0:
        sentences.append(
            f"A message id is stored only once within {span_ns(config.duplicate_window)}."
        )
    if config.sealed:
        sentences.append("It is sealed: nothing in it can be changed.")
    can_not = [
        word
        for word, is_denied in (("deleted", config.deny_delete), ("purged", config.deny_purge))
        if is_denied
    ]
    if can_not and not config.sealed:
        sentences.append(f"Messages cannot be {' or '.join(can_not)}.")
    return sentences


def _limits(config: StreamConfig) -> str:
    parts = []
    if config.max_msgs > 0:
        parts.append(many(config.max_msgs, "message"))
    if config.max_bytes > 0:
        parts.append(size(config.max_bytes))
    if config.max_age > 0:
        parts.append(f"an age of {span_ns(config.max_age)}")
    if config.max_msgs_per_subject > 0:
        parts.append(f"{many(config.max_msgs_per_subject, 'message')} per subject")
    return f", at most {', '.join(parts)}" if parts else ""


# ---------------------------------------------------------------------- purge


@dataclass(frozen=True, slots=True)
class Purge:
    """The messages to remove: those of a subject, all but the newest `keep`, or below a
    sequence.
    """

    subject: str = ""
    keep: int = 0
    below: int = 0


@dataclass(frozen=True, slots=True)
class PurgePreview:
    """The number of messages that would be removed, and a sentence about it. None: more than can be
    counted.
    """

    messages: int | None
    text: str


async def preview_purge(jetstream: JetStream, info: StreamInfo, purge: Purge) -> PurgePreview:
    """Count the messages that a purge would remove at this moment."""
    what = f" of {purge.subject}" if purge.subject else ""
    found = await _count(jetstream, info, purge.subject, 1)
    if found is not None and purge.below:
        rest = await _count(jetstream, info, purge.subject, purge.below)
        found = None if rest is None else found - rest
    if found is not None and purge.keep:
        found = max(found - purge.keep, 0)
    limits = f" below sequence {purge.below}" if purge.below else ""
    limits += f", all but the newest {count(purge.keep)}" if purge.keep else ""
    if found is None:
        return PurgePreview(None, f"It removes the messages{what}{limits}.")
    left = info.state.messages - found
    return PurgePreview(
        found,
        f"It removes {many(found, 'message')}{what}{limits}, and {many(max(left, 0), 'message')} "
        "stay. This cannot be undone.",
    )


async def _count(jetstream: JetStream, info: StreamInfo, subject: str, start: int) -> int | None:
    """The number of messages of a subject from a sequence on; None if it is unknown."""
    state = info.state
    if not subject and start <= state.first_seq:
        return state.messages
    if start > state.last_seq or not state.messages:
        return 0
    if start <= state.first_seq and state.num_subjects <= SUBJECTS_COUNTED_MAX:
        # Ask the leader: a direct get may be answered by a copy that lags behind.
        found = await jetstream.manager.streams.info(info.config.name, subjects_filter=subject)
        return sum(found.state.subjects.values())
    if not info.config.allow_direct:
        return None
    try:
        batch = await read_batch(
            jetstream.api, info.config.name, subject or ">", start=start, messages_max=1
        )
    except NoMessageFoundError:
        return 0
    return batch.pending + len(batch.messages)
