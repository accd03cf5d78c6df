"""The output of `tradewind consumer info`.

Owns the labels and their order, which are those of the `nats` command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api.nak_policy import described_nak_policy
from tradewind.api.order_rules import described_order
from tradewind.api.versioning import user_metadata
from tradewind.cli.frame.output import Columns, Table, line, print_json
from tradewind.cli.frame.text_formats import (
    count_text,
    counted,
    duration_text,
    limit_text,
    since_text,
    size_text,
    time_text,
)
from tradewind.cli.streams.stream_details import add_cluster
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerConfig, ConsumerInfo, SequenceInfo
    from tradewind.client.streams.delivery_lag import DeliveryLag


def show_consumer(info: ConsumerInfo, lag: DeliveryLag | None = None) -> None:
    """Configuration and state, with the lag if it was asked for."""
    columns = Columns(
        f"Information for Consumer {info.stream_name} > {info.name} created "
        f"{time_text(info.created)}"
    )
    add_config(columns, info)
    metadata = user_metadata(info.config.metadata)
    if metadata:
        columns.section("Metadata")
        for key in sorted(metadata):
            columns.row(key, metadata[key])
    if info.cluster is not None and info.cluster.leader:
        add_cluster(columns, info.cluster)
    add_state(columns, info, lag)
    columns.print()


def show_list(infos: list[ConsumerInfo], *, names: bool, json: bool, none_text: str) -> None:
    """A table of consumers, or their names, or both for machines."""
    infos.sort(key=lambda info: info.name)
    if json:
        print_json([info.name for info in infos] if names else infos)
    elif names:
        for info in infos:
            line(info.name)
    elif not infos:
        line(none_text)
    else:
        table = Table(
            "Consumers",
            *("Name", "Description", "Created", "Ack Pending", "Unprocessed", "Last Delivery"),
            shorten=("Description",),
            drop=("Created", "Description", "Last Delivery"),
        )
        for info in infos:
            table.row(
                info.name,
                info.config.description,
                time_text(info.created),
                info.num_ack_pending,
                info.num_pending,
                since_text(info.delivered.last_active),
            )
        table.print()


def show_state(info: ConsumerInfo) -> None:
    """The state alone."""
    columns = Columns(
        f"State for Consumer {info.stream_name} > {info.name} created {time_text(info.created)}"
    )
    add_state(columns, info)
    columns.print()


def add_config(columns: Columns, info: ConsumerInfo) -> None:
    """How messages are chosen and delivered."""
    config = info.config
    columns.section("Configuration")
    columns.row("Name", info.name)
    columns.row_if("Description", config.description)
    if config.deliver_subject:
        columns.row("Delivery Subject", config.deliver_subject)
        columns.row_if("Deliver Queue Group", config.deliver_group)
    else:
        columns.row("Pull Mode", True)
    filters = [config.filter_subject] if config.filter_subject else config.filter_subjects
    columns.row_if("Filter Subject" if len(filters) == 1 else "Filter Subjects", filters)
    columns.row("Deliver Policy", policy_text(config))
    columns.row("Ack Policy", ack_text(config))
    if config.ack_policy != "none":
        columns.row("Ack Wait", duration_text(config.ack_wait))
    columns.row("Replay Policy", config.replay_policy.capitalize())
    if config.max_deliver > 0:
        columns.row("Maximum Deliveries", config.max_deliver)
    columns.row_if("Backoff", [duration_text(each) for each in config.backoff])
    columns.row_if("NAK Delay", described_nak_policy(config.metadata))
    columns.row_if("Order", described_order(config.metadata))
    columns.row_if("Sampling Rate", config.sample_freq)
    columns.row_if(
        "Rate Limit", config.rate_limit_bps and f"{count_text(config.rate_limit_bps)} b/s"
    )
    if config.ack_policy != "none":
        columns.row("Max Ack Pending", limit_text(config.max_ack_pending))
    _add_details(columns, config)
    if info.paused:
        until = time_text(config.pause_until)
        left = duration_text(info.pause_remaining)
        columns.row("Paused Until Deadline", f"{until} ({left} remaining)")


def _add_details(columns: Columns, config: ConsumerConfig) -> None:
    if not config.deliver_subject:
        columns.row("Max Waiting Pulls", config.max_waiting)
    columns.row_if("Idle Heartbeat", config.idle_heartbeat and duration_text(config.idle_heartbeat))
    columns.row_if("Flow Control", config.flow_control)
    columns.row_if("Headers Only", config.headers_only)
    columns.row_if("Max Pull Batch", config.max_batch)
    columns.row_if("Max Pull Expire", config.max_expires and duration_text(config.max_expires))
    columns.row_if("Max Pull MaxBytes", config.max_bytes and size_text(config.max_bytes))
    columns.row_if(
        "Inactive Threshold", config.inactive_threshold and duration_text(config.inactive_threshold)
    )
    columns.row_if("Memory Storage", config.mem_storage)
    columns.row_if("Replicas", config.num_replicas)
    if config.priority_groups:
        columns.row("Priority Policy", config.priority_policy)
        columns.row("Priority Groups", config.priority_groups)
    columns.row_if("Pinned TTL", config.priority_timeout and duration_text(config.priority_timeout))


def add_state(columns: Columns, info: ConsumerInfo, lag: DeliveryLag | None = None) -> None:
    """How far it has come."""
    config = info.config
    columns.section("State")
    if lag is not None and lag.messages:
        columns.row("Lag", f"{counted(lag.messages, 'message')}, oldest {lag_text(lag)}")
    columns.row("Last Delivered Message", position_text(info.delivered, "Last delivery"))
    if config.ack_policy != "none":
        columns.row("Acknowledgment Floor", position_text(info.ack_floor, "Last Ack"))
        outstanding = count_text(info.num_ack_pending)
        if config.max_ack_pending > 0:
            outstanding += f" out of maximum {count_text(config.max_ack_pending)}"
        columns.row("Outstanding Acks", outstanding)
        columns.row("Redelivered Messages", info.num_redelivered)
    columns.row("Unprocessed Messages", info.num_pending)
    if not config.deliver_subject:
        waiting = f"{count_text(info.num_waiting)} of maximum {count_text(config.max_waiting)}"
        columns.row("Waiting Pulls", waiting)
    elif not info.push_bound:
        columns.row("Active Interest", "No interest")
    else:
        group = f" using Queue Group {config.deliver_group}" if config.deliver_group else ""
        columns.row("Active Interest", f"Active{group}")
    for held in info.priority_groups:
        pinned = f"{held.pinned_client_id} since {time_text(held.pinned_ts)}"
        columns.row(f"Group {held.group}", pinned if held.pinned_client_id else "not pinned")


def lag_text(lag: DeliveryLag | None) -> str:
    """The age of the oldest message that a consumer is not done with: 3m12s."""
    if lag is None or lag.seconds is None:
        return "unknown"
    return duration_text(int(lag.seconds * SECOND_NS)) if lag.seconds else ""


def position_text(position: SequenceInfo, label: str) -> str:
    """`Consumer sequence: 3 Stream sequence: 5 Last delivery: 1.00s ago`."""
    consumer, stream = count_text(position.consumer_seq), count_text(position.stream_seq)
    text = f"Consumer sequence: {consumer} Stream sequence: {stream}"
    if position.last_active:
        text += f" {label}: {since_text(position.last_active)} ago"
    return text


def policy_text(config: ConsumerConfig) -> str:
    """Where it starts."""
    if config.deliver_policy == "by_start_sequence":
        return f"From Sequence {config.opt_start_seq}"
    if config.deliver_policy == "by_start_time":
        return f"Since {time_text(config.opt_start_time)}"
    return {
        "all": "All",
        "last": "Last",
        "new": "New",
        "last_per_subject": "Last Per Subject",
    }[config.deliver_policy]


def ack_text(config: ConsumerConfig) -> str:
    """How messages are acknowledged."""
    return config.ack_policy.replace("_", " ").title()
