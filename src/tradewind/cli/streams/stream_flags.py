"""The flags that describe a stream, shared by add, edit and copy.

Owns the flags and applying them to a configuration: settings without a flag never change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, get_args, get_type_hints

import msgspec

from tradewind.api.field_shapes import shapes_of
from tradewind.api.stream_types import (
    ConsumerLimits,
    ExternalStream,
    Placement,
    RePublish,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from tradewind.cli.frame.choices import OneOf
from tradewind.cli.frame.config_files import Config, config_of
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Option
from tradewind.cli.frame.json_input import read_json
from tradewind.cli.frame.text_formats import parse_duration_ns, parse_size

Text = str | None
Texts = list[str] | None
Number = int | None
Switch = bool | None
# The words of the API, and those of nats beside them.
STORAGES: Final = OneOf("file", "memory", also={"f": "file", "m": "memory"})
RETENTIONS: Final = OneOf(
    *("limits", "interest", "workqueue"), also={"work": "workqueue", "workq": "workqueue"}
)
DISCARDS: Final = OneOf("old", "new")


@dataclass(frozen=True)
class StreamFlags:
    """Flags of a stream; None means not given. Fields are named as in the configuration."""

    subjects: Annotated[
        Texts, Option("--subjects", help="Subjects to store, joined by commas or repeated")
    ] = None
    description: Annotated[Text, Option("--description", help="Description")] = None
    storage: Annotated[Text, Option("--storage", click_type=STORAGES)] = None
    compression: Annotated[Text, Option("--compression", click_type=OneOf("none", "s2"))] = None
    num_replicas: Annotated[Number, Option("--replicas", min=1, help="Number of replicas")] = None
    tags: Annotated[Texts, Option("--tag", "--tags", help="Place on servers with these tags")] = (
        None
    )
    cluster: Annotated[Text, Option("--cluster", help="Place in this cluster")] = None
    ack: Annotated[Switch, Option("--ack/--no-ack", help="Acknowledge publishes")] = None
    retention: Annotated[Text, Option("--retention", click_type=RETENTIONS)] = None
    discard: Annotated[
        Text,
        Option("--discard", click_type=DISCARDS, help="Discard policy when a limit is reached"),
    ] = None
    discard_new_per_subject: Annotated[
        Switch,
        Option(
            "--discard-per-subject/--no-discard-per-subject",
            help="Also apply `discard new` to the limit per subject",
        ),
    ] = None
    first_seq: Annotated[Number, Option("--first-sequence", min=0, help="First sequence")] = None
    max_age: Annotated[
        Text, Option("--max-age", metavar="DURATION", help="Maximum age, such as 1h, 1d or 1y")
    ] = None
    max_bytes: Annotated[
        Text, Option("--max-bytes", metavar="SIZE", help="Maximum size, such as 10MB or 1GiB")
    ] = None
    max_consumers: Annotated[
        Number, Option("--max-consumers", min=-1, help="Maximum number of consumers")
    ] = None
    max_msg_size: Annotated[
        Text, Option("--max-msg-size", metavar="SIZE", help="Maximum message size")
    ] = None
    max_msgs: Annotated[
        Number, Option("--max-msgs", min=-1, help="Maximum number of messages; -1 for no limit")
    ] = None
    max_msgs_per_subject: Annotated[
        Number,
        Option("--max-msgs-per-subject", min=-1, help="Maximum number of messages per subject"),
    ] = None
    duplicate_window: Annotated[
        Text, Option("--dupe-window", metavar="DURATION", help="Deduplication window")
    ] = None
    mirror: Annotated[Text, Option("--mirror", metavar="STREAM", help="Mirror a stream")] = None
    no_mirror: Annotated[bool, Option("--no-mirror", help="Stop mirroring")] = False
    sources: Annotated[
        Texts, Option("--source", metavar="STREAM", help="Source from this stream")
    ] = None
    origin_prefix: Annotated[
        Text,
        Option(
            "--origin-prefix",
            metavar="PREFIX",
            help="API prefix of the mirrored or sourced streams, such as $JS.hub.API",
        ),
    ] = None
    origin_deliver: Annotated[
        Text,
        Option("--origin-deliver", metavar="PREFIX", help="Prefix of their delivery subjects"),
    ] = None
    allow_atomic: Annotated[
        Switch, Option("--allow-batch/--no-allow-batch", help="Allow atomic batches")
    ] = None
    allow_batched: Annotated[
        Switch, Option("--allow-fast/--no-allow-fast", help="Allow fast batches")
    ] = None
    allow_msg_counter: Annotated[Switch, Option("--allow-counter", help="Allow counters")] = None
    allow_rollup_hdrs: Annotated[
        Switch, Option("--allow-rollup/--no-allow-rollup", help="Allow roll-ups by header")
    ] = None
    deny_delete: Annotated[
        Switch, Option("--deny-delete/--no-deny-delete", help="Deny deleting messages")
    ] = None
    deny_purge: Annotated[Switch, Option("--deny-purge/--no-deny-purge", help="Deny purging")] = (
        None
    )
    allow_direct: Annotated[
        Switch, Option("--allow-direct/--no-allow-direct", help="Allow direct gets (default)")
    ] = None
    mirror_direct: Annotated[
        Switch,
        Option(
            "--allow-mirror-direct/--no-allow-mirror-direct", help="Allow direct gets from mirrors"
        ),
    ] = None
    allow_msg_ttl: Annotated[Switch, Option("--allow-msg-ttl", help="Allow per-message TTLs")] = (
        None
    )
    allow_msg_schedules: Annotated[
        Switch, Option("--allow-schedules/--no-allow-schedules", help="Allow scheduled messages")
    ] = None
    subject_delete_marker_ttl: Annotated[
        Text, Option("--subject-del-markers-ttl", metavar="DURATION", help="TTL of delete markers")
    ] = None
    transform_source: Annotated[Text, Option("--transform-source", metavar="SUBJECT")] = None
    transform_destination: Annotated[Text, Option("--transform-destination", metavar="SUBJECT")] = (
        None
    )
    no_transform: Annotated[bool, Option("--no-transform", help="Remove the subject transform")] = (
        False
    )
    republish_source: Annotated[Text, Option("--republish-source", metavar="SUBJECT")] = None
    republish_destination: Annotated[Text, Option("--republish-destination", metavar="SUBJECT")] = (
        None
    )
    republish_headers: Annotated[
        bool, Option("--republish-headers", help="Republish headers only")
    ] = False
    no_republish: Annotated[bool, Option("--no-republish", help="Stop republishing")] = False
    limit_inactive: Annotated[
        Text,
        Option(
            "--limit-consumer-inactive", metavar="DURATION", help="Longest inactivity of consumers"
        ),
    ] = None
    limit_pending: Annotated[
        Number,
        Option("--limit-consumer-max-pending", min=-1, help="Unacknowledged messages per consumer"),
    ] = None
    persist_mode: Annotated[
        Text, Option("--persist-mode", click_type=OneOf("default", "async"))
    ] = None
    metadata: Annotated[Texts, Option("--metadata", metavar="KEY=VALUE")] = None


# Flags that do not simply hold the value of the member of their name.
_CONVERTED: Final[dict[str, Callable[[Any], Any]]] = {
    "subjects": lambda value: split_subjects(value),
    "mirror": lambda value: source_of(value, "--mirror"),
    "sources": lambda value: [source_of(each, "--source") for each in value],
}


def apply_flags(config: StreamConfig, flags: StreamFlags) -> StreamConfig:
    """The configuration with what was given changed."""
    changes = members_of(flags, StreamConfig, others=("metadata", *_CONVERTED))
    for name, convert in _CONVERTED.items():
        if (value := getattr(flags, name)) is not None:
            changes[name] = convert(value)
    if flags.ack is not None:
        changes["no_ack"] = not flags.ack
    changes |= _grouped(config, flags) | _origins(changes, flags)
    if flags.discard_new_per_subject:
        changes["discard"] = "new"
    document = msgspec.to_builtins(config) | msgspec.to_builtins(changes)
    if flags.no_mirror:
        document.pop("mirror", None)
    if flags.no_transform:
        document.pop("subject_transform", None)
    if flags.no_republish:
        document.pop("republish", None)
    return config_of(document, StreamConfig, "flags")


def members_of(flags: Any, kind: type[Config], *, others: Collection[str]) -> dict[str, Any]:
    """The members of a configuration that flags with their names set, but for some others.

    The type of the member says how a flag is read: durations as `1h`, sizes as `10MB`.
    """
    shapes = shapes_of(kind)
    hints = get_type_hints(type(flags), include_extras=True)
    found = {}
    for item in fields(flags):
        name, value = item.name, getattr(flags, item.name)
        shape = shapes.get(name)
        if value is None or shape is None or name in others:
            continue
        # In an annotation, typer holds the first name of a flag where its default would be.
        flag = get_args(hints[name])[1].default
        if shape.is_duration:
            value = parse_duration_ns(value, flag)
        elif shape.is_size:
            value = parse_size(value, flag)
        found[name] = value
    return found


def _grouped(config: StreamConfig, flags: StreamFlags) -> dict[str, Any]:
    """Members of which each has several flags."""
    changes: dict[str, Any] = {}
    if flags.tags is not None or flags.cluster is not None:
        old = config.placement or Placement()
        changes["placement"] = Placement(
            cluster=old.cluster if flags.cluster is None else flags.cluster,
            tags=old.tags if flags.tags is None else flags.tags,
        )
    if _both(flags, "transform"):
        changes["subject_transform"] = SubjectTransform(
            src=flags.transform_source or "", dest=flags.transform_destination or ""
        )
    if _both(flags, "republish"):
        changes["republish"] = RePublish(
            src=flags.republish_source or "",
            dest=flags.republish_destination or "",
            headers_only=flags.republish_headers,
        )
    if flags.limit_inactive is not None or flags.limit_pending is not None:
        limits = config.consumer_limits
        changes["consumer_limits"] = ConsumerLimits(
            inactive_threshold=limits.inactive_threshold
            if flags.limit_inactive is None
            else parse_duration_ns(flags.limit_inactive, "--limit-consumer-inactive"),
            max_ack_pending=limits.max_ack_pending
            if flags.limit_pending is None
            else flags.limit_pending,
        )
    if flags.metadata is not None:
        changes["metadata"] = dict(config.metadata) | parse_metadata(flags.metadata)
    return changes


def _origins(changes: dict[str, Any], flags: StreamFlags) -> dict[str, Any]:
    """Mirrored and sourced streams that are elsewhere; what is given as JSON says so itself."""
    if flags.origin_prefix is None:
        if flags.origin_deliver is not None:
            raise CommandError("--origin-deliver: needs --origin-prefix", exit_code=EXIT_USAGE)
        return {}
    if "mirror" not in changes and "sources" not in changes:
        raise CommandError("--origin-prefix requires --mirror or --source", exit_code=EXIT_USAGE)
    external = ExternalStream(api=flags.origin_prefix, deliver=flags.origin_deliver or "")

    def elsewhere(source: StreamSource) -> StreamSource:
        return msgspec.structs.replace(source, external=source.external or external)

    found: dict[str, Any] = {}
    if "mirror" in changes:
        found["mirror"] = elsewhere(changes["mirror"])
    if "sources" in changes:
        found["sources"] = [elsewhere(source) for source in changes["sources"]]
    return found


def _both(flags: StreamFlags, name: str) -> bool:
    source = getattr(flags, f"{name}_source")
    destination = getattr(flags, f"{name}_destination")
    if (source is None) != (destination is None):
        raise CommandError(
            f"--{name}-source and --{name}-destination: specify both", exit_code=EXIT_USAGE
        )
    return source is not None


def split_subjects(texts: list[str]) -> list[str]:
    """Subjects joined by commas or blanks, or repeated."""
    return [subject for text in texts for subject in text.replace(",", " ").split()]


def parse_metadata(texts: list[str]) -> dict[str, str]:
    """KEY=VALUE, repeated."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise CommandError(f"--metadata: KEY=VALUE, not {text!r}", exit_code=EXIT_USAGE)
        found[key] = value
    return found


def source_of(text: str, flag: str) -> StreamSource:
    """A mirrored or sourced stream: its name, or its settings as JSON."""
    if not text.lstrip().startswith("{"):
        return StreamSource(name=text)
    return read_json(text.encode(), flag, StreamSource, exit_code=EXIT_USAGE)
