"""The server: connects broker, listeners, monitoring and timers on one event loop.

Owns their life cycle: start, turns, reload, lame duck mode, stop. It never handles the protocol,
which belongs to the broker, nor files and flags, which belong to `config` and `flags`.

Optional parts (JetStream, TLS, WebSocket, monitoring pages) are imported by the function that
starts them, so that a server without them accepts its first connection sooner.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec.structs import replace

from tradewind.broker.accounts import AccountLimits
from tradewind.broker.broker import Broker
from tradewind.broker.identity import Gate
from tradewind.clock import Clock, SystemClock
from tradewind.durations import SECOND_NS
from tradewind.errors import ConfigError, ServerStartError, TradewindError
from tradewind.monitor.facade import MonitorView
from tradewind.monitor.stepping import Stepped, in_steps, is_done_in_one_step
from tradewind.monitor.system_answers import SystemServices
from tradewind.nkeys import create_server_id
from tradewind.options import OpenTelemetryOptions, ServerOptions, TlsOptions
from tradewind.own_addresses import address_text
from tradewind.server.auth import build_gate, gate_notices
from tradewind.server.lifecycle.banner import log_start
from tradewind.server.lifecycle.default_name import default_server_name
from tradewind.server.lifecycle.process_signals import NAMES
from tradewind.server.links.gossip import advertised, connect_urls
from tradewind.server.links.listener import Listener, bind, client_url
from tradewind.server.links.turn_budget import set_turn_budget
from tradewind.server.links.turn_loop import TurnLoop
from tradewind.server.monitoring.logs import Log
from tradewind.server.monitoring.monitor_ports import MonitorPorts, monitor_tls
from tradewind.server.threads.password_threads import PasswordThreads
from tradewind.wire import ops

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from tradewind.server.auth.callout_client import CalloutClient
    from tradewind.server.jetstream.jetstream_service import RunningJetStream
    from tradewind.server.leafnodes.leafnodes import RunningLeafnodes
    from tradewind.server.lifecycle.pid_files import PortsFile
    from tradewind.server.monitoring.telemetry import Telemetry
    from tradewind.server.operators.operator_mode import Operators
    from tradewind.server.tls.tls import ServerContext
    from tradewind.server.websocket.websocket_listener import WebSocketListener

LAME_DUCK_STEP_SECONDS_MAX = 1.0
# The limit for each part that is closed at the end; each has its own, tighter limits.
STOP_STEP_SECONDS_MAX = 60.0
# The delay after a fault until the events of the system account are tried again.
EVENT_PAUSE_NS = SECOND_NS


class ReloadPlan(msgspec.Struct, frozen=True):
    """A configuration that was read again and can be applied, with everything that needs no
    loop.
    """

    options: ServerOptions
    changes: list[str]
    identities_changed: bool
    client_tls: ServerContext | None
    websocket_tls: ServerContext | None
    monitor_tls: Any
    gates: dict[str, Gate] | None  # None: those of the operators
    limits: dict[str, AccountLimits]


class ServerApp:
    """One running server inside a running event loop.

    `async with ServerApp(options, log): ...` starts and stops it; `port` is the bound port.
    """

    def __init__(
        self,
        options: ServerOptions,
        log: Log,
        reload_options: Callable[[], ServerOptions] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.options = options
        self.log = log
        self._reload_options = reload_options
        self._event_timer: asyncio.TimerHandle | None = None
        self._listener: Listener | None = None
        self._websocket: WebSocketListener | None = None
        self._ports_file: PortsFile | None = None
        self._telemetry: Telemetry | None = None
        self._stopping = False
        self.jetstream: RunningJetStream | None = None
        self._lame_duck_task: asyncio.Task[None] | None = None
        self._reloading = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.stopped = asyncio.Event()
        clock = clock or SystemClock()
        self._operators: Operators | None = None
        self._callouts: CalloutClient | None = None
        is_operated = options.operator is not None and options.operator.is_active
        if is_operated or options.authorization.callout is not None:
            from tradewind.server.auth.callout_client import CalloutClient

            self._callouts = CalloutClient()
        if is_operated:
            from tradewind.server.operators.operator_mode import Operators

            assert self._callouts is not None
            self._operators = Operators(options, clock, log, self._callouts)
        server_id = self._callouts.server_key.public if self._callouts else create_server_id()
        self.broker = Broker(
            options,
            self._gates(options),
            account_limits(options),
            server_id=server_id,
            default_name=default_server_name(server_id),
            clock=clock,
            log=log,
            chance=random.SystemRandom(),
        )
        if self._callouts is not None:
            self._callouts.broker = self.broker
            self.broker.info.xkey = self._callouts.curve_key.public
        self.leafnodes: RunningLeafnodes | None = None
        if options.leafnodes is not None:
            # Set before the first subscription: all interest is counted from the beginning.
            self.broker.start_leaves(options.leafnodes)
        set_turn_budget(self.broker.watch, log)
        self.turns = TurnLoop(self.broker)
        self._passwords = PasswordThreads(self.broker, self.turns.turn_needed)
        self.view = MonitorView(self.broker)
        self._monitoring = MonitorPorts(self.view, log)
        self.system = SystemServices(
            self.broker,
            self.reload_soon,
            self.broker.kick,
            self.broker.announce_lame_duck,
            self.view,
            self._start_work,
        )
        self.broker.server_info = self.system.events.server_info

    def _gates(self, options: ServerOptions) -> dict[str, Gate]:
        """One gate per kind of listener."""
        if self._operators is not None:
            return self._operators.gates()
        return build_gates(options, self._callouts)

    # ---------------------------------------------------------------- life cycle

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        assert self._listener is not None, "the server is not started"
        return self._listener.address[1]

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        assert self._listener is not None, "the server is not started"
        return client_url("nats", *self._listener.address)

    @property
    def websocket_url(self) -> str:
        """The URL that browsers connect to; empty without a websocket listener."""
        if self._websocket is None:
            return ""
        return client_url(self._websocket_scheme, *self._websocket.address)

    @property
    def _websocket_scheme(self) -> str:
        options = self.options.websocket
        return "ws" if options is not None and options.no_tls else "wss"

    @property
    def leafnode_url(self) -> str:
        """The URL that leaf nodes connect to; empty without a listener for them."""
        if self.leafnodes is None or self.leafnodes.listener is None:
            return ""
        return client_url("nats-leaf", *self.leafnodes.listener.address)

    @property
    def monitor_url(self) -> str:
        """The URL of the monitoring pages; empty without a monitoring port."""
        return self._monitoring.urls[0] if self._monitoring.urls else ""

    async def start(self, before_ready: Callable[[], None] = lambda: None) -> None:
        """Bind all ports and accept connections; ServerStartError if something is not available.

        `before_ready` is called after that, and before the log says so: a reader that waits for
        that line may send a signal at once.
        """
        self._loop = asyncio.get_running_loop()
        self.turns.start(self._loop, self._passwords.start_checks)
        try:
            log_start(self.log, self.broker, self.options, gate_notices(self.options))
            if self.options.pid_file:
                self._write_pid_file()
            if self._operators is not None:
                self._operators.start(self.broker, self.turns.turn_needed)
            await self._monitoring.start(self.options)
            if self.options.jetstream.enabled:
                await self._start_jetstream()
            if self.options.opentelemetry is not None:
                self._start_telemetry(self.options.opentelemetry)
            if self._operators is not None:
                self._follow_accounts(self._operators)
            self._start_websocket()
            self._start_leafnodes()
            self._start_listener()
        except BaseException:
            await self._close_listeners()
            if self.jetstream is not None:
                await self.jetstream.stop()
            raise
        self.system.start()
        if self.leafnodes is not None:
            self.leafnodes.dial()
        if self._operators is not None:
            self._operators.serve(self.system.events.server_info, self.turns.turn_needed)
        self.broker.observers.append(self.system)
        self._event_tick()
        self.turns.schedule_timer()
        before_ready()
        self.log.notice("Server is ready")
        self.broker.watch.start()
        self._write_ports_file()

    def _follow_accounts(self, operators: Operators) -> None:
        """Give later accounts everything that all accounts have."""
        if self.jetstream is not None:
            operators.on_account.append(self.jetstream.account_changed)
        operators.on_account.append(self.system.account_added)

    async def _start_jetstream(self) -> None:
        if self._operators is not None:
            from tradewind.server.jetstream.resources import stored_accounts

            self._operators.load(stored_accounts(self.options.jetstream))
        from tradewind.monitor.jsz import JetStreamMonitor
        from tradewind.server.jetstream.jetstream_service import start_jetstream

        turns = self.turns
        self.jetstream = await start_jetstream(
            self.broker, self.log, self.options.jetstream, turns.turn_needed, turns.commits_ended
        )
        monitor = JetStreamMonitor(self.jetstream.engine)
        self.view.jetstream = monitor
        self.view.health.add(monitor.health)
        self.view.add_metrics(monitor.families)

    def _start_telemetry(self, options: OpenTelemetryOptions) -> None:
        from tradewind.server.monitoring.telemetry import Telemetry

        self._telemetry = Telemetry(self.broker, options, self.log)
        self.view.add_metrics(self._telemetry.families)

    def _start_listener(self) -> None:
        options = self.options
        context = client_tls(options)
        sockets = bind(options.host, options.port)
        self._listener = Listener(
            self.turns,
            sockets,
            options.tls,
            context,
            allow_non_tls=options.allow_non_tls,
            proxy_protocol=options.proxy_protocol,
        )
        host, port = self._listener.address
        self._advertise()
        self._listener.start()
        self.log.notice(
            f"Listening for client connections on {address_text(options.host or host, port)}"
        )
        if context is not None:
            what = "available" if options.allow_non_tls else "required"
            self.log.notice(f"TLS {what} for client connections")
            if options.tls is not None and options.tls.handshake_first_ns == 0:
                self.log.warn(
                    'Clients that are not using "TLS Handshake First" option will fail to connect'
                )

    def _start_leafnodes(self) -> None:
        options = self.options.leafnodes
        if options is None:
            return
        from tradewind.server.leafnodes.leafnodes import RunningLeafnodes

        self.leafnodes = RunningLeafnodes(self.turns, options)
        self.leafnodes.listen()
        self.view.listening.leaf_port = self.leafnodes.port

    def _advertise(self) -> bool:
        """Advertise in INFO the address that clients should use, and other servers; returns whether
        the other servers have changed.
        """
        options, websocket = self.options, self.options.websocket
        changed = self._name_servers(
            self._listener, options.client_advertise, options.host, options.known_servers
        )
        if websocket is not None:
            changed |= self._name_servers(
                self._websocket, websocket.advertise, websocket.host, websocket.known_servers
            )
        listener, shown = self.broker.info.listener, self.view.listening
        standard = listener("STANDARD")
        if self._listener is not None:
            place = advertised(options.client_advertise, options.host, self.port)
            standard.host, standard.port = shown.host, shown.port = place
        shown.connect_urls = standard.connect_urls
        shown.websocket_urls = listener("WEBSOCKET").connect_urls
        return changed

    def _name_servers(
        self, listener: Listener | None, advertise: str, host: str, known: tuple[str, ...]
    ) -> bool:
        if listener is None:
            return False
        info = self.broker.info.listener(listener.connection_type)
        bound = host or listener.address[0], listener.address[1]
        before = info.connect_urls
        info.connect_urls = connect_urls(
            advertise,
            bound,
            known,
            both_families=listener.both_families,
            is_leaving=self.broker.lame_duck,
        )
        return info.connect_urls != before

    def _tell_clients(self) -> Stepped[None]:
        """Send INFO to all clients that understand an update."""
        for _ in self.broker.broadcast_info():
            self.turns.turn_needed()
            yield

    async def _tell_clients_in_steps(self) -> None:
        await in_steps(self.broker.watch, "info", "all clients", self._tell_clients())
        self.broker.watch.end_turn()

    def _start_websocket(self) -> None:
        options = self.options.websocket
        if options is None:
            return
        from tradewind.server.websocket.websocket_listener import WebSocketListener

        context = websocket_tls(self.options)
        self._websocket = WebSocketListener(
            self.turns, bind(options.host, options.port), options, context
        )
        host, port = self._websocket.address
        self._advertise()
        info = self.broker.info.listener("WEBSOCKET")
        info.host, info.port = options.host, port
        info.ping_interval_ns = options.ping_interval_ns
        self._websocket.start()
        self.view.listening.websocket_port = port
        place = address_text(options.host or host, port)
        self.log.notice(f"Listening for websocket clients on {self._websocket_scheme}://{place}")
        if options.no_tls:
            self.log.warn("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")

    def add_monitoring(self, label: str, path: str, application: ASGIApp) -> None:
        """Serve an ASGI application below a path of the monitoring port, with a link on its index.

        Must be called before `start`. The application runs in the loop of the server: slow work
        belongs in a thread.
        """
        if self._listener is not None:
            raise RuntimeError("add_monitoring must be called before the server starts")
        self._monitoring.add_guest(label, path, application)

    def _write_pid_file(self) -> None:
        from tradewind.server.lifecycle.pid_files import write_pid_file

        write_pid_file(self.options.pid_file)

    def _write_ports_file(self) -> None:
        if not self.options.ports_file_dir:
            return
        from tradewind.server.lifecycle.pid_files import PortsFile

        self._ports_file = PortsFile(self.options.ports_file_dir)
        try:
            self._ports_file.write(
                {
                    "nats": [] if self._listener is None else self._listener.urls("nats"),
                    "monitoring": self._monitoring.urls,
                    "websocket": []
                    if self._websocket is None
                    else self._websocket.urls(self._websocket_scheme),
                }
            )
        except OSError as error:
            self.log.error(
                f"Error writing ports file ({self.options.ports_file_dir}): {error.strerror}"
            )
            self._ports_file = None

    async def stop(self) -> None:
        """Close everything; connections still receive their queued output."""
        if self._stopping:
            await self.stopped.wait()
            return
        self._stopping = True
        self.log.notice("Initiating Shutdown...")
        self._try(self.system.announce_shutdown)
        if self._lame_duck_task is not None and self._lame_duck_task is not asyncio.current_task():
            self._lame_duck_task.cancel()
        await self._close_listeners()
        if self.jetstream is not None:
            await self._try_waiting(self.jetstream.stop())
        await self._try_waiting(self._close_sessions())
        self._try(self.system.stop)
        self.turns.stop()
        if self._event_timer is not None:
            self._event_timer.cancel()
        self._try(self._passwords.stop)
        if self._operators is not None:
            self._try(self._operators.stop)
        if self._telemetry is not None:
            await self._try_waiting(self._telemetry.stop())
        if self._ports_file is not None:
            self._try(self._ports_file.remove)
        # The transports close in the next iterations of the loop, so run these.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.log.notice("Server Exiting..")
        self.stopped.set()

    async def _close_sessions(self) -> None:
        """End all connections, in steps, and let their links write the remaining output and
        close.
        """
        broker, before = self.broker, 0
        # New ones may have arrived meanwhile; one that cannot be ended delays no other.
        while (count := len(broker.sessions) + len(broker.leaf_sessions)) != before:
            before = count
            work = broker.close_all(ops.CLOSED_SERVER_SHUTDOWN)
            await in_steps(broker.watch, "shutdown", "connections", work)
        self.turns.turn_now()
        while broker.router.has_touched:
            await asyncio.sleep(0)
            self.turns.turn_now()

    def _try(self, step: Callable[[], object]) -> None:
        """Run a step of stopping; the remaining steps follow, whatever goes wrong."""
        try:
            step()
        except Exception as error:
            self.broker.faults.contain("shutdown", error)

    async def _try_waiting(self, step: Awaitable[object]) -> None:
        try:
            await asyncio.wait_for(step, STOP_STEP_SECONDS_MAX)
        except Exception as error:
            self.broker.faults.contain("shutdown", error)

    async def _close_listeners(self) -> None:
        for listener in (self._listener, self._websocket):
            if listener is not None:
                self._try(listener.close)
                await self._try_waiting(listener.cancel_handshakes())
        if self.leafnodes is not None:
            await self._try_waiting(self.leafnodes.stop())
        for monitor in self._monitoring.servers:
            await self._try_waiting(monitor.stop())
        self._monitoring.servers.clear()

    # ---------------------------------------------------------------- turns

    def _event_tick(self) -> None:
        """Send the system account's periodic events."""
        now_ns = self.broker.now_ns()
        try:
            next_ns = self.system.tick(now_ns)
        except Exception as error:
            self.broker.faults.contain("event", error)
            next_ns = now_ns + EVENT_PAUSE_NS
        self._event_timer = self._loop.call_later(
            max(next_ns - now_ns, 0) / SECOND_NS, self._event_tick
        )
        self.turns.turn_needed()

    def loop_failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Called by the event loop about an error that no callback has handled."""
        error = context.get("exception") or RuntimeError(context["message"])
        self.broker.faults.contain("event loop", error, context["message"])

    def _start_work(self, kind: str, detail: object, work: Stepped[None]) -> None:
        """Do work of a service: all of it now, or the part after one step in later turns."""
        if not is_done_in_one_step(self.broker.watch, kind, detail, work):
            self._keep(self._finish_work(kind, detail, work))

    async def _finish_work(self, kind: str, detail: object, work: Stepped[None]) -> None:
        try:
            await asyncio.sleep(0)
            await in_steps(self.broker.watch, kind, detail, work)
        except Exception as error:
            self.broker.faults.contain(kind, error, str(detail))
        self.broker.watch.end_turn()
        self.turns.turn_needed()

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work as a task, and hold the only reference to it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---------------------------------------------------------------- changes while running

    async def reload(self) -> None:
        """Read the configuration again and apply the settings that can change; TradewindError if
        that is not possible, without any change.

        The file is read in a thread, and applied in steps. A second reload waits for the first.
        """
        if self._reload_options is None or not self.options.config_file:
            raise ConfigError("this server was started without a configuration file to reload")
        async with self._reloading:
            plan = await asyncio.to_thread(self._plan_reload, self._reload_options)
            if self._stopping:
                raise ConfigError("the server is stopping")
            path, steps = self.options.config_file, self._while_running(self._take_over(plan))
            await in_steps(self.broker.watch, "reload", path, steps)
            self.broker.watch.end_turn()

    def _while_running(self, steps: Stepped[None]) -> Stepped[None]:
        """Abandon the remaining steps when the server stops: nothing may be opened that was
        closed.
        """
        for _ in steps:
            yield
            if self._stopping:
                raise ConfigError("the server is stopping")

    def _plan_reload(self, read_options: Callable[[], ServerOptions]) -> ReloadPlan:
        """The plan of a reload; reads the files and changes nothing. Runs in a thread."""
        options, current = read_options(), self.options
        if self._operators is not None:
            # The file does not name the accounts: those in use stay. The loop may change them now.
            accounts = dict(current.accounts)
            options, current = (replace(each, accounts=accounts) for each in (options, current))
        from tradewind.server.lifecycle.reload import describe_changes

        return ReloadPlan(
            options=options,
            changes=describe_changes(current, options),
            identities_changed=who_may_enter(current) != who_may_enter(options),
            client_tls=client_tls(options),
            websocket_tls=websocket_tls(options),
            monitor_tls=monitor_tls(options),
            gates=build_gates(options, self._callouts) if self._operators is None else None,
            limits=account_limits(options),
        )

    def _take_over(self, plan: ReloadPlan) -> Stepped[None]:
        options, gates, limits = plan.options, plan.gates, plan.limits
        if self._operators is not None:
            options = replace(options, accounts=self.options.accounts)
            yield from self._operators.reload(options)
        yield from self.broker.make_accounts(limits)
        # From here on, everything that a login depends on changes in one step.
        if gates is None:
            gates = self._gates(options)
            limits = account_limits(options)  # as their JWTs say now
        self.log.reconfigure(options)
        old, self.options = self.options, options
        has_others = self._advertise()
        self._reload_files(old)
        if self._listener is not None:
            tls = plan.client_tls
            self._listener.set_tls(options.tls, tls, allow_non_tls=options.allow_non_tls)
        if self._websocket is not None and options.websocket is not None:
            tls = plan.websocket_tls
            self._websocket.set_tls(options.websocket.tls, tls, allow_non_tls=False)
        self._monitoring.set_tls(plan.monitor_tls)
        yield from self.broker.reload_steps(
            options, gates, limits, identities_changed=plan.identities_changed
        )
        yield from self.system.start_steps()
        if self.leafnodes is not None and options.leafnodes is not None:
            self.leafnodes.reload(options.leafnodes)
        if self.jetstream is not None:
            yield from self.jetstream.reload(options)
        if has_others:
            yield from self._tell_clients()
        for change in plan.changes:
            self.log.notice(f"Reloaded: {change}")
        self.log.notice(f"Reloaded server configuration ({options.config_digest})")
        yield from self._drop_unpinned(old)
        self.turns.turn_needed()

    def _reload_files(self, old: ServerOptions) -> None:
        """Update what other programs learn about this server outside a connection."""
        options = self.options
        if options.pid_file and options.pid_file != old.pid_file:
            self._write_pid_file()
        if options.ports_file_dir != old.ports_file_dir:
            if self._ports_file is not None:
                self._ports_file.remove()
                self._ports_file = None
            self._write_ports_file()

    def _drop_unpinned(self, old: ServerOptions) -> Stepped[None]:
        """End the connections whose certificate was pinned and no longer is."""
        from tradewind.server.tls.tls import check_pinned

        dropped = 0
        for session in list(self.broker.sessions.values()):
            yield
            before = tls_of(old, session.connection_type)
            now = tls_of(self.options, session.connection_type)
            if session.tls is None or before is None or now is None:
                continue
            changed = before.pinned_certs != now.pinned_certs
            if changed and not check_pinned(now, session.tls.certificate):
                session.close(ops.CLOSED_TLS_HANDSHAKE)
                dropped += 1
        if dropped:
            self.log.notice(f"Disconnect {dropped} clients due to pinned certs reload")

    def reload_soon(self, done: Callable[[TradewindError | None], None]) -> None:
        """Reload for a request; `done` is called with the error, or with None."""
        self._keep(self._reload_for(done))

    async def _reload_for(self, done: Callable[[TradewindError | None], None]) -> None:
        problem: TradewindError | None = None
        try:
            await self.reload()
        except TradewindError as error:
            problem = error
        except Exception as error:
            if not isinstance(error, OSError):
                self.broker.faults.contain("reload", error)
            problem = TradewindError(str(error))
        done(problem)
        self.turns.turn_needed()

    def reload_or_log(self) -> None:
        """Reload for a signal: an error is only logged, and the server continues unchanged."""
        self.reload_soon(self._log_reload)

    def _log_reload(self, problem: TradewindError | None) -> None:
        if problem is not None:
            self.log.error(f"Failed to reload server configuration: {problem}")

    def enter_lame_duck(self) -> None:
        """Stop accepting, ask the clients to leave, close the rest slowly, then stop."""
        if self._lame_duck_task is None and not self._stopping:
            self._lame_duck_task = self._loop.create_task(self._lame_duck())

    async def _lame_duck(self) -> None:
        self.log.notice("Entering lame duck mode, stop accepting new clients")
        self._try(self.system.announce_lame_duck)
        for listener in (self._listener, self._websocket, self.leafnodes):
            if listener is not None:
                self._try(listener.close)
        self.broker.lame_duck = True
        self._try(self._advertise)
        await self._try_waiting(self._tell_clients_in_steps())
        self.turns.turn_needed()
        if self.broker.sessions:
            await asyncio.sleep(self.options.lame_duck_grace_ns / SECOND_NS)
            self.log.notice("Closing existing clients")
            waiting = list(self.broker.sessions)
            spread = (
                self.options.lame_duck_duration_ns - self.options.lame_duck_grace_ns
            ) / SECOND_NS
            step = min(max(spread, 0.0) / max(len(waiting), 1), LAME_DUCK_STEP_SECONDS_MAX)
            for cid in waiting:
                session = self.broker.sessions.get(cid)
                if session is None:
                    continue
                self.broker.close_session(session, ops.CLOSED_SERVER_SHUTDOWN)
                self.turns.turn_needed()
                if self.broker.sessions:
                    await asyncio.sleep(step)
        await self.stop()

    # ---------------------------------------------------------------- signals

    def trapped(self, number: signal.Signals) -> None:
        """Called on a signal: INT and TERM stop, HUP reloads, USR1 reopens the log, USR2 enters
        lame duck mode.
        """
        self.log.notice(f'Trapped "{NAMES[number]}" signal')
        actions: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGINT: self._stop_soon,
            signal.SIGTERM: self._stop_soon,
            signal.SIGHUP: self.reload_or_log,
            signal.SIGUSR1: self.log.reopen,
            signal.SIGUSR2: self.enter_lame_duck,
        }
        actions[number]()

    def _stop_soon(self) -> None:
        self._stop_task = self._loop.create_task(self.stop())


def build_gates(options: ServerOptions, client: CalloutClient | None = None) -> dict[str, Gate]:
    """One gate per kind of listener."""
    gates = {
        "STANDARD": build_gate(options, "standard", client),
        "WEBSOCKET": build_gate(options, "websocket", client),
    }
    if options.leafnodes is not None:
        gates["LEAFNODE"] = gates["LEAFNODE_WS"] = build_gate(options, "leafnode", client)
    return gates


def client_tls(options: ServerOptions) -> ServerContext | None:
    """The TLS context for client connections; None without TLS."""
    if options.tls is None:
        return None
    from tradewind.server.tls.tls import server_context

    return server_context(options.tls)


def websocket_tls(options: ServerOptions) -> ServerContext | None:
    """The TLS context for WebSocket; None without TLS."""
    websocket = options.websocket
    if websocket is None or websocket.no_tls:
        return None
    if websocket.tls is None:
        raise ServerStartError("websocket requires TLS configuration (or no_tls: true)")
    from tradewind.server.tls.tls import server_context

    return server_context(websocket.tls)


def tls_of(options: ServerOptions, connection_type: str) -> TlsOptions | None:
    """The TLS options of one kind of listener."""
    if connection_type == "STANDARD":
        return options.tls
    return options.websocket.tls if options.websocket is not None else None


def who_may_enter(options: ServerOptions) -> tuple[object, ...]:
    """Everything that the gates base decisions on; if it is unchanged, connections need not be
    checked again.
    """
    return (
        options.authorization,
        options.accounts,
        options.no_auth_user,
        options.trusted_proxies,
        options.tls.verify_and_map if options.tls else False,
        replace(options.websocket, known_servers=()) if options.websocket else None,
        options.leafnodes.authorization if options.leafnodes else None,
    )


def account_limits(options: ServerOptions) -> dict[str, AccountLimits]:
    """The accounts of the configuration, and the system account unless it is switched off."""
    limits = {
        name: AccountLimits(
            account.max_connections,
            account.max_subscriptions,
            account.max_payload_bytes,
            account.max_leafnodes,
        )
        for name, account in options.accounts.items()
    }
    if options.system_account:
        limits.setdefault(options.system_account, AccountLimits())
    return limits


__all__ = ["ServerApp"]
