"""The screens of lists, reports and `top` fit terminals of 80 and of 120 columns.

The screens are kept in `tests/cli/screens`, made of fixed data. TRADEWIND_RENEW=1 writes them anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, ConsumerInfo, SequenceInfo
from tradewind.api.stream_types import (
    ErrorDetail,
    StreamConfig,
    StreamInfo,
    StreamSourceInfo,
    StreamState,
)
from tradewind.api.times import parse_time
from tradewind.cli.consumers.consumer_commands import report_consumers
from tradewind.cli.consumers.consumer_details import show_consumer, show_list
from tradewind.cli.frame.output import line, width
from tradewind.cli.frame.settings import begin
from tradewind.cli.servers.server_commands import show_servers
from tradewind.cli.servers.system import Document, Statistics
from tradewind.cli.servers.top import make_screen
from tradewind.cli.streams.stream_commands import (
    report_replication,
    report_streams,
    show_stream_list,
)
from tradewind.cli.streams.stream_details import show_stream
from tradewind.durations import SECOND_NS

SCREENS = Path(__file__).parent / "screens"
NOW = "2026-11-18T12:00:00Z"
CREATED = "2026-11-15T09:30:00Z"
SUBJECTS = [f"orders.{region}.>" for region in ("africa", "americas", "asia", "europe", "oceania")]


def _stream(name: str, messages: int, description: str = "", last: str = CREATED) -> StreamInfo:
    return StreamInfo(
        config=StreamConfig(
            name=name,
            description=description,
            subjects=SUBJECTS if name == "ORDERS" else [f"{name.lower()}.>"],
            num_replicas=1,
        ),
        created=CREATED,
        state=StreamState(
            messages=messages,
            bytes=messages * 733,
            first_seq=1,
            first_ts=CREATED,
            last_seq=messages,
            last_ts=last,
            consumer_count=2,
        ),
    )


def _streams() -> list[StreamInfo]:
    orders = _stream("ORDERS", 1_204_331, "All orders of the shops, by region", NOW)
    mirror = StreamSourceInfo(
        name="ORDERS",
        active=90 * SECOND_NS,
        lag=12,
        error=ErrorDetail(code=503, description="the other domain does not answer at the moment"),
    )
    copy = _stream("ORDERS_AT_THE_SECOND_SITE_FOR_REPORTING", 9, last="2026-11-18T11:58:30Z")
    return [orders, StreamInfo(config=copy.config, state=copy.state, mirror=mirror)]


def _consumers() -> list[ConsumerInfo]:
    return [
        ConsumerInfo(
            stream_name="ORDERS",
            name=name,
            created=CREATED,
            config=ConsumerConfig(
                durable_name=name,
                description="Packs what was ordered",
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=30 * SECOND_NS,
                filter_subjects=SUBJECTS,
            ),
            delivered=SequenceInfo(
                consumer_seq=40, stream_seq=1_204_000, last_active="2026-11-18T09:50:00Z"
            ),
            ack_floor=SequenceInfo(consumer_seq=38, stream_seq=1_203_998),
            num_ack_pending=2,
            num_pending=331,
        )
        for name in ("packer", "invoices")
    ]


def _top() -> list[str]:
    varz: Document = {
        "server_name": "harbour",
        "version": "2.15.1",
        "uptime": "3d2h10m4s",
        "cpu": 12.5,
        "mem": 48 << 20,
        "in_msgs": 5_000_000,
        "in_bytes": 1 << 32,
        "out_msgs": 9_000_000,
        "out_bytes": 1 << 33,
        "slow_consumers": 0,
    }
    connections = [
        {
            "cid": number,
            "ip": "127.0.0.1",
            "port": 50_000 + number,
            "account": "SHOP",
            "name": f"packer-{number}-of-the-warehouse",
            "subscriptions": 3,
            "pending_bytes": 0,
            "out_msgs": 120_000,
            "in_msgs": 64,
            "out_bytes": 1 << 20,
            "in_bytes": 4096,
            "lang": "python-tradewind",
            "version": "0.1.0",
            "uptime": "1h4m9s",
            "rtt": "1.234567ms",
        }
        for number in range(1, 4)
    ]
    before = {"in_msgs": 4_900_000, "out_msgs": 8_000_000}
    return make_screen(varz, {"connections": connections, "total": 3}, before, 10.0)


def _servers() -> list[Statistics]:
    server = {"name": "harbour", "host": "0.0.0.0", "ver": "2.15.1", "jetstream": True, "id": "N"}
    stats = {"connections": 3, "subscriptions": 9, "mem": 48 << 20, "cpu": 12.5, "cores": 8}
    return [Statistics(server, {**stats, "start": CREATED}, 1_234_567)]


def _show_top() -> None:
    for each in _top():
        line(each)


COMMANDS: dict[str, Callable[[], None]] = {
    "tradewind stream ls": lambda: show_stream_list(
        _streams(), names=False, json=False, none_text=""
    ),
    "tradewind stream report": lambda: report_streams(_streams(), raw=False),
    "tradewind stream report (replication)": lambda: report_replication(_streams()),
    "tradewind stream info ORDERS": lambda: show_stream(_streams()[0]),
    "tradewind consumer ls ORDERS": lambda: show_list(
        _consumers(), names=False, json=False, none_text=""
    ),
    "tradewind consumer report ORDERS": lambda: report_consumers(
        _streams()[0], _consumers(), {}, raw=False
    ),
    "tradewind consumer info ORDERS packer": lambda: show_consumer(_consumers()[0]),
    "tradewind server ls": lambda: show_servers(_servers()),
    "tradewind top": _show_top,
}


@pytest.fixture
def _fixed_times(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    now = parse_time(NOW)
    monkeypatch.setattr(time, "time_ns", lambda: now)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_fixed_times")
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_screens_fit_the_terminal_and_are_the_kept_ones(
    columns: int,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    begin()
    shown = []
    for command, show in COMMANDS.items():
        capsys.readouterr()
        show()
        printed = capsys.readouterr()
        too_wide = [each for each in printed.out.splitlines() if width(each) > columns]
        assert not too_wide, f"{command}: {too_wide[0]}"
        shown.append(f"$ {command}\n{printed.out}{printed.err}")
    text = "\n".join(shown)
    kept = SCREENS / f"{columns}x{lines}.txt"
    if os.environ.get("TRADEWIND_RENEW"):
        kept.write_text(text)
    assert text == kept.read_text(), "TRADEWIND_RENEW=1 writes the screens anew"
