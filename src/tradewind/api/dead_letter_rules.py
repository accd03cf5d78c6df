"""Dead letters: the settings in a consumer's metadata for messages that it gives up.

Owns the keys, the rules for their values, and the names of the headers and of the event. Which
message is given up, and when, is decided by the server.

    tradewind.dead_letter.stream     where they go; must be there
    tradewind.dead_letter.subject    under which subject; {stream}, {consumer}, {subject} and
                                     {reason} stand for what they name
    tradewind.dead_letter.on         which ones: max_deliver, term, expired, joined by commas
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tradewind.api.base import Uint64
from tradewind.api.consumer_types import AckPolicy, ConsumerConfig
from tradewind.api.errors import ApiError
from tradewind.api.event_types import ApiEvent
from tradewind.api.names import is_valid_name
from tradewind.api.own_errors import DEAD_LETTER_INVALID
from tradewind.api.stream_types import StreamConfig
from tradewind.subjects import is_subset_of_any, is_valid_subject

PREFIX: Final = "tradewind.dead_letter."
STREAM_KEY: Final = f"{PREFIX}stream"
SUBJECT_KEY: Final = f"{PREFIX}subject"
ON_KEY: Final = f"{PREFIX}on"
MAX_DELIVER: Final = "max_deliver"
TERM: Final = "term"
EXPIRED: Final = "expired"
REASONS: Final = (MAX_DELIVER, TERM, EXPIRED)
REASONS_DEFAULT: Final = (MAX_DELIVER, TERM)
SUBJECT_DEFAULT: Final = "dead.{stream}.{consumer}.{subject}"
HEADER_PREFIX: Final = "Tradewind-Dead-Letter-"
# Headers that mean something to a stream are kept under another name.
ORIGINAL_PREFIX: Final = "Tradewind-Original-"
EVENT_SUBJECT: Final = "$TW.EVENT.ADVISORY.CONSUMER.DEAD_LETTER"
EVENT_TYPE: Final = "io.tradewind.advisory.v1.dead_letter"
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_PLACES: Final = ("stream", "consumer", "subject", "reason")


class DeadLetterSettings(msgspec.Struct, frozen=True):
    """The dead-letter settings of a consumer."""

    stream: str
    subject: str = SUBJECT_DEFAULT
    on: tuple[str, ...] = REASONS_DEFAULT

    def subject_of(self, stream: str, consumer: str, subject: str, reason: str) -> str:
        """The subject of one dead letter."""
        values = {"stream": stream, "consumer": consumer, "subject": subject, "reason": reason}
        return _PLACE.sub(lambda place: values[place[1]], self.subject)


class DeadLettered(ApiEvent, frozen=True, kw_only=True):
    """The event for a message that was given up; `error` is set if it cannot be stored as a dead
    letter.
    """

    stream: str
    consumer: str
    stream_seq: Uint64
    deliveries: Uint64
    reason: str
    dead_letter_stream: str
    dead_letter_seq: Uint64 = 0
    error: str = ""
    domain: str = ""


def dead_letters_of(metadata: Mapping[str, str] | None) -> DeadLetterSettings | None:
    """Parse the settings, None if there are none; ApiError describes the error."""
    if not metadata or not any(key.startswith(PREFIX) for key in metadata):
        return None
    for key in metadata:
        if key.startswith(PREFIX) and key not in (STREAM_KEY, SUBJECT_KEY, ON_KEY):
            known = ", ".join((STREAM_KEY, SUBJECT_KEY, ON_KEY))
            raise DEAD_LETTER_INVALID(key=key, err=f"unknown key; valid keys: {known}")
    stream = metadata.get(STREAM_KEY, "")
    if not is_valid_name(stream):
        raise DEAD_LETTER_INVALID(key=STREAM_KEY, err=f"{stream!r} is not the name of a stream")
    subject = metadata.get(SUBJECT_KEY) or SUBJECT_DEFAULT
    unknown = [place for place in _PLACE.findall(subject) if place not in _PLACES]
    if unknown:
        known = ", ".join(f"{{{place}}}" for place in _PLACES)
        raise DEAD_LETTER_INVALID(key=SUBJECT_KEY, err=f"{{{unknown[0]}}} is not one of {known}")
    on = tuple(word.strip() for word in metadata.get(ON_KEY, ",".join(REASONS_DEFAULT)).split(","))
    if not all(word in REASONS for word in on):
        raise DEAD_LETTER_INVALID(
            key=ON_KEY, err=f"{metadata[ON_KEY]!r} is not a list of {', '.join(REASONS)}"
        )
    return DeadLetterSettings(stream, subject, on)


def check_dead_letters(
    config: ConsumerConfig, stream: str, name: str, target: StreamConfig | None
) -> None:
    """ApiError unless dead letters of this consumer can be stored as configured. `target` is the
    configured stream, None: there is none.
    """
    settings = dead_letters_of(config.metadata)
    if settings is None:
        return
    if config.ack_policy is not AckPolicy.EXPLICIT:
        raise DEAD_LETTER_INVALID(key=STREAM_KEY, err="the ack policy must be explicit")
    if settings.stream == stream:
        raise DEAD_LETTER_INVALID(
            key=STREAM_KEY, err="dead letters of a stream cannot go to the stream itself"
        )
    if target is None:
        raise DEAD_LETTER_INVALID(
            key=STREAM_KEY, err=f"stream {settings.stream} does not exist; create it first"
        )
    pattern = letter_pattern(settings, stream, name)
    if not is_subset_of_any(pattern, target.subjects):
        raise DEAD_LETTER_INVALID(
            key=SUBJECT_KEY, err=f"stream {settings.stream} does not store subject {pattern}"
        )


def letter_pattern(settings: DeadLetterSettings, stream: str, name: str) -> str:
    """All subjects that the dead letters of a consumer can have; ApiError if there are none."""
    text = settings.subject
    if "{subject}" in text and not (text == "{subject}" or text.endswith(".{subject}")):
        raise _bad_subject("{subject} must be its last token")
    pattern = settings.subject_of(stream, name or "*", ">", "*")
    if not is_valid_subject(pattern):
        raise _bad_subject(f"{text!r} does not result in a subject")
    return pattern


def _bad_subject(text: str) -> ApiError:
    return DEAD_LETTER_INVALID(key=SUBJECT_KEY, err=text)
