"""Calls that open something: their result is awaited, entered with `async with`, or iterated over.

Owns the object between the call and what it opens, once for all such methods. Nothing happens
before it is used; one that is never used warns, as every coroutine does.
"""

from __future__ import annotations

import functools
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
)
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

Opened = TypeVar("Opened")
Opened_co = TypeVar("Opened_co", covariant=True)
Item = TypeVar("Item")
Arguments = ParamSpec("Arguments")


class Opening(Coroutine[Any, Any, Opened_co]):
    """The result of a call that opens something, to be used once, in one of three ways:

    >>> connection = await tradewind.connect(url)               # to be closed by the program
    >>> async with tradewind.connect(url) as connection: ...    # closed at the end of the block
    >>> async for message in consumer.fetch(10): ...            # closed when the loop is left

    `async for` exists where what is opened can be iterated over.
    """

    __slots__ = ("_coroutine", "_entered")

    def __init__(self, coroutine: Coroutine[Any, Any, Opened_co]) -> None:
        self._coroutine = coroutine
        self._entered: AbstractAsyncContextManager[Any] | None = None

    def __await__(self) -> Generator[Any, Any, Opened_co]:
        return self._coroutine.__await__()

    async def __aenter__(self) -> Opened_co:
        opened = await self._coroutine
        manager = cast(AbstractAsyncContextManager[Any], opened)
        await manager.__aenter__()
        self._entered = manager
        return opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._entered is not None, "entered before it is left"
        return await self._entered.__aexit__(kind, error, traceback)

    def __aiter__(self: Opening[AsyncIterable[Item]]) -> AsyncIterator[Item]:
        return _iterated(self)

    # So that asyncio makes a task of it, as of any coroutine.

    def send(self, value: Any) -> Any:
        """Continue it; called by the event loop."""
        return self._coroutine.send(value)

    def throw(self, *arguments: Any) -> Any:
        """Raise an error in it; called by the event loop."""
        return self._coroutine.throw(*arguments)

    def close(self) -> None:
        """Give it up without opening anything."""
        self._coroutine.close()

    def __repr__(self) -> str:
        return f"Opening({self._coroutine!r})"


async def _iterated(opening: Opening[AsyncIterable[Item]]) -> AsyncGenerator[Item]:
    """The items of what is opened, which is closed when the loop over them is left."""
    async with opening as opened:
        async for item in opened:
            yield item


def opening(
    function: Callable[Arguments, Coroutine[Any, Any, Opened]],
) -> Callable[Arguments, Opening[Opened]]:
    """Mark a coroutine function whose result is a context manager, and perhaps an iterator."""

    @functools.wraps(function)
    def open_later(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Opening[Opened]:
        return Opening(function(*args, **kwargs))

    return open_later
