"""The pieces of a workload: what it is, how much to run, and the figures it gives.

Knows no workload and no server of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.procfs import Meter, session_usage
from benchmarks.servers import Server

WARM_UP_PART = 20
QUICK_PART = 10


@dataclass(frozen=True)
class Metric:
    """One figure: its unit as printed, and which direction is better."""

    unit: str
    higher_is_better: bool = True


METRICS = {
    "per_cpu": Metric("messages per CPU s"),
    "wall": Metric("messages per s"),
    "p50_us": Metric("p50 us", higher_is_better=False),
    "p99_us": Metric("p99 us", higher_is_better=False),
    "p999_us": Metric("p99.9 us", higher_is_better=False),
    "subscribe_ms": Metric("subscribe all, ms", higher_is_better=False),
    "subscribe_per_cpu": Metric("subscribes per CPU s"),
    "subscription_bytes": Metric("bytes per subscription", higher_is_better=False),
    "alone_per_cpu": Metric("alone: messages per CPU s"),
    "among_per_cpu": Metric("among all: messages per CPU s"),
    "growth": Metric("CPU per message, among / alone", higher_is_better=False),
    "match_per_cpu": Metric("matching: messages per CPU s"),
    "no_match_per_cpu": Metric("no match: messages per CPU s"),
    "connect_s": Metric("connect all, s", higher_is_better=False),
    "connects_per_cpu": Metric("connects per CPU s"),
    "connection_kib": Metric("KiB per connection", higher_is_better=False),
    "start_ms": Metric("exec to INFO, ms", higher_is_better=False),
    "start_cpu_ms": Metric("exec to INFO, CPU ms", higher_is_better=False),
    "idle_cpu_ms": Metric("idle: CPU ms per s", higher_is_better=False),
    "filtered_ms": Metric("read all that match, ms", higher_is_better=False),
    "filtered_cpu_ms": Metric("the same, CPU ms", higher_is_better=False),
    "unfiltered_per_cpu": Metric("no filter: messages per CPU s"),
    "filter_all_per_cpu": Metric("filter: messages per CPU s"),
    "filter_growth": Metric("CPU per message, filter / none", higher_is_better=False),
    "create_ms": Metric("create, no filter, ms", higher_is_better=False),
    "create_one_ms": Metric("create, one subject, ms", higher_is_better=False),
    "create_wildcard_ms": Metric("create, wildcard, ms", higher_is_better=False),
    "created_per_cpu": Metric("created per CPU s"),
    "created_kib": Metric("KiB each", higher_is_better=False),
    "published_per_cpu": Metric("published per CPU s"),
    "delivered_per_cpu": Metric("published, delivered per CPU s"),
    "duplicates_per_cpu": Metric("duplicates per CPU s"),
    "id_bytes": Metric("bytes per message with id", higher_is_better=False),
    "rss_mib": Metric("RSS MiB", higher_is_better=False),
    "schedules_mib": Metric("memory of them, MiB", higher_is_better=False),
    "restart_cpu_ms": Metric("start after a stop, CPU ms", higher_is_better=False),
    "killed_cpu_ms": Metric("start after a kill, CPU ms", higher_is_better=False),
    "anonymous_mib": Metric("anonymous memory MiB", higher_is_better=False),
    "replayed_per_s": Metric("meanwhile replayed per s"),
    **{
        f"crowd_{count}{kind}": Metric(f"{count} waiting: messages per {unit}")
        for kind, unit in (("", "s"), ("_per_cpu", "CPU s"))
        for count in (1, 2, 4, 8, 16)
    },
}


@dataclass
class Result:
    """Figures of one run by metric key, and notes about the run that only the JSON file keeps."""

    figures: dict[str, float] = field(default_factory=dict)
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """How much load to put on: the counts of the workloads, or a part of them."""

    quick: bool = False

    def count(self, full: int, quick_part: int = QUICK_PART) -> int:
        """The count to run instead of `full`."""
        return full // quick_part if self.quick else full


@dataclass(frozen=True)
class Workload:
    """A named load; `run` raises LoadError when the server fails it.

    `config` is added to the configuration of the server; `{folder}` in it is an empty folder.
    """

    name: str
    summary: str
    run: Callable[[Server, Scale], Result]
    config: str = ""


def throughput(result: Result, meter: Meter, count: int, session: int) -> None:
    """Adds rate figures for `count` messages and the notes that tell how far to trust them."""
    result.figures["wall"] = count / meter.wall_s
    result.figures["per_cpu"] = count / meter.server_cpu_s
    result.notes.update(
        count=count,
        wall_s=round(meter.wall_s, 4),
        server_cpu_s=round(meter.server_cpu_s, 4),
        generator_cpu_share=round(meter.generator_cpu_s / meter.wall_s, 3),
        other_cpu_share=round(meter.other_cpu_share, 3),
        rss_peak_mib=round(session_usage(session).rss_peak_kib / 1024, 1),
    )
