"""Templates: subjects whose first publish makes a stream. Types and rules of our own API.

Owns the fields, what is right, and which stream a subject asks for. Never makes a stream.

    match    k8s.*.>       a pattern that begins with a plain token
    stream   k8s_{1}       the name; {1} is what the first * stands for, and so on
    subjects k8s.web.>     of the stream for k8s.web.pods: the pattern, with what the name uses
                           filled in
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import field

from tradewind.api.base import ApiStruct, Duration, Int, always
from tradewind.api.errors import STREAM_INVALID_CONFIG, ApiError
from tradewind.api.limits import ServerLimits
from tradewind.api.names import NAME_BYTES_MAX, is_valid_name
from tradewind.api.responses import JetStreamAccountLimits
from tradewind.api.stream_rules import check_stream_config
from tradewind.api.stream_types import StreamConfig
from tradewind.api.truncation_types import OWN_TYPE_PREFIX
from tradewind.subjects import collide, is_literal, is_subset, is_valid_subject

TEMPLATE_KEY: Final = "tradewind.template"
TEMPLATES_MAX: Final = 100
STREAMS_DEFAULT: Final = 100
STREAMS_MAX: Final = 10_000
IDLE_NS_MIN: Final = 1_000_000_000
IDLE_NS_MAX: Final = 10 * 365 * 86_400 * 1_000_000_000
_PLACE: Final = re.compile(r"\{([0-9]{1,2})\}")


class StreamTemplate(ApiStruct, frozen=True, kw_only=True):
    """A template; `max_streams`: the most streams that it creates; `idle`: its streams without
    consumers are deleted after this time without a publish, 0: never. `config` is that of the
    streams, without name and subjects.
    """

    name: str = always("")
    match: str = always("")
    stream: str = always("")
    max_streams: Int = always(STREAMS_DEFAULT)
    idle: Duration = 0
    config: StreamConfig = field(default_factory=StreamConfig)


class TemplatePutRequest(StreamTemplate, frozen=True, kw_only=True):
    """TEMPLATE.PUT: create or change a template; a dry run only checks it."""

    dry_run: bool = False


class TemplateTryRequest(ApiStruct, frozen=True, kw_only=True):
    """TEMPLATE.TRY: report what a first publish to this subject would do."""

    subject: str = always("")


class TemplateStatus(ApiStruct, frozen=True, kw_only=True):
    """A template and the number of existing streams that it has created."""

    template: StreamTemplate = field(default_factory=StreamTemplate)
    streams: Int = always(0)


class TemplatePutResponse(
    ApiStruct,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "template_put_response",
    frozen=True,
    kw_only=True,
):
    """TEMPLATE.PUT and TEMPLATE.DELETE."""

    success: bool = False


class TemplateListResponse(
    ApiStruct,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "template_list_response",
    frozen=True,
    kw_only=True,
):
    """TEMPLATE.LIST."""

    templates: list[TemplateStatus] = field(default_factory=list)


class TemplateTryResponse(
    ApiStruct,
    tag_field="type",
    tag=OWN_TYPE_PREFIX + "template_try_response",
    frozen=True,
    kw_only=True,
):
    """TEMPLATE.TRY. `reason` says why no stream would be created."""

    template: str = ""
    stream: str = ""
    subjects: list[str] = field(default_factory=list)
    would_create: bool = always(False)
    reason: str = ""


def checked_template(template: StreamTemplate) -> StreamTemplate:
    """Validate a template; ApiError names the field and what would be right."""
    if not is_valid_name(template.name) or len(template.name.encode()) > NAME_BYTES_MAX:
        raise _wrong("name must not contain blanks, dots, slashes or wildcards")
    tokens = template.match.split(".")
    if not is_valid_subject(template.match) or is_literal(template.match):
        raise _wrong(f"match must be a pattern such as k8s.*.>, not {template.match[:64]!r}")
    if tokens[0] in ("*", ">") or tokens[0].startswith(("$", "_")):
        raise _wrong("match must begin with a plain token, which must not begin with $ or _")
    stars = tokens.count("*")
    places = [int(number) for number in _PLACE.findall(template.stream)]
    if not places or not all(1 <= number <= stars for number in places):
        raise _wrong(f"stream: a name with {{1}} to {{{stars}}}, one for each * it depends on")
    if not is_valid_name(_PLACE.sub("x", template.stream)):
        raise _wrong("stream must not contain blanks, dots, slashes or wildcards")
    if not 1 <= template.max_streams <= STREAMS_MAX:
        raise _wrong(f"max_streams: from 1 to {STREAMS_MAX}")
    if template.idle and not IDLE_NS_MIN <= template.idle <= IDLE_NS_MAX:
        raise _wrong("idle: 0, or from 1 second to 10 years, in nanoseconds")
    config = template.config
    if config.name or config.subjects or config.mirror is not None or config.sources:
        raise _wrong("config must not contain name, subjects, mirror or sources")
    sample = ".".join("x" if token in ("*", ">") else token for token in tokens)
    check_stream_config(
        stream_for(template, sample),
        streams={},
        pedantic=False,
        server=ServerLimits(),
        account=JetStreamAccountLimits(),
    )
    return msgspec.convert(
        {each: getattr(template, each) for each in StreamTemplate.__struct_fields__},
        StreamTemplate,
    )


def check_apart(template: StreamTemplate, others: list[StreamTemplate]) -> None:
    """ApiError if two templates match the same subject."""
    for other in others:
        if collide(template.match, other.match):
            raise _wrong(f"match overlaps with template {other.name!r} ({other.match})")


def takes(template: StreamTemplate, subject: str) -> bool:
    """Whether a template matches a literal subject."""
    return is_subset(subject, template.match)


def stream_for(template: StreamTemplate, subject: str) -> StreamConfig:
    """The stream for a subject; ApiError if its tokens cannot form a name."""
    pattern, tokens = template.match.split("."), subject.split(".")
    places = [index for index, part in enumerate(pattern) if part == "*"]
    used = {int(number) for number in _PLACE.findall(template.stream)}
    values = {number: tokens[index] for number, index in enumerate(places, 1)}
    name = _PLACE.sub(lambda found: values[int(found[1])], template.stream)
    if not is_valid_name(name) or len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise _wrong(f"template {template.name!r}: {name[:64]!r} is not a valid stream name")
    if not name.isprintable():
        raise _wrong(
            f"template {template.name!r}: the subject has characters that are not allowed in a name"
        )
    for number, index in enumerate(places, 1):
        if number in used:
            pattern[index] = tokens[index]
    metadata = {**template.config.metadata, TEMPLATE_KEY: template.name}
    return msgspec.structs.replace(
        template.config, name=name, subjects=[".".join(pattern)], metadata=metadata
    )


def _wrong(text: str) -> ApiError:
    return STREAM_INVALID_CONFIG(err=text)
