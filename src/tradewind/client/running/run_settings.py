"""The settings of a run: what users pass, checked before anything happens."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, TypedDict

from tradewind.client.core.duration_input import DurationInput
from tradewind.client.core.message import Msg
from tradewind.client.errors import OptionsError
from tradewind.client.running.key_order import OrderBy, key_function
from tradewind.client.running.payload_codecs import Decode, decoder_of
from tradewind.client.running.retries import Retry, seconds_of
from tradewind.client.running.run_stats import RunEvent

Handler = Callable[..., Any]
EventHandler = Callable[[RunEvent], Any]
CONCURRENCY_DEFAULT: Final = 8
CONCURRENCY_MAX: Final = 10_000
BUFFER_MAX: Final = 100_000
GRACE_SECONDS: Final = 30.0


class RunSettings(TypedDict, total=False):
    """The settings of `consumer.run`, besides the handler.

    `concurrency` (8) handlers run at a time; up to `buffer` (as many again) further messages wait
    in this process. `retry` says what follows an exception, `timeout` how long a handler may take.

    `codec`: the handler is called with (value, message) instead of (message). "json", "text", a
    type of msgspec, a Pydantic model, or an object with decode(bytes).

    `order_by`: messages of one key are handled one after the other, in the order of the stream.
    "subject", the number of a token of the subject (1 is the first, -1 the last), the name of a
    header, or a function of the message.

    `signals`: SIGINT and SIGTERM stop the run. When it stops, handlers have `grace` (30 s) to
    finish. `on_event` is called with failures; without it they are logged.
    """

    concurrency: int
    buffer: int
    retry: Retry
    codec: object
    order_by: OrderBy
    timeout: DurationInput
    grace: DurationInput
    signals: bool
    on_event: EventHandler


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The settings as a run uses them; times in seconds."""

    handler: Handler
    is_async: bool
    concurrency: int
    buffer: int
    retry: Retry
    decode: Decode | None
    key_of: Callable[[Msg], Any] | None
    timeout: float | None
    grace: float
    signals: bool
    on_event: EventHandler | None

    @property
    def window(self) -> int:
        """How many messages may be requested, waiting or in handlers."""
        return self.concurrency + self.buffer


def make_plan(handler: Handler, settings: RunSettings) -> RunPlan:
    """Check everything; OptionsError names the first setting that cannot be."""
    known = RunSettings.__annotations__
    for name in settings:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionsError(f"a run has no setting {name!r}{hint}")
    concurrency = _count(
        "concurrency", settings.get("concurrency", CONCURRENCY_DEFAULT), 1, CONCURRENCY_MAX
    )
    buffer = _count("buffer", settings.get("buffer", concurrency), 0, BUFFER_MAX)
    retry = settings.get("retry", None) or Retry()
    if not isinstance(retry, Retry):
        raise OptionsError(f"retry: a tradewind.Retry, not {retry!r}")
    codec, order_by, timeout = (settings.get(name) for name in ("codec", "order_by", "timeout"))
    on_event = settings.get("on_event")
    if on_event is not None and not callable(on_event):
        raise OptionsError(f"on_event: a function of one event, not {on_event!r}")
    decode = None if codec is None else decoder_of(codec)
    seconds = None if timeout is None else seconds_of("timeout", timeout)
    if seconds == 0:
        raise OptionsError("timeout: more than 0 seconds, or None")
    _check_handler(handler, has_codec=decode is not None)
    return RunPlan(
        handler=handler,
        is_async=is_async_callable(handler),
        concurrency=concurrency,
        buffer=buffer,
        retry=retry,
        decode=decode,
        key_of=None if order_by is None else key_function(order_by),
        timeout=seconds,
        grace=seconds_of("grace", settings.get("grace", GRACE_SECONDS)),
        signals=bool(settings.get("signals", False)),
        on_event=on_event,
    )


def _count(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise OptionsError(f"{name}: a number from {low} to {high}, not {value!r}")
    return value


def is_async_callable(handler: object) -> bool:
    """Whether calling it gives a coroutine: such a handler runs in the event loop."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def _check_handler(handler: object, *, has_codec: bool) -> None:
    if not callable(handler):
        raise OptionsError(f"handler: a function or coroutine function, not {handler!r}")
    arguments = ("value", "message") if has_codec else ("message",)
    try:
        signature = inspect.signature(handler)
    except ValueError:
        return  # compiled functions may have none
    try:
        signature.bind(*arguments)
    except TypeError:
        name = getattr(handler, "__name__", repr(handler))
        why = "with a codec" if has_codec else "without a codec"
        raise OptionsError(
            f"handler: {why} it is called as {name}({', '.join(arguments)}), but it takes "
            f"{signature}"
        ) from None
