"""The life cycle of a connection: login, disconnect, reconnect and close.

Owns the link, the pool of servers, the ping timer, and the events about all of it; a single login
attempt is in `login.py`. Output is written once per turn of the event loop. When the connection
closes, all waiting calls are woken.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tradewind.client.core.addresses import CHANCE, Address, ServerPool, parse_servers
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.client.core.connection_owners import WireOwner
from tradewind.client.core.links import ClientLink
from tradewind.client.core.login import CONTROL_LOST, LoginAttempt, ServerInfo, decode_info
from tradewind.client.core.protocol import (
    CONTROL_ERROR,
    CONTROL_INFO,
    CONTROL_PING,
    CONTROL_PONG,
    ClientWire,
    MessageInbox,
)
from tradewind.client.core.stats import Stats
from tradewind.client.core.subscription import Subscription
from tradewind.client.errors import (
    AuthorizationError,
    ConnectionClosedError,
    DisconnectedError,
    DrainingError,
    NoServersError,
    OperationTimeoutError,
    PermissionsError,
    StaleConnectionError,
    closes_connection,
    error_from_wire,
)
from tradewind.client.events import (
    Closed,
    Connected,
    Disconnected,
    ErrorEvent,
    Event,
    LameDuck,
    Reconnected,
    ReconnectFailed,
    ServersDiscovered,
    SlowConsumer,
)
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg

# The values of `WireState` in publisher.pxd.
CONNECTED, RECONNECTING, CLOSED = range(3)
# The same server may refuse the same login so often before the connection gives up.
REFUSALS_MAX = 2
CLOSE_SECONDS_MAX = 2.0
_DENIED = re.compile(r"'?Permissions Violation for (Publish|Subscription) to \"([^\"]*)\"")
_log = logging.getLogger("tradewind.client")
Runner = Callable[[Coroutine[Any, Any, Any]], Any]


class Lifecycle(WireOwner):
    """The part of a Connection that keeps it alive.

    `info` is the last INFO of the server.
    """

    options: ConnectOptions
    info: ServerInfo

    def __init__(self, options: ConnectOptions) -> None:
        self.options = options
        self.info = ServerInfo()
        self._wire = ClientWire(self)
        self._loop = asyncio.get_running_loop()
        self._call_soon: Callable[..., asyncio.Handle] = self._loop.call_soon
        self._runner: Runner | None = None
        servers = parse_servers(options.servers)
        self._pool = ServerPool(servers, randomize=options.randomize_servers)
        # One option or url that asks for TLS asks for it everywhere, and TLS is never given up
        # again: what a reconnect finds may be from anybody.
        self._is_secure = options.wants_tls or any(address.is_secure for address in servers)
        self._address: Address | None = None
        self._link: ClientLink | None = None
        self._login: LoginAttempt | None = None
        self._is_closed = False
        self._is_draining = False
        self._closed_error: Exception | None = None
        self._wire_error: Exception | None = None
        self._refusals: dict[Address, int] = {}
        self._reconnect_task: asyncio.Task[None] | None = None
        self._event_tasks: set[asyncio.Future[None]] = set()
        self._rounds = 0
        self._hurried = asyncio.Event()
        self._connected_at = 0.0
        self._reconnects = 0
        self._pongs: deque[asyncio.Future[None] | None] = deque()
        self._pings_unanswered = 0
        self._ping_timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        # Called when the link is lost and when it is back; they must not raise.
        self._link_watchers: set[Callable[[], None]] = set()
        self._ended_queues: list[Subscription] = []
        self._closed_event = asyncio.Event()
        self._wire.set_limits(self.info.max_payload, options.reconnect_pending_bytes_max)

    # ------------------------------------------------------------------ what it is

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected to a server at the moment."""
        return self._link is not None

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed for good."""
        return self._is_closed

    @property
    def is_draining(self) -> bool:
        """Whether `drain` has begun."""
        return self._is_draining

    @property
    def url(self) -> str:
        """The server of the current (or last) connection; empty before the first."""
        return self._address.url if self._address else ""

    @property
    def servers(self) -> list[str]:
        """The URLs of all known servers, in the order in which they will be tried."""
        return [address.url for address in self._pool.servers]

    @property
    def closed_error(self) -> Exception | None:
        """Why the connection was closed; None while it is open, or if the program closed it."""
        return self._closed_error

    @property
    def stats(self) -> Stats:
        """Counters of messages, bytes and reconnects."""
        return Stats(
            in_messages=self._wire.in_messages,
            in_bytes=self._wire.in_bytes,
            out_messages=self._wire.out_messages,
            out_bytes=self._wire.out_bytes,
            reconnects=self._reconnects,
        )

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else self.url if self._link else "not connected"
        return f"Connection({state})"

    # ------------------------------------------------------------------ waiting

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the server has processed everything sent so far."""
        if self._is_closed:
            raise self._closed_exception()
        seconds = self.options.timeout if timeout is None else timeout
        waiter: asyncio.Future[None] = self._loop.create_future()
        try:
            async with asyncio.timeout(seconds):
                while self._link is None:
                    await self._changed()
                    if self._is_closed:
                        raise self._closed_exception()
                self._ping(waiter)
                self._flush_outbox()
                await waiter
        except TimeoutError:
            raise OperationTimeoutError(
                f"flush: the server did not answer within {seconds:g} s"
            ) from None

    async def rtt(self, timeout: float | None = None) -> float:
        """The round-trip time of a ping to the server, in seconds."""
        start = self._loop.time()
        await self.flush(timeout)
        return self._loop.time() - start

    async def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until the client is connected to a server."""
        seconds = self.options.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                while self._link is None:
                    if self._is_closed:
                        raise self._closed_exception()
                    await self._changed()
        except TimeoutError:
            raise OperationTimeoutError(f"no connection within {seconds:g} s") from None

    async def wait_for_room(self) -> None:
        """Wait until the outbox has room, as an awaited publish does when it is full."""
        self._flush_outbox()
        # At least one turn of the loop, so that a program that only publishes still reads.
        await asyncio.sleep(0)
        while self._link is not None and self._link.paused:
            await self._changed()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed for good; raises what closed it."""
        await self._closed_event.wait()
        if self._closed_error is not None:
            raise self._closed_exception()

    async def close(self) -> None:
        """Send what is queued and close; unread messages are dropped."""
        if self._is_closed:
            await self._closed_event.wait()
            await self._stop_callbacks()
            return
        self._flush_outbox()
        link = self._link
        self._finish(None)
        try:
            await self._stop_callbacks()
            task = self._reconnect_task
            if task is not None and task is not asyncio.current_task():
                await asyncio.wait({task})
            if link is not None:
                link.close()
                await asyncio.wait({link.lost}, timeout=CLOSE_SECONDS_MAX)
        finally:
            if link is not None:
                link.abort()
            self._closed_event.set()

    async def _stop_callbacks(self) -> None:
        queues, self._ended_queues = self._ended_queues, []
        await asyncio.gather(*(queue._stop_task() for queue in queues))

    async def reconnect(self, timeout: float | None = None) -> None:
        """Leave the server, and log in again without a pause at the next one of `servers`.

        Use it when something has changed that the connection does not see: other credentials,
        another load, a server that will stop. Subscriptions continue, what waits to be sent is
        sent. If the client is between two attempts to reconnect, the next one begins at once. A
        connection with `reconnect=False` tries each server once, and is closed if none answers.
        """
        self._check_open()
        if self._is_draining:
            raise DrainingError("reconnect: the connection is being drained")
        self._rounds = 0
        self._refusals.clear()
        self._hurried.set()
        link = self._link
        if link is not None:
            self._flush_outbox()
            self._disconnected(None, is_wanted=True)
            link.leave()
            self._loop.call_later(CLOSE_SECONDS_MAX, link.abort)
        await self.wait_connected(timeout)

    def set_servers(self, servers: str | Sequence[str]) -> None:
        """Replace the pool of servers, with those that were discovered, for the next reconnect.

        The present connection stays where it is; `reconnect` moves it.
        """
        self._check_open()
        addresses = parse_servers(servers)
        self._is_secure = self._is_secure or any(address.is_secure for address in addresses)
        self._pool.replace(addresses)
        self._refusals.clear()

    async def _changed(self) -> None:
        """Wait until the link came, went, or has room again."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # ------------------------------------------------------------------ output

    def _set_runner(self, runner: Runner) -> None:
        """Let users in other threads publish from there; `runner` waits for results for them."""
        self._runner = runner
        self._call_soon = self._loop.call_soon_threadsafe

    def _run_for_user(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of a message's method: the coroutine, or for users in threads its result."""
        return coroutine if self._runner is None else self._runner(coroutine)

    def _schedule_flush(self) -> None:
        """The outbox has its first bytes: write them when this turn of the loop is over."""
        self._call_soon(self._flush_outbox)

    def _flush_outbox(self) -> None:
        link = self._link
        if link is not None and not link.paused and self._wire.pending_bytes:
            link.write(self._wire.take_output())

    def _on_writable(self, link: ClientLink) -> None:
        if link is self._link:
            self._flush_outbox()
            self._wake()

    # ------------------------------------------------------------------ subscriptions

    def _subscribe(self, inbox: MessageInbox) -> None:
        self._wire.register(inbox)
        if self._link is not None:
            self._wire.send_line(_subscribe_lines(inbox))

    def _unsubscribe(self, inbox: MessageInbox) -> None:
        if self._wire.forget(inbox):
            self._stop_delivery(inbox)

    def _stop_delivery(self, inbox: MessageInbox) -> bool:
        """Ask the server for no more messages; False if there is nothing to ask."""
        if inbox.is_ended or self._link is None:
            return False
        self._wire.send_line(b"UNSUB %d\r\n" % inbox.sid)
        return True

    def _forget(self, inbox: MessageInbox) -> None:
        """Drop what still comes for it."""
        self._wire.forget(inbox)

    def _subscribers(self) -> list[Subscription]:
        """The subscriptions that users made."""
        owners = [inbox.owner for inbox in self._wire.registered()]
        return [owner for owner in owners if isinstance(owner, Subscription)]

    def _on_slow_consumer(self, inbox: MessageInbox) -> None:
        if isinstance(inbox.owner, Subscription):
            self._emit(SlowConsumer(inbox.owner))

    def _on_handler_error(self, error: Exception) -> None:
        self._emit(ErrorEvent(error))

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed_exception()

    def _closed_exception(self) -> ConnectionClosedError:
        reason = self._closed_error
        text = f"the connection is closed: {reason}" if reason else "the connection is closed"
        return ConnectionClosedError(text, reason)

    def _fail_requests(self, error: Exception, subject: str) -> None:
        """Tell those who wait for a reply from this subject; they are not known here."""

    def _close_requests(self, error: Exception) -> None:
        """Tell all who wait for a reply."""

    # ------------------------------------------------------------------ control lines

    def _on_control(self, kind: str, argument: bytes) -> None:
        if self._login is not None:
            self._login.control(kind, argument)
        elif kind == CONTROL_PONG:
            self._on_pong()
        elif kind == CONTROL_PING:
            self._wire.send_line(b"PONG\r\n")
        elif kind == CONTROL_INFO:
            self._on_info(decode_info(argument))
        elif kind == CONTROL_ERROR:
            self._on_error(argument.decode(errors="replace"))

    def _on_pong(self) -> None:
        self._pings_unanswered = 0
        if self._pongs:
            waiter = self._pongs.popleft()
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def _on_info(self, info: ServerInfo, *, names_servers: bool = True) -> None:
        assert self._address is not None
        self.info = info
        self._wire.set_limits(info.max_payload, self.options.pending_bytes_max)
        if self.options.discover_servers and names_servers:
            new = self._pool.discovered(info.connect_urls, self._address, secure=self._is_secure)
            if new:
                self._emit(ServersDiscovered(tuple(address.url for address in new)))
        if info.ldm:
            self._emit(LameDuck(self.url))

    def _on_error(self, wire_text: str) -> None:
        error = error_from_wire(wire_text)
        if closes_connection(error):
            self._wire_error = error  # the reason, when the server closes the link
            return
        if isinstance(error, PermissionsError) and (match := _DENIED.match(wire_text)):
            if match[1] == "Publish":
                self._fail_requests(error, match[2])
            else:
                self._refuse(match[2], error)
        self._emit(ErrorEvent(error))

    def _refuse(self, subject: str, error: Exception) -> None:
        """Called when the server denies subscriptions to a subject; their readers get the error."""
        for subscription in self._subscribers():
            if subscription.subject == subject:
                self._forget(subscription._inbox)
                subscription._close(error)

    def _emit(self, event: Event) -> None:
        handler = self.options.on_event
        if handler is None:
            serious = isinstance(event, Disconnected | ErrorEvent | SlowConsumer)
            _log.log(logging.WARNING if serious else logging.INFO, "%s", event)
            return
        try:
            result = handler(event)
        except Exception:
            _log.exception("on_event failed for: %s", event)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(_watch(result, event))
            self._event_tasks.add(task)
            task.add_done_callback(self._event_tasks.discard)

    # ------------------------------------------------------------------ pings

    def _start_pings(self) -> None:
        self._stop_pings()
        self._pings_unanswered = 0
        self._ping_timer = self._loop.call_later(self.options.ping_interval, self._ping_due)

    def _stop_pings(self) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
            self._ping_timer = None

    def _ping(self, waiter: asyncio.Future[None] | None) -> None:
        """Send PING; the PONG comes after the server's answers to everything sent before."""
        self._wire.send_line(b"PING\r\n")
        self._pongs.append(waiter)

    def _fail_pongs(self, error: Exception) -> None:
        while self._pongs:
            waiter = self._pongs.popleft()
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # no warning if the caller was cancelled

    def _ping_due(self) -> None:
        link = self._link
        if link is None:
            return
        if self._pings_unanswered >= self.options.pings_unanswered_max:
            link.abort()
            self._disconnected(
                StaleConnectionError(
                    f"{self.url}: {self._pings_unanswered} pings were not answered"
                )
            )
            return
        self._pings_unanswered += 1
        self._ping(None)
        self._ping_timer = self._loop.call_later(self.options.ping_interval, self._ping_due)

    # ------------------------------------------------------------------ connect, lose, reconnect

    async def _start(self) -> None:
        """The first connection."""
        while True:
            errors: dict[str, Exception] = {}
            for address in self._pool.servers:
                try:
                    await self._try(address)
                except (TradewindError, OSError) as error:
                    errors[address.url] = error
                else:
                    self._emit(Connected(self.url))
                    return
            refused = [error for error in errors.values() if isinstance(error, AuthorizationError)]
            if refused or not self.options.wait_for_server or self._gives_up():
                reason = refused[0] if refused else _no_servers(errors)
                self._finish(reason)
                raise reason
            await asyncio.sleep(self._next_wait())

    async def _try(self, address: Address) -> None:
        """Log in at this server and continue there."""
        self._wire.reset_input()
        login = LoginAttempt(self, self._wire, address, self.options, secure=self._is_secure)
        self._login = login
        try:
            link, info = await login.run()
        finally:
            self._login = None
        self._address = address
        self._is_secure = login.is_secured
        self._refusals.pop(address, None)
        self._connected_at = self._loop.time()
        self._wire_error = None
        self._restore(link)
        self._on_info(info, names_servers=login.is_confirmed)
        self._start_pings()
        for kind, argument in login.rest():
            if kind == CONTROL_LOST:
                self._on_link_lost(link, argument)
            else:
                self._on_control(kind, argument)

    def _restore(self, link: ClientLink) -> None:
        """Make all subscriptions again, then send what waited."""
        lines = b"".join(_subscribe_lines(item) for item in self._wire.registered())
        if lines:
            link.write(lines)
        self._link = link
        self._wire.set_state(CONNECTED)
        self._tell_watchers()
        self._flush_outbox()
        self._wake()

    def _tell_watchers(self) -> None:
        for watcher in list(self._link_watchers):
            watcher()

    def _on_link_lost(self, link: ClientLink, error: Exception | None) -> None:
        if self._login is not None and self._login.link is link:
            self._login.lost(error)
        elif link is self._link:
            self._disconnected(self._wire_error or error)

    def _disconnected(self, error: Exception | None, *, is_wanted: bool = False) -> None:
        assert self._address is not None
        url = self.url
        self._link = None
        self._stop_pings()
        self._wire.set_state(RECONNECTING)
        self._wire.set_limits(self.info.max_payload, self.options.reconnect_pending_bytes_max)
        self._wire.keep_messages()
        lost = f"{url}: the connection was lost before the server answered"
        self._fail_pongs(DisconnectedError(lost))
        self._wake()
        self._tell_watchers()
        self._emit(Disconnected(url, error))
        self._is_refused_everywhere(self._address, error)
        self._pool.move_to_end(self._address)
        if self._loop.time() - self._connected_at > self.options.reconnect_wait_max:
            self._rounds = 0
        if (not self.options.reconnect and not is_wanted) or self._is_draining:
            self._finish(error or DisconnectedError(f"{url}: the server closed the connection"))
            return
        self._reconnect_task = self._loop.create_task(self._reconnect(), name="tradewind reconnect")

    async def _reconnect(self) -> None:
        errors: dict[str, Exception] = {}
        while True:
            await self._pause(self._next_wait())
            for address in self._pool.servers:
                if self._refusals.get(address, 0) >= REFUSALS_MAX:
                    continue
                try:
                    await self._try(address)
                except (TradewindError, OSError) as error:
                    errors[address.url] = error
                    self._emit(ReconnectFailed(address.url, error))
                    if self._is_refused_everywhere(address, error):
                        self._finish(error)
                        return
                else:
                    self._reconnects += 1
                    self._reconnect_task = None
                    self._emit(Reconnected(self.url))
                    return
            if self._gives_up() or not self.options.reconnect:
                self._finish(_no_servers(errors))
                return

    async def _pause(self, seconds: float) -> None:
        """Wait before the next round, unless the program is in a hurry."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurried.wait()
        self._hurried.clear()

    def _is_refused_everywhere(self, address: Address, error: Exception | None) -> bool:
        """Count a refused login; whether no server is left where another try makes sense."""
        if not isinstance(error, AuthorizationError):
            return False
        self._refusals[address] = self._refusals.get(address, 0) + 1
        return all(self._refusals.get(server, 0) >= REFUSALS_MAX for server in self._pool.servers)

    def _gives_up(self) -> bool:
        limit = self.options.reconnect_attempts_max
        return limit is not None and self._rounds >= limit

    def _next_wait(self) -> float:
        """Seconds to wait before the next round: doubled each time, and spread."""
        options = self.options
        doubled = options.reconnect_wait * 2.0 ** min(self._rounds, 32)
        wait = min(doubled, options.reconnect_wait_max)
        self._rounds += 1
        return wait * CHANCE.uniform(0.5, 1.0)

    def _finish(self, error: Exception | None) -> None:
        """Close for good: end the subscriptions, and wake or fail all waiting calls."""
        if self._is_closed:
            return
        self._is_closed = True
        self._closed_error = error
        self._link = None
        self._stop_pings()
        self._wire.set_state(CLOSED)
        task = self._reconnect_task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        closed = self._closed_exception()
        for inbox in self._wire.registered():
            self._forget(inbox)
            if isinstance(inbox.owner, Subscription):
                inbox.owner._close(closed if error else None)
                self._ended_queues.append(inbox.owner)
        self._close_requests(closed)
        self._fail_pongs(closed)
        self._wake()
        if error is not None:
            self._closed_event.set()  # else when `close` is done
        self._emit(Closed(error))
        self._wire.set_owner(_ClosedOwner(closed, self._runner))


class _ClosedOwner(WireOwner):
    """Stands in for a closed connection, so that stored messages do not keep it in memory."""

    def __init__(self, error: ConnectionClosedError, runner: Runner | None) -> None:
        self._error = error
        self._runner = runner

    def _schedule_flush(self) -> None:
        pass

    def _on_control(self, kind: str, argument: bytes) -> None:
        pass

    def _on_slow_consumer(self, inbox: MessageInbox) -> None:
        pass

    def _on_handler_error(self, error: Exception) -> None:
        pass

    def _run_for_user(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return coroutine if self._runner is None else self._runner(coroutine)

    async def wait_for_room(self) -> None:
        """Nothing more is sent."""

    async def request(
        self,
        subject: str,  # noqa: ARG002 - as that of a connection
        payload: bytes,  # noqa: ARG002
        *,
        timeout: float | None,  # noqa: ARG002
    ) -> Msg:
        """No server is left to ask."""
        raise self._error


def _subscribe_lines(inbox: MessageInbox) -> bytes:
    """SUB, and UNSUB with what is left if it ends by itself."""
    queue = f" {inbox.queue}" if inbox.queue else ""
    lines = f"SUB {inbox.subject}{queue} {inbox.sid}\r\n"
    if inbox.messages_max:
        left = max(inbox.messages_max - inbox.delivered_count, 1)
        lines += f"UNSUB {inbox.sid} {left}\r\n"
    return lines.encode()


def _no_servers(errors: dict[str, Exception]) -> NoServersError:
    if len(errors) == 1:
        return NoServersError(f"cannot connect: {next(iter(errors.values()))}", errors)
    reasons = "; ".join(str(error) for error in errors.values())
    return NoServersError(f"no server can be reached: {reasons}", errors)


async def _watch(result: Awaitable[None], event: Event) -> None:
    """Run an asynchronous event handler; its failure is logged, like that of any other."""
    try:
        await result
    except Exception:
        _log.exception("on_event failed for: %s", event)
