"""Schemas at the door of a stream: the settings in a stream's metadata.

Owns the rules of the keys that begin with `tradewind.schema`. Schemas themselves are explained in
`tradewind.schemas`. nats-server ignores the keys.

    tradewind.schema            reject | dead-letter | count
    tradewind.schema.stream     for dead-letter: the stream that stores wrong messages
    tradewind.schema.subject    and their subject; {stream} and {subject} stand for what they name
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tradewind.api.names import SCHEMA_KEY, is_valid_name
from tradewind.api.own_errors import SCHEMA_INVALID
from tradewind.api.stream_types import StreamConfig
from tradewind.subjects import is_subset_of_any, is_valid_subject

STREAM_KEY: Final = f"{SCHEMA_KEY}.stream"
SUBJECT_KEY: Final = f"{SCHEMA_KEY}.subject"
REJECT, DEAD_LETTER, COUNT = ACTIONS = ("reject", "dead-letter", "count")
SUBJECT_DEFAULT: Final = "dead.{stream}.{subject}"
_SUBJECT: Final = "{subject}"


class SchemaRule(msgspec.Struct, frozen=True):
    """The action of a stream on messages that do not obey their schema."""

    action: str
    stream: str = ""
    subject: str = ""

    def letter_subject(self, stream: str, subject: str) -> str:
        """The subject of the dead letter of a message, or of a pattern of messages."""
        return self.subject.replace("{stream}", stream).replace(_SUBJECT, subject)


def schema_rule_of(metadata: Mapping[str, str] | None) -> SchemaRule | None:
    """Parse the settings, None: payloads are not checked. ApiError says how to correct them."""
    if not metadata:
        return None
    own = [key for key in metadata if key == SCHEMA_KEY or key.startswith(f"{SCHEMA_KEY}.")]
    for key in own:
        if key not in (SCHEMA_KEY, STREAM_KEY, SUBJECT_KEY):
            known = f"valid keys are {SCHEMA_KEY}, {STREAM_KEY} and {SUBJECT_KEY}"
            raise SCHEMA_INVALID(key=key[:64], err=f"unknown key; {known}")
    if not own:
        return None
    action = metadata.get(SCHEMA_KEY, "")
    if action not in ACTIONS:
        err = f"must be one of {', '.join(ACTIONS)}, not {action[:64]!r}"
        raise SCHEMA_INVALID(key=SCHEMA_KEY, err=err)
    if action != DEAD_LETTER:
        for key in (STREAM_KEY, SUBJECT_KEY):
            if key in metadata:
                raise SCHEMA_INVALID(key=key, err=f"only with {SCHEMA_KEY} {DEAD_LETTER}")
        return SchemaRule(action)
    stream = metadata.get(STREAM_KEY, "")
    if not is_valid_name(stream):
        raise SCHEMA_INVALID(key=STREAM_KEY, err=f"{stream[:64]!r} is not the name of a stream")
    subject = metadata.get(SUBJECT_KEY) or SUBJECT_DEFAULT
    rest = subject.removesuffix(_SUBJECT).replace("{stream}", "")
    is_last = subject.endswith(f".{_SUBJECT}") or _SUBJECT not in subject
    if not is_last or "{" in rest or "}" in rest or ">" in subject or "*" in subject:
        err = f"{subject[:64]!r}: {{stream}} anywhere, {{subject}} as the last token, no wildcards"
        raise SCHEMA_INVALID(key=SUBJECT_KEY, err=err)
    return SchemaRule(action, stream, subject)


def letter_pattern_of(rule: SchemaRule, stream: str) -> str:
    """All subjects that the dead letters of a stream can have; ApiError if there are none."""
    pattern = rule.letter_subject(stream, ">")
    if not is_valid_subject(pattern):
        raise SCHEMA_INVALID(key=SUBJECT_KEY, err=f"{pattern[:64]!r} is not a subject")
    return pattern


def check_schema_rule(config: StreamConfig) -> None:
    """ApiError unless a stream can check payloads as configured, apart from other streams."""
    rule = schema_rule_of(config.metadata)
    if rule is None:
        return
    if config.mirror is not None:
        raise SCHEMA_INVALID(key=SCHEMA_KEY, err="a mirror takes no messages of publishers")
    if config.allow_msg_counter:
        raise SCHEMA_INVALID(key=SCHEMA_KEY, err="counters have no payloads to check")
    if rule.action != DEAD_LETTER:
        return
    letter_pattern_of(rule, config.name or "stream")


def check_letter_target(config: StreamConfig, target: StreamConfig | None) -> None:
    """ApiError unless the stream for dead letters stores them; `target` None: it is missing."""
    rule = schema_rule_of(config.metadata)
    if rule is None or rule.action != DEAD_LETTER:
        return
    if rule.stream == config.name:
        raise SCHEMA_INVALID(key=STREAM_KEY, err="wrong messages cannot go to the stream itself")
    if target is None:
        err = f"stream {rule.stream} does not exist; create it first"
        raise SCHEMA_INVALID(key=STREAM_KEY, err=err)
    pattern = letter_pattern_of(rule, config.name)
    if not is_subset_of_any(pattern, target.subjects):
        err = f"stream {rule.stream} does not store subject {pattern}"
        raise SCHEMA_INVALID(key=SUBJECT_KEY, err=err)
