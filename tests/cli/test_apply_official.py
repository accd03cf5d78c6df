"""`tradewind apply` and `export` with what only nats-server has yet: mirrors, sources, counters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cli_outcome import Cli
from harness import ServerProcess
from jetstream_servers import keep_streams_folder
from tradewind.sync import connect

if TYPE_CHECKING:
    from tradewind.sync import JetStream


def make_everything(js: JetStream) -> None:
    streams, consumers = js.manager.streams, js.manager.consumers
    streams.add(name="SOURCE", subjects=["source.>"], max_age=3600)
    streams.add(name="MIRROR", mirror={"name": "SOURCE", "filter_subject": "source.a"})
    streams.add(name="ALL", sources=[{"name": "SOURCE", "opt_start_seq": 1}])
    streams.add(
        name="MUCH",
        subjects=["much.>"],
        subject_transform={"src": "much.*", "dest": "more.{{wildcard(1)}}"},
        subject_delete_marker_ttl=10,
        allow_atomic=True,
        allow_msg_schedules=True,
        compression="s2",
        first_seq=50,
    )
    streams.add(name="COUNTS", subjects=["count.>"], allow_msg_counter=True)
    streams.add(
        name="JOBS",
        subjects=["jobs"],
        retention="workqueue",
        consumer_limits={"max_ack_pending": 10, "inactive_threshold": 1000},
    )
    consumers.add("JOBS", durable_name="worker", ack_policy="explicit")
    consumers.add(
        "MUCH",
        durable_name="several",
        ack_policy="all",
        filter_subjects=["more.a", "more.b"],
        deliver_policy="by_start_time",
        opt_start_time="2024-01-01T00:00:00Z",
    )
    consumers.add(
        "MUCH",
        durable_name="pinned",
        ack_policy="explicit",
        priority_groups=["g"],
        priority_policy="pinned_client",
        priority_timeout=5,
    )
    consumers.add(
        "MUCH",
        durable_name="pushed",
        ack_policy="explicit",
        deliver_subject="out",
        deliver_group="q",
        idle_heartbeat=5,
        flow_control=True,
        sample_freq="10%",
    )
    js.kv.create("one", history=2)
    js.kv.create("copy", mirror="one")
    js.kv.create("joined", sources=["one"], marker_ttl=5)


def everything(js: JetStream) -> dict[str, Any]:
    manager = js.manager
    return {
        info.config.name: (
            info.config,
            {
                consumer.name: consumer.config
                for consumer in manager.consumers.list(info.config.name)
                if consumer.config.durable_name
            },
        )
        for info in manager.streams.list()
    }


def test_what_only_nats_server_has_survives_export_and_apply(
    offline: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path / "data")]
    server = ServerProcess("official", flags)
    file = str(tmp_path / "all.yaml")
    try:
        monkeypatch.setenv("NATS_URL", server.wait_ready().url)
        keep_streams_folder(tmp_path / "data")
        with connect(server.url) as connection:
            js = connection.jetstream()
            make_everything(js)
            before = everything(js)
            offline("export", "--output", file).ok()
            assert offline("apply", file, "--prune").ok().out == (
                "0 to add, 0 to change, 0 to remove, 13 as declared\n"
            )
            for name in before:
                js.manager.streams.delete(name)
            offline("apply", file, "--force").ok()
            assert everything(js) == before
    finally:
        server.stop()
