"""The output of `tradewind stream info`.

Owns the labels and their order, which are those of the `nats` command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api.versioning import user_metadata
from tradewind.cli.frame.output import Columns
from tradewind.cli.frame.text_formats import (
    count_text,
    duration_text,
    limit_text,
    since_text,
    size_text,
    time_text,
)

if TYPE_CHECKING:
    from tradewind.api.stream_types import (
        ClusterInfo,
        StreamConfig,
        StreamInfo,
        StreamSource,
        StreamSourceInfo,
        StreamState,
    )

_RETENTION = {"limits": "Limits", "interest": "Interest", "workqueue": "WorkQueue"}


def show_stream(info: StreamInfo) -> None:
    """Configuration and state."""
    name = info.config.name
    columns = Columns(f"Information for Stream {name} created {time_text(info.created)}")
    add_config(columns, info.config)
    if info.cluster is not None and info.cluster.leader:
        add_cluster(columns, info.cluster)
    for title, sources in (
        ("Mirror", [info.mirror] if info.mirror else []),
        ("Source", info.sources),
    ):
        if sources:
            columns.section(f"{title} Information")
        for source in sources:
            _add_source_state(columns, source)
    if (checks := info.schema_checks) is not None:
        columns.section("Schema Checks")
        columns.row("Wrong Messages", f"{checks.wrong:,} of {checks.checked:,}, {checks.action}")
        columns.row_if("Stored Unchecked", checks.unchecked)
        columns.row_if("Last Problem", checks.last_problem)
    add_state(columns, info.state, config=info.config)
    columns.print()


def show_state(info: StreamInfo) -> None:
    """The state alone."""
    columns = Columns(f"State for Stream {info.config.name} created {time_text(info.created)}")
    add_state(columns, info.state)
    columns.print()


def add_config(columns: Columns, config: StreamConfig) -> None:
    """Subjects, options, limits, metadata and replication."""
    columns.row_if("Description", config.description)
    columns.row_if("Subjects", config.subjects)
    columns.row("Replicas", config.num_replicas)
    storage = config.storage.capitalize()
    compressed = (
        f" ({config.compression.upper()} Compression)" if config.compression != "none" else ""
    )
    columns.row("Storage", storage + compressed)
    if config.placement is not None:
        columns.row_if("Placement Cluster", config.placement.cluster)
        columns.row_if("Placement Tags", config.placement.tags)
    _add_options(columns, config)
    _add_limits(columns, config)
    metadata = user_metadata(config.metadata)
    if metadata:
        columns.section("Metadata")
        for key in sorted(metadata):
            columns.row(key, metadata[key])
    if config.mirror is not None or config.sources:
        columns.section("Replication")
        if config.mirror is not None:
            columns.row("Mirror", _source_text(config.mirror))
        for source in config.sources:
            columns.row("Source", _source_text(source))


def _add_options(columns: Columns, config: StreamConfig) -> None:
    columns.section("Options")
    columns.row_if("Sealed", config.sealed)
    columns.row("Retention", _RETENTION.get(config.retention, config.retention))
    columns.row("Acknowledgments", not config.no_ack)
    discard = config.discard.capitalize()
    columns.row(
        "Discard Policy", f"{discard} Per Subject" if config.discard_new_per_subject else discard
    )
    columns.row("Duplicate Window", duration_text(config.duplicate_window))
    columns.row("Direct Get", config.allow_direct)
    columns.row_if("Mirror Direct Get", config.mirror_direct)
    columns.row("Allows Atomic Batch Publish", config.allow_atomic)
    columns.row("Allows Fast Batch Publish", config.allow_batched)
    columns.row("Allows Counters", config.allow_msg_counter)
    columns.row("Allows Msg Delete", not config.deny_delete)
    columns.row("Allows Per-Message TTL", config.allow_msg_ttl)
    if config.subject_delete_marker_ttl:
        columns.row("Subject Delete Markers TTL", duration_text(config.subject_delete_marker_ttl))
    columns.row("Allows Purge", not config.deny_purge)
    columns.row("Allows Schedules", config.allow_msg_schedules)
    columns.row("Allows Rollups", config.allow_rollup_hdrs)
    if config.persist_mode != "default":
        columns.row("Persist Mode", config.persist_mode)
    columns.row_if("First Sequence", config.first_seq)
    if config.subject_transform is not None:
        transform = config.subject_transform
        columns.row("Subject Transform", f"{transform.src} to {transform.dest}")
    if config.republish is not None:
        headers = " (headers only)" if config.republish.headers_only else ""
        columns.row("Republish", f"{config.republish.src} to {config.republish.dest}{headers}")


def _add_limits(columns: Columns, config: StreamConfig) -> None:
    columns.section("Limits")
    columns.row("Maximum Messages", limit_text(config.max_msgs))
    columns.row("Maximum Per Subject", limit_text(config.max_msgs_per_subject))
    columns.row("Maximum Bytes", limit_text(config.max_bytes, size_text(config.max_bytes)))
    columns.row("Maximum Age", limit_text(config.max_age, duration_text(config.max_age)))
    columns.row(
        "Maximum Message Size", limit_text(config.max_msg_size, size_text(config.max_msg_size))
    )
    columns.row("Maximum Consumers", limit_text(config.max_consumers))
    limits = config.consumer_limits
    if limits.inactive_threshold:
        columns.row("Consumer Inactive Threshold", duration_text(limits.inactive_threshold))
    columns.row_if("Consumer Max Ack Pending", limits.max_ack_pending)


def add_cluster(columns: Columns, cluster: ClusterInfo) -> None:
    """The servers that hold it."""
    columns.section("Cluster Information")
    columns.row_if("Name", cluster.name)
    columns.row_if("Cluster Group", cluster.raft_group)
    columns.row("Leader", cluster.leader)
    for replica in cluster.replicas:
        state = "offline" if replica.offline else "current" if replica.current else "outdated"
        lag = f", {count_text(replica.lag)} operations behind" if replica.lag else ""
        seen = f", seen {duration_text(replica.active)} ago"
        columns.row("Replica", f"{replica.name}, {state}{seen}{lag}")


def add_state(columns: Columns, state: StreamState, config: StreamConfig | None = None) -> None:
    """Add the state of a stream: its messages, sequences and losses."""
    columns.section("State")
    level = config.metadata.get("_nats.req.level", "0") if config is not None else "0"
    if level != "0":
        columns.row("Required API Level", level)
    columns.row("Messages", state.messages)
    columns.row("Bytes", size_text(state.bytes))
    columns.row("First Sequence", _position(state.first_seq, state.first_ts))
    columns.row("Last Sequence", _position(state.last_seq, state.last_ts))
    if state.num_deleted:
        columns.row("Deleted Messages", state.num_deleted)
    if state.lost is not None:
        count = len(state.lost.msgs or ())
        columns.row("Lost Messages", f"{count_text(count)} ({size_text(state.lost.bytes)})")
    columns.row("Active Consumers", state.consumer_count)
    columns.row_if("Number of Subjects", state.num_subjects)


def _position(sequence: int, moment: str) -> str:
    when = time_text(moment)
    return count_text(sequence) if when == "never" else f"{count_text(sequence)} @ {when}"


def _source_text(source: StreamSource) -> str:
    parts = [source.name]
    if source.opt_start_seq:
        parts.append(f"from sequence {source.opt_start_seq}")
    if source.opt_start_time:
        parts.append(f"from {time_text(source.opt_start_time)}")
    if source.filter_subject:
        parts.append(f"only {source.filter_subject}")
    parts += [f"{each.src} to {each.dest}" for each in source.subject_transforms]
    if source.external is not None:
        parts.append(f"API prefix {source.external.api}")
        if source.external.deliver:
            parts.append(f"delivery prefix {source.external.deliver}")
    if source.consumer is not None:
        parts.append(f"consumer {source.consumer.name} on {source.consumer.deliver_subject}")
    return ", ".join(parts)


def _add_source_state(columns: Columns, source: StreamSourceInfo) -> None:
    columns.row("Stream Name", source.name)
    if source.external is not None:
        columns.row("API Prefix", source.external.api)
    columns.row_if("Subject Filter", source.filter_subject)
    columns.row("Lag", source.lag)
    columns.row("Last Seen", "never" if source.active < 0 else duration_text(source.active))
    if source.error is not None:
        columns.row("Error", source.error.description)


def last_message(state: StreamState) -> str:
    """When the last message came: `1m30s`, `never`."""
    return since_text(state.last_ts) if state.last_seq else "never"
