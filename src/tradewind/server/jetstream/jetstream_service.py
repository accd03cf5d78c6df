"""JetStream inside a server: its folder, threads, start and stop.

Owns what the engine needs from its environment. It never handles streams, which is up to
`tradewind.jetstream`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.broker.broker import Broker
from tradewind.durations import format_duration
from tradewind.errors import ServerStartError, StoreError
from tradewind.jetstream.engine import EngineSettings, JetStreamEngine
from tradewind.jetstream.handlers import load_handlers
from tradewind.jetstream.store_opening import recover, recover_account
from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.server.jetstream.resources import StoreResources, store_resources
from tradewind.server.jetstream.store_wait import when_free
from tradewind.server.monitoring.logs import Log
from tradewind.server.threads.sync_threads import ThreadedSyncer
from tradewind.server.threads.threads import Threads
from tradewind.server.threads.workers import LoopWorkers
from tradewind.store.commits.syncer import INTERVAL_NS
from tradewind.store.files.disk import Disk, DiskError, OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.layout import JETSTREAM_FOLDER
from tradewind.wire import ops

if TYPE_CHECKING:
    from tradewind.server.jetstream.remotes import ServerRemotes
    from tradewind.store.files.vault import MainKeyRing

DRAIN_SECONDS_MAX = 10.0
STOP_SECONDS = 5.0
# The handlers of requests are loaded when the server has been started for this long, one module
# per turn, unless a request needs them before.
LOAD_SECONDS = 0.1
DISK_THREADS = 16
_UNITS = ("KB", "MB", "GB", "TB", "PB", "EB")


async def start_jetstream(
    broker: Broker,
    log: Log,
    options: JetStreamOptions,
    turn_needed: Callable[[], None],
    commits_ended: Callable[[], None],
) -> RunningJetStream:
    """Open the store and all its streams; ServerStartError if the folder cannot be used.

    Nothing is opened while this waits for another server to leave the folder.
    """
    began_ns = broker.monotonic_ns()
    resources = store_resources(options)
    log.notice("Starting JetStream")
    folder = _folder(resources)
    try:
        disk, ring = _disk(folder, options), key_ring(options)
        root = await when_free(lambda: StoreRoot(disk, disk.root, ring), log, broker.clock)
    except StoreError as error:
        reason = str(error)
        if isinstance(error, DiskError) and error.errno in (errno.EEXIST, errno.ENOTDIR):
            reason = f"storage directory is not a directory: {error.path}"
        elif isinstance(error, DiskError) and error.errno in (errno.EROFS, errno.EACCES):
            reason += "; to serve what is there and change nothing, set jetstream {read_only: true}"
        raise ServerStartError(f"Can't start JetStream: {reason}") from None
    _log_banner(log, options, resources, root.folder)
    loop = asyncio.get_running_loop()
    threads = Threads(
        loop, broker.clock.monotonic_ns, after_calls=turn_needed, faults=broker.faults
    )
    syncer = ThreadedSyncer(
        loop,
        broker.clock,
        threads,
        interval_ns=options.sync_interval_ns or INTERVAL_NS,
        after_batch=commits_ended,
    )
    settings = EngineSettings(options, resources.memory_bytes_max, resources.storage_bytes_max)
    workers = LoopWorkers(threads)
    remotes = _remotes(broker, options, turn_needed)
    engine = JetStreamEngine(broker, settings, root, syncer, workers, remotes)
    if remotes is not None:
        remotes.enter.set_time = engine.set_time
    try:
        if options.chain_key:
            engine.chain_key()
        recover(engine, root, _run_in_threads)
    except StoreError as error:
        root.close()
        raise ServerStartError(f"Can't start JetStream: {error}") from None
    except BaseException:
        root.close()
        raise
    engine.start()
    log.notice(f"Took {format_duration(broker.monotonic_ns() - began_ns)} to start JetStream")
    return RunningJetStream(engine, syncer, workers, threads, root, log, remotes)


def _folder(resources: StoreResources) -> str:
    return str(Path(resources.store_dir).absolute())


def _disk(folder: str, options: JetStreamOptions) -> Disk:
    """The disk of the store; StoreError if it is read-only and holds no store."""
    if not options.read_only:
        return OsDisk(folder)
    from tradewind.server.jetstream.unchanged_disk import ServedDisk

    if not Path(folder, JETSTREAM_FOLDER).is_dir():
        raise StoreError(
            f"{folder}: there is no folder {JETSTREAM_FOLDER!r} in it, so there is nothing to serve"
            " with read_only"
        )
    return ServedDisk(folder)


def key_ring(options: JetStreamOptions) -> MainKeyRing | None:
    """The encryption keys of the store; None for most servers, which then load no ciphers."""
    if options.encryption is None:
        return None
    from tradewind.store.files.vault import MainKeyRing

    return MainKeyRing(options.encryption)


def _remotes(
    broker: Broker, options: JetStreamOptions, turn_needed: Callable[[], None]
) -> ServerRemotes | None:
    """The links to other servers; None for most servers, which then load no client."""
    if not options.remotes:
        return None
    from tradewind.server.jetstream.remotes import ServerRemotes

    return ServerRemotes(options.remotes, broker, turn_needed)


def _run_in_threads(calls: list[Callable[[], None]]) -> None:
    """Run the calls in threads: a disk with a queue does many syncs in the time of a few."""
    if calls:
        with ThreadPoolExecutor(DISK_THREADS) as threads:
            for _ in threads.map(lambda call: call(), calls):
                pass


class RunningJetStream:
    """The engine with the parts of its environment."""

    def __init__(
        self,
        engine: JetStreamEngine,
        syncer: ThreadedSyncer,
        workers: LoopWorkers,
        threads: Threads,
        root: StoreRoot,
        log: Log,
        remotes: ServerRemotes | None = None,
    ) -> None:
        self.engine = engine
        self.syncer = syncer
        self._workers = workers
        self._threads = threads
        self._root = root
        self._log = log
        self._remotes = remotes
        self._loop = asyncio.get_running_loop()
        self._handlers = load_handlers()
        self._loading = self._loop.call_later(LOAD_SECONDS, self._load_next)

    def _load_next(self) -> None:
        for _ in self._handlers:
            self._loading = self._loop.call_later(0, self._load_next)
            return

    def reload(self, options: ServerOptions) -> Iterator[None]:
        """Apply the options, in steps: accounts may have gained or lost JetStream, or have other
        limits.
        """
        yield from self.engine.reload(options)
        for tenant in list(self.engine.accounts.values()):
            recover_account(self.engine, tenant, self._root)
            yield

    def account_changed(self, name: str) -> None:
        """Called when an account was added or its limits have changed."""
        is_new = name not in self.engine.accounts
        tenant = self.engine.set_account(name)
        if tenant is not None and is_new:
            recover_account(self.engine, tenant, self._root)

    async def stop(self) -> None:
        """Write everything to disk and release the folder; what cannot be written is logged."""
        self._log.notice("Initiating JetStream Shutdown...")
        self._loading.cancel()
        steps = (
            self._begin_stop,
            self._stop_remotes,
            self._drain_workers,
            self._drain_syncer,
            self._close,
        )
        for step in steps:
            try:
                await step()
            except Exception as error:  # the remaining steps are worth doing all the same
                self.engine.faults.contain("shutdown", error)
        self._log.notice("JetStream Shutdown")

    async def _begin_stop(self) -> None:
        self.engine.begin_stop()

    async def _stop_remotes(self) -> None:
        if self._remotes is not None:
            await self._remotes.stop()

    async def _drain_workers(self) -> None:
        # A request in progress is finished; requests that have not begun are not.
        if not await self._workers.drain(DRAIN_SECONDS_MAX):
            self._log.error("JetStream: the disk does not respond; a request is still in progress")

    async def _drain_syncer(self) -> None:
        # The remaining state of consumers is written when these are closed.
        try:
            for target in await self.syncer.drain(DRAIN_SECONDS_MAX):
                if isinstance(target, FileStore):
                    self._log.error(f"JetStream: stream {target.name!r} could not be synced")
        finally:
            self.syncer.close()
            if not self._threads.stop(STOP_SECONDS):
                self._log.error("JetStream: the disk does not respond; a sync is still in progress")

    async def _close(self) -> None:
        try:
            self.engine.close(_run_in_threads)
        finally:
            self._root.close()


def _log_banner(
    log: Log, options: JetStreamOptions, resources: StoreResources, folder: str
) -> None:
    """Log the banner in nats-server's words: people look for these lines."""
    log.notice("---------------- JETSTREAM ----------------")
    log.notice(f"  Strict:          {'true' if options.strict else 'false'}")
    log.notice(f"  Max Memory:      {bytes_text(resources.memory_bytes_max)}")
    log.notice(f"  Max Storage:     {bytes_text(resources.storage_bytes_max)}")
    log.notice(f'  Store Directory: "{folder}"')
    if options.domain:
        log.notice(f"  Domain:          {options.domain}")
    if options.encryption is not None:
        from tradewind.store.format.ciphers import KINDS

        log.notice(f"  Encryption:      {KINDS[options.encryption.cipher].title}")
    if options.read_only:
        log.notice("  Read Only:       true")
    log.notice(f"  API Level:       {ops.JETSTREAM_API_LEVEL}")
    interval = (
        f"every {format_duration(options.sync_interval_ns)}" if options.sync_interval_ns else ""
    )
    log.notice(f"  Sync:            {interval or 'before each acknowledgement'}")
    log.notice("-------------------------------------------")


def bytes_text(size: int) -> str:
    """The size with its unit, in powers of 1024: `512 B`, `64.00 MB`, `1.50 GB`."""
    if size < 1024:
        return f"{size} B"
    value, index = size / 1024, 0
    while value >= 1024 and index < len(_UNITS) - 1:
        value, index = value / 1024, index + 1
    return f"{value:.2f} {_UNITS[index]}"
