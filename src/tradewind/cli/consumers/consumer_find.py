"""`tradewind consumer find`: finds consumers by configuration, state or lag.

Owns the conditions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tradewind.api.times import parse_time
from tradewind.cli.consumers.consumer_details import show_list
from tradewind.cli.frame.account_catalog import open_catalog
from tradewind.cli.frame.completion import complete_stream
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option, with_flags
from tradewind.cli.frame.text_formats import parse_duration_ns

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerInfo

app = CommandApp("Find consumers")


@dataclass(frozen=True)
class ConsumerFindFlags:
    """The criteria of a search for consumers; one that is not given matches any consumer."""

    pull: Annotated[bool, Option("--pull", help="Pull consumers")] = False
    push: Annotated[bool, Option("--push", help="Push consumers")] = False
    bound: Annotated[bool, Option("--bound", help="Consumers with an active client")] = False
    waiting: Annotated[
        int | None, Option("--waiting", min=0, help="Fewer waiting pulls than this")
    ] = None
    ack_pending: Annotated[
        int | None, Option("--ack-pending", min=0, help="Fewer unacknowledged messages than this")
    ] = None
    pending: Annotated[
        int | None, Option("--pending", min=0, help="Fewer unprocessed messages than this")
    ] = None
    idle: Annotated[
        str, Option("--idle", metavar="DURATION", help="No deliveries for this long")
    ] = ""
    created: Annotated[str, Option("--created", metavar="DURATION", help="Older than this")] = ""
    replicas: Annotated[int, Option("--replicas", min=0, help="This many replicas at most")] = 0
    leader: Annotated[
        str, Option("--leader", metavar="SERVER", help="Leader is on this server")
    ] = ""
    pinned: Annotated[bool, Option("--pinned", help="All priority groups are pinned")] = False
    invert: Annotated[bool, Option("--invert", help="Invert the match")] = False

    def matches(self, info: ConsumerInfo, now_ns: int) -> bool:
        """Whether a consumer is one of these."""
        is_push = bool(info.config.deliver_subject)
        checks = []
        if self.pull:
            checks.append(not is_push)
        if self.push:
            checks.append(is_push)
        if self.bound:
            checks.append(info.push_bound or info.num_waiting > 0)
        if self.waiting is not None:
            checks.append(not is_push and info.num_waiting < self.waiting)
        if self.ack_pending is not None:
            checks.append(info.num_ack_pending < self.ack_pending)
        if self.pending is not None:
            checks.append(info.num_pending < self.pending)
        if self.idle:
            last_ns = parse_time(info.delivered.last_active or info.created)
            checks.append(now_ns - last_ns > parse_duration_ns(self.idle, "--idle"))
        if self.created:
            age_ns = now_ns - parse_time(info.created)
            checks.append(age_ns > parse_duration_ns(self.created, "--created"))
        if self.replicas:
            checks.append(info.config.num_replicas <= self.replicas)
        if self.leader:
            checks.append(info.cluster is not None and info.cluster.leader == self.leader)
        if self.pinned:
            groups = info.priority_groups
            checks.append(bool(groups) and all(group.pinned_client_id for group in groups))
        return all(checks) is not self.invert


@app.command("find", aliases=("query",))
@with_flags(ConsumerFindFlags)
def find_consumers(
    stream: Annotated[str, Argument(metavar="STREAM", autocompletion=complete_stream)] = "",
    names: Annotated[bool, Option("--names", "-n", help="Show only names")] = False,
    json: JsonFlag = False,
    *,
    flags: ConsumerFindFlags,
) -> None:
    """Find consumers of a stream by their properties or their lag."""
    with open_catalog() as catalog:
        infos = catalog.manager.consumers.list(catalog.pick_stream(stream)).all()
    now_ns = time.time_ns()
    found = [info for info in infos if flags.matches(info, now_ns)]
    show_list(found, names=names, json=json, none_text="No Consumers match")
