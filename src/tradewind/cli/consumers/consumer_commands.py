"""`tradewind consumer`: show, pause and delete consumers.

Owns the commands on existing consumers; `consumer_change` creates and edits them,
`consumer_messages` reads from them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from tradewind.cli.consumers.consumer_details import (
    ack_text,
    lag_text,
    show_consumer,
    show_list,
    show_state,
)
from tradewind.cli.frame.account_catalog import AccountCatalog, open_catalog
from tradewind.cli.frame.completion import complete_consumer, complete_stream
from tradewind.cli.frame.failures import EXIT_USAGE, CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, ForceFlag, JsonFlag, Option
from tradewind.cli.frame.output import Table, line, print_json
from tradewind.cli.frame.prompts import confirm_or_stop
from tradewind.cli.frame.text_formats import count_text, counted, duration_text, parse_moment_ns
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tradewind.api.consumer_types import ConsumerInfo
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.streams.delivery_lag import DeliveryLag

app = CommandApp("Manage and read from consumers")
app.include_later(
    "tradewind.cli.consumers.consumer_change:app",
    "tradewind.cli.consumers.consumer_messages:app",
    "tradewind.cli.consumers.consumer_find:app",
    "tradewind.cli.consumers.consumer_why:app",
)

StreamName = Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)]
ConsumerName = Annotated[str, Argument(metavar="CONSUMER", autocompletion=complete_consumer)]
NoSelectFlag = Annotated[bool, Option("--no-select", help="Never prompt for a choice", hidden=True)]


@app.command("ls", aliases=("list",))
def list_consumers(
    stream: StreamName = "",
    names: Annotated[bool, Option("--names", "-n", help="Show only names")] = False,
    json: JsonFlag = False,
    no_select: NoSelectFlag = False,  # noqa: ARG001 - for scripts written for nats
) -> None:
    """List the consumers of a stream."""
    with open_catalog() as catalog:
        stream = catalog.pick_stream(stream)
        infos = catalog.manager.consumers.list(stream).all()
    show_list(infos, names=names, json=json, none_text="No Consumers defined")


@app.command("info", aliases=("nfo",))
def show_info(
    stream: StreamName = "",
    consumer: ConsumerName = "",
    json: JsonFlag = False,
    no_select: NoSelectFlag = False,  # noqa: ARG001 - for scripts written for nats
) -> None:
    """Show the configuration and state of a consumer."""
    with open_catalog() as catalog:
        info = catalog.consumer(stream, consumer)
        if json:
            print_json(info)
            return
        lags = catalog.manager.consumers.lags([info])
    show_consumer(info, lags.get(info.name))


@app.command("state")
def show_state_of(
    stream: StreamName = "",
    consumer: ConsumerName = "",
    json: JsonFlag = False,
    no_select: NoSelectFlag = False,  # noqa: ARG001 - for scripts written for nats
) -> None:
    """Show the state of a consumer."""
    with open_catalog() as catalog:
        info = catalog.consumer(stream, consumer)
    if json:
        print_json({name: getattr(info, name) for name in _STATE})
    else:
        show_state(info)


_STATE = (
    "delivered",
    "ack_floor",
    "num_ack_pending",
    "num_redelivered",
    "num_waiting",
    "num_pending",
    "push_bound",
    "paused",
)


@app.command("rm", aliases=("delete", "del"))
def remove_consumer(
    stream: StreamName = "", consumer: ConsumerName = "", force: ForceFlag = False
) -> None:
    """Remove a consumer."""
    with open_catalog() as catalog:
        stream, name = _existing(catalog, stream, consumer)
        confirm_or_stop(f"Really delete Consumer {stream} > {name}", force=force)
        catalog.manager.consumers.delete(stream, name)


def _existing(catalog: AccountCatalog, stream: str, consumer: str) -> tuple[str, str]:
    info = catalog.consumer(stream, consumer)
    return info.stream_name, info.name


@app.command("report")
def report(
    stream: StreamName = "",
    raw: Annotated[bool, Option("--raw", "-r", help="Show plain numbers")] = False,
    json: JsonFlag = False,
) -> None:
    """Report on the consumers of a stream."""
    with open_catalog() as catalog:
        info = catalog.stream(stream)
        infos = catalog.manager.consumers.list(info.config.name).all()
        infos.sort(key=lambda each: each.name)
        if json:
            print_json(infos)
            return
        lags = catalog.manager.consumers.lags(infos)
    report_consumers(info, infos, lags, raw=raw)


def report_consumers(
    info: StreamInfo, infos: list[ConsumerInfo], lags: Mapping[str, DeliveryLag], *, raw: bool
) -> None:
    """How far the consumers of a stream are."""
    last = info.state.last_seq
    table = Table(
        f"Consumer report for {info.config.name} with {counted(len(infos), 'consumer')}",
        *("Consumer", "Mode", "Ack Policy", "Ack Wait", "Ack Pending"),
        *("Redelivered", "Unprocessed", "Lag", "Ack Floor"),
        drop=("Ack Wait", "Mode", "Ack Policy", "Redelivered", "Ack Floor"),
    )
    for each in infos:
        share = f" / {each.num_pending * 100 // last} %" if last and each.num_pending else ""
        unprocessed = str(each.num_pending) if raw else count_text(each.num_pending) + share
        table.row(
            each.name,
            "Push" if each.config.deliver_subject else "Pull",
            ack_text(each.config),
            duration_text(each.config.ack_wait) if each.config.ack_wait else "",
            each.num_ack_pending,
            each.num_redelivered,
            unprocessed,
            lag_text(lags.get(each.name)),
            each.ack_floor.stream_seq,
        )
    table.print()


@app.command("pause")
def pause_consumer(
    stream: StreamName = "",
    consumer: ConsumerName = "",
    until: Annotated[
        str, Argument(metavar="TIME", help="1h, 2026-01-31 12:00:00 or RFC 3339")
    ] = "",
    force: ForceFlag = False,
    json: JsonFlag = False,
) -> None:
    """Pause delivery until a time or for a duration."""
    if not until:
        raise CommandError(
            "no time given; specify a time or a duration: consumer pause STREAM CONSUMER 1h",
            exit_code=EXIT_USAGE,
        )
    until_ns = parse_moment_ns(until, "TIME")
    moment = datetime.fromtimestamp(until_ns / SECOND_NS, UTC)
    with open_catalog() as catalog:
        stream, name = _existing(catalog, stream, consumer)
        shown = moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        confirm_or_stop(f"Really pause Consumer {stream} > {name} until {shown}", force=force)
        answer = catalog.manager.consumers.pause(stream, name, moment)
    if json:
        print_json(answer)
    elif answer.paused:
        left = duration_text(answer.pause_remaining)
        line(f"Paused {stream} > {name} until {shown} ({left})")
    else:
        raise CommandError(f"{stream} > {name} is not paused: {shown} has passed")


@app.command("resume")
def resume_consumer(
    stream: StreamName = "", consumer: ConsumerName = "", force: ForceFlag = False
) -> None:
    """Resume a paused consumer."""
    with open_catalog() as catalog:
        stream, name = _existing(catalog, stream, consumer)
        if not catalog.consumer(stream, name).paused:
            line(f"Consumer {stream} > {name} is not paused")
            return
        confirm_or_stop(f"Really resume Consumer {stream} > {name}", force=force)
        catalog.manager.consumers.resume(stream, name)
    line(f"Consumer {stream} > {name} was resumed")


@app.command("unpin")
def unpin_consumer(
    stream: StreamName = "",
    consumer: ConsumerName = "",
    group: Annotated[str, Argument(metavar="GROUP")] = "",
    force: ForceFlag = False,
) -> None:
    """Unpin a priority group, so that another client can take over."""
    with open_catalog() as catalog:
        info = catalog.consumer(stream, consumer)
        stream, name = info.stream_name, info.name
        groups = info.config.priority_groups
        if not group and len(groups) == 1:
            group = groups[0]
        if group not in groups:
            known = ", ".join(groups) or "none"
            raise CommandError(f"Consumer {stream} > {name} has no group {group!r}: {known}")
        confirm_or_stop(f"Really unpin client from group {stream} > {name} > {group}", force=force)
        catalog.manager.consumers.unpin(stream, name, group)
    line(f"Unpinned client from Priority Group {stream} > {name} > {group}")


@app.command("reset")
def reset_consumer(
    stream: StreamName = "",
    consumer: ConsumerName = "",
    sequence: Annotated[int, Option("--sequence", min=0, help="Start at a sequence")] = 0,
    force: ForceFlag = False,
    json: JsonFlag = False,
) -> None:
    """Reset a consumer: redeliver unacknowledged messages, or everything from a sequence."""
    with open_catalog() as catalog:
        stream, name = _existing(catalog, stream, consumer)
        confirm_or_stop(f"Really reset Consumer {stream} > {name}", force=force)
        info = catalog.manager.consumers.reset(stream, name, seq=sequence)
    if json:
        print_json(info)
    else:
        show_state(info)
