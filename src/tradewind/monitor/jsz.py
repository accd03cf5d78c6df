"""JetStream monitoring: /jsz, its part of /varz, its health and its metrics.

Owns the documents, in the field order of nats-server. It reads the engine and never changes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.responses import API_LEVEL
from tradewind.jetstream.engine import JetStreamEngine
from tradewind.jetstream.hosted import HostedStream
from tradewind.jetstream.infos import consumer_info, stream_info
from tradewind.jetstream.jetstream_account import NO_LIMITS, JetStreamAccount
from tradewind.monitor.accountz import account_title
from tradewind.monitor.formats import timestamp
from tradewind.monitor.health import HealthProblem
from tradewind.monitor.page_options import HealthzOptions, JszOptions, MetricsOptions, paged
from tradewind.monitor.parameters import PageError, quoted
from tradewind.monitor.stepping import Stepped
from tradewind.status_codes import NOT_FOUND, OK
from tradewind.store.commits.syncer import HISTOGRAM_NS, INTERVAL_NS

if TYPE_CHECKING:
    from tradewind.monitor.prometheus import Family
    from tradewind.monitor.stream_metrics import StreamMetrics

# The number of streams of one account on a page.
STREAMS_SHOWN_MAX: Final = 10_000
_UINT64: Final = 2**64
# The limits by their names on the page and in the options.
_LIMITS: Final = {
    "max_request_batch": "max_request_batch",
    "max_ack_pending": "max_ack_pending",
    "max_ha_assets": "max_ha_assets",
    "max_duplicate_window": "duplicate_window_ns",
    "max_batch_inflight_per_stream": "batch_max_inflight_per_stream",
    "max_batch_inflight_total": "batch_max_inflight_total",
    "max_batch_size": "batch_max_msgs",
    "max_batch_timeout": "batch_timeout_ns",
}


class JetStreamMonitor:
    """Builds the JetStream parts of monitoring from one engine."""

    def __init__(self, engine: JetStreamEngine) -> None:
        self._engine = engine
        self._stream_metrics: StreamMetrics | None = None

    # ---------------------------------------------------------------- documents

    def _config(self) -> dict[str, Any]:
        settings = self._engine.settings
        root = self._engine.root
        config: dict[str, Any] = {
            "max_memory": settings.memory_bytes_max,
            "max_storage": settings.storage_bytes_max,
            "store_dir": root.folder if root is not None else "",
            "sync_interval": settings.options.sync_interval_ns or INTERVAL_NS,
        }
        if not settings.options.sync_interval_ns:
            config["sync_always"] = True
        if self._engine.domain:
            config["domain"] = self._engine.domain
        # nats-server reports this unless it has chosen one of the two sizes itself.
        if settings.options.max_memory_bytes > 0 and settings.options.max_file_bytes > 0:
            config["compress_ok"] = True
        if settings.options.unique_tag:
            config["unique_tag"] = settings.options.unique_tag
        if settings.options.strict:
            config["strict"] = True
        if settings.options.read_only:
            config["read_only"] = True
        return config

    def _stats(self) -> dict[str, Any]:
        engine = self._engine
        return {
            "memory": engine.usage.memory,
            "storage": engine.usage.storage,
            "reserved_memory": engine.usage.reserved_memory,
            "reserved_storage": engine.usage.reserved_storage,
            "accounts": len(engine.accounts),
            "ha_assets": 0,
            "api": {"level": API_LEVEL, "total": engine.api.total, "errors": engine.api.errors},
        }

    def _limits(self) -> dict[str, Any]:
        configured = self._engine.settings.options.limits
        shown = {name: configured.get(key, 0) for name, key in _LIMITS.items()}
        shown["default_max_consumers"] = self._engine.server_limits.default_max_consumers
        return {name: value for name, value in shown.items() if value}

    def varz(self) -> dict[str, Any]:
        """The `jetstream` object of /varz."""
        return {"config": self._config(), "stats": self._stats(), "limits": self._limits()}

    def statsz(self) -> dict[str, Any]:
        """The `jetstream` object of STATSZ, which every server of a cluster may see."""
        document = self.varz()
        del document["config"]["store_dir"]
        return document

    def jsz(self, options: JszOptions) -> Stepped[dict[str, Any]]:
        """The document of /jsz, in steps."""
        options = paged(options)
        engine = self._engine
        engine.set_time()
        streams = list(engine.hosted_streams())
        consumers = sum(len(hosted.consumers) for hosted in streams)
        # As a single server, it leads all of them.
        counts = {
            "streams": len(streams),
            "streams_leader": len(streams) if options.raft else 0,
            "consumers": consumers,
            "consumers_leader": consumers if options.raft else 0,
        }
        document: dict[str, Any] = {
            **self._stats(),
            "server_id": engine.broker.server_id,
            "now": timestamp(engine.broker.now_ns()),
            "config": self._config(),
            "limits": self._limits(),
            **{name: count for name, count in counts.items() if count or "_" not in name},
            "messages": sum(hosted.stream.store.msgs for hosted in streams),
            "bytes": sum(hosted.stream.store.bytes for hosted in streams),
        }
        yield
        if details := (yield from self._account_details(options)):
            document["account_details"] = details
        if problems := self._problems():
            document["problems"] = problems
        document["total"] = len(engine.accounts)
        return document

    def _account_details(self, options: JszOptions) -> Stepped[list[dict[str, Any]]]:
        accounts = self._engine.accounts
        if options.account:
            chosen = [accounts[options.account]] if options.account in accounts else []
        elif options.accounts or options.streams or options.consumer:
            ordered = [accounts[name] for name in sorted(accounts)]
            chosen = ordered[options.offset : options.offset + options.limit]
        else:
            chosen = []
        with_streams = options.streams or options.consumer
        details = []
        for tenant in chosen:
            details.append((yield from self._account(tenant, options, with_streams=with_streams)))
            yield
        return details

    def account_jsz(self, name: str, options: JszOptions) -> Stepped[dict[str, Any]]:
        """The entry of one account in /jsz."""
        if name not in self._engine.broker.accounts:
            raise PageError(f"account {quoted(name)} not found")
        tenant = self._engine.accounts.get(name)
        if tenant is None:
            raise PageError(f"account {quoted(name)} not jetstream enabled")
        self._engine.set_time()
        return (yield from self._account(tenant, options, with_streams=options.streams))

    def _account(
        self, tenant: JetStreamAccount, options: JszOptions, *, with_streams: bool
    ) -> Stepped[dict[str, Any]]:
        limits = NO_LIMITS if tenant.is_tiered else tenant.limits
        document: dict[str, Any] = {
            "name": account_title(self._engine.broker, tenant.name),
            "id": tenant.name,
            "memory": tenant.usage.memory,
            "storage": tenant.usage.storage,
            # The limits, as unsigned numbers: nats-server shows them here, but not those of tiers.
            "reserved_memory": limits.max_memory % _UINT64,
            "reserved_storage": limits.max_storage % _UINT64,
            "accounts": 0,
            "ha_assets": 0,
            "api": {"level": 0, "total": tenant.api.total, "errors": tenant.api.errors},
        }
        if with_streams:
            hosted = [tenant.streams[name] for name in sorted(tenant.streams)][:STREAMS_SHOWN_MAX]
            shown = []
            for one in hosted:
                shown.append((yield from self._stream(one, options)))
                yield
            if shown:
                document["stream_detail"] = shown
        return document

    def _stream(self, hosted: HostedStream, options: JszOptions) -> Stepped[dict[str, Any]]:
        info = stream_info(self._engine, hosted, dynamic=False)
        document: dict[str, Any] = {
            "name": hosted.name,
            "created": info.created,
            "cluster": {"leader": self._engine.broker.server_name},
        }
        if options.config:
            document["config"] = _with_sorted_metadata(msgspec.to_builtins(info.config))
        document["state"] = msgspec.to_builtins(info.state)
        files = hosted.stream.files
        if files is not None and (chain := files.chain) is not None:
            document["chain"] = {
                "algorithm": chain.settings.algorithm,
                "size": chain.synced.size,
                "checkpoint_size": 0 if chain.checkpoint is None else chain.checkpoint.size,
                "is_broken": chain.broken is not None,
            }
        if options.consumer:
            yield from self._consumers(hosted, options, document)
        for name in ("mirror", "sources"):
            if origin := getattr(info, name):
                document[name] = msgspec.to_builtins(origin)
        return document

    def _consumers(
        self, hosted: HostedStream, options: JszOptions, document: dict[str, Any]
    ) -> Stepped[None]:
        """Add the consumers of a stream; those of mirrors and sources are hidden, and shown on
        demand.
        """
        for consumer in list(hosted.consumers.values()):
            yield
            is_hidden = consumer.config.direct
            if is_hidden and not options.direct_consumer:
                continue
            entry = msgspec.to_builtins(consumer_info(self._engine, consumer, dynamic=False))
            if options.config:
                _with_sorted_metadata(entry["config"])
            else:
                del entry["config"]
            name = "direct_consumer_detail" if is_hidden else "consumer_detail"
            document.setdefault(name, []).append(entry)

    # ---------------------------------------------------------------- health

    def _problems(self) -> list[dict[str, str]]:
        """Assets that could not be opened, and streams whose disk has failed."""
        return [
            {"account": one.account, "stream": one.stream, "error": one.text}
            for one in self._all_problems()
        ]

    def _all_problems(self) -> Iterator[HealthProblem]:
        engine = self._engine
        for tenant in engine.accounts.values():
            for stream, reason in tenant.problems.items():
                text = (
                    f"JetStream stream '{tenant.name} > {stream}' could not be recovered: {reason}"
                )
                yield HealthProblem(text, type="STREAM", account=tenant.name, stream=stream)
            for hosted in tenant.streams.values():
                files = hosted.stream.files
                if files is not None and files.failure is not None and not engine.is_read_only:
                    place = f"'{tenant.name} > {hosted.name}'"
                    text = f"JetStream stream {place} is read-only: {files.failure}"
                    yield HealthProblem(
                        text, type="STREAM", account=tenant.name, stream=hosted.name
                    )
                broken = None if files is None or files.chain is None else files.chain.broken
                if broken is not None:
                    yield _broken_chain(tenant.name, hosted.name, broken.index, broken.reason)
                for consumer, reason in hosted.consumer_problems.items():
                    text = (
                        f"JetStream consumer '{tenant.name} > {hosted.name} > {consumer}'"
                        f" could not be recovered: {reason}"
                    )
                    yield HealthProblem(
                        text,
                        type="CONSUMER",
                        account=tenant.name,
                        stream=hosted.name,
                        consumer=consumer,
                    )

    def health(self, options: HealthzOptions) -> list[HealthProblem]:
        """The problems of JetStream, or of the one asset that is requested."""
        if options.js_enabled_only or options.js_server_only or options.js_meta_only:
            return []
        if options.account:
            missing = self._missing(options)
            if missing is not None:
                return [missing]
        wanted = {
            "account": options.account,
            "stream": options.stream,
            "consumer": options.consumer,
        }
        return [
            problem
            for problem in self._all_problems()
            if all(not value or getattr(problem, name) == value for name, value in wanted.items())
        ]

    def _missing(self, options: HealthzOptions) -> HealthProblem | None:
        account, stream, consumer = options.account, options.stream, options.consumer
        tenant = self._engine.accounts.get(account)
        if tenant is None:
            text = f'JetStream account "{account}" not found'
            return HealthProblem(text, NOT_FOUND, "ACCOUNT", account)
        if not stream or stream in tenant.problems:
            return None
        hosted = tenant.streams.get(stream)
        if hosted is None:
            text = f'JetStream stream "{stream}" not found on account "{account}"'
            return HealthProblem(text, NOT_FOUND, "STREAM", account, stream)
        if consumer and consumer not in hosted.consumers:
            if consumer in hosted.consumer_problems:
                return None
            text = (
                f'JetStream consumer "{consumer}" not found for stream "{stream}"'
                f' on account "{account}"'
            )
            return HealthProblem(text, NOT_FOUND, "CONSUMER", account, stream, consumer)
        return None

    # ---------------------------------------------------------------- metrics

    def stream_metrics(self, options: MetricsOptions) -> Stepped[list[bytes]]:
        """The text of the metrics of streams and consumers, in pieces and in steps."""
        if self._stream_metrics is None:
            from tradewind.monitor.stream_metrics import StreamMetrics  # with the first scrape

            self._stream_metrics = StreamMetrics(self._engine)
        return (yield from self._stream_metrics.build(options.limit))

    def families(self) -> Iterator[Family]:
        """The metric families for /metrics: totals of the server, and figures about its syncs."""
        from tradewind.monitor.prometheus import Family, Sample  # a start does without it

        engine = self._engine
        streams = list(engine.hosted_streams())
        statistics = engine.syncer.statistics
        gauges: tuple[tuple[str, str, float], ...] = (
            ("streams", "Streams of all accounts.", len(streams)),
            ("consumers", "Consumers.", sum(len(one.consumers) for one in streams)),
            ("messages", "Messages kept.", sum(one.stream.store.msgs for one in streams)),
            ("memory_bytes", "Bytes of streams in memory.", engine.usage.memory),
            ("storage_bytes", "Bytes of streams in files.", engine.usage.storage),
            ("problems", "Assets that are damaged.", sum(1 for _ in self._all_problems())),
            ("broken_chains", "Streams whose chain is broken.", _broken_count(streams)),
            ("commits_running", "Commits under way.", statistics.running),
            ("read_only_files", "Files that take no changes.", statistics.read_only),
            (
                "dead_letters_waiting",
                "Messages that consumers keep until their dead-letter stream takes them.",
                engine.dead_letters.waiting_count if engine.dead_letters is not None else 0,
            ),
        )
        for name, text, value in gauges:
            yield Family(f"tradewind_jetstream_{name}", "gauge", text, (Sample(value),))
        counters: tuple[tuple[str, str, float], ...] = (
            ("api_requests", "Requests to the API.", engine.api.total),
            ("api_errors", "Requests that were refused.", engine.api.errors),
            ("commits", "Group commits.", statistics.commits),
            ("syncs", "Files that were synced.", statistics.syncs),
            ("sync_failures", "Commits that failed.", statistics.failures),
            ("sync_seconds", "Time that commits took.", statistics.sync_ns / 1e9),
            ("commit_rounds", "Rounds of changes that became durable.", statistics.rounds),
            ("commit_wait_seconds", "Time promises waited.", statistics.waiting_ns / 1e9),
        )
        for name, text, value in (*counters, *self._own_counters()):
            yield Family(f"tradewind_jetstream_{name}_total", "counter", text, (Sample(value),))
        yield _histogram(statistics.histogram)

    def _own_counters(self) -> list[tuple[str, str, float]]:
        """Counters of features that only this server has."""
        engine = self._engine
        used = [one.transactions for one in engine.accounts.values() if one.transactions]
        letters = engine.dead_letters
        return [
            ("transactions", "Transactions.", sum(one.done_count for one in used)),
            (
                "transactions_refused",
                "Transactions that were refused.",
                sum(one.refused_count for one in used),
            ),
            (
                "dead_letters",
                "Messages that went to a dead-letter stream.",
                letters.stored_count if letters is not None else 0,
            ),
            (
                "dead_letters_refused",
                "Attempts that a dead-letter stream refused; the consumer keeps the message.",
                letters.refused_count if letters is not None else 0,
            ),
        ]


def _with_sorted_metadata(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with its metadata in the order of nats-server."""
    if metadata := config.get("metadata"):
        config["metadata"] = dict(sorted(metadata.items()))
    return config


def _histogram(counts: list[int]) -> Family:
    """The durations of commits, as a gauge per upper bound: each includes the ones below."""
    from tradewind.monitor.prometheus import Family, Sample

    samples, total = [], 0
    bounds = [*(f"{bound_ns / 1e9:g}" for bound_ns in HISTOGRAM_NS), "+Inf"]
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        samples.append(Sample(total, {"le": bound}))
    text = "Commits that took at most this many seconds."
    return Family("tradewind_jetstream_commits_within", "gauge", text, tuple(samples))


def _broken_chain(account: str, stream: str, index: int, reason: str) -> HealthProblem:
    """The problem of a broken chain: a warning, since the stream works and the server is
    healthy.
    """
    text = (
        f"JetStream stream '{account} > {stream}': the chain is broken at entry {index}: {reason}"
    )
    return HealthProblem(text, OK, "STREAM", account, stream)


def _broken_count(streams: list[HostedStream]) -> int:
    stored = (one.stream.files for one in streams)
    chains = (files.chain for files in stored if files is not None)
    return sum(1 for chain in chains if chain is not None and chain.broken is not None)
