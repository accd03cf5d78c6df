"""What opens something can be awaited, entered and iterated over, and warns if it is not."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import AsyncIterator
from typing import Self

import pytest

from tradewind.client.core.openings import Opening, opening


class Numbers:
    """Something that is opened, read and closed."""

    def __init__(self) -> None:
        self.log = ["opened"]

    async def __aenter__(self) -> Self:
        self.log.append("entered")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.log.append("closed" if exc[0] is None else f"closed by {exc[0]!r}")

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in range(3):
            yield number


class Store:
    """Opens numbers."""

    def __init__(self) -> None:
        self.numbers: Numbers | None = None

    @opening
    async def read(self, name: str, *, fails: bool = False) -> Numbers:
        """Open the numbers of this name."""
        await asyncio.sleep(0)
        if fails:
            raise LookupError(name)
        self.numbers = Numbers()
        return self.numbers

    @property
    def log(self) -> list[str]:
        assert self.numbers is not None
        return self.numbers.log


async def test_awaiting_opens_and_leaves_it_open() -> None:
    store = Store()
    numbers = await store.read("a")
    assert [number async for number in numbers] == [0, 1, 2]
    assert store.log == ["opened"]
    async with await store.read("a") as numbers:
        pass
    assert store.log == ["opened", "entered", "closed"]


async def test_a_block_opens_and_closes_it() -> None:
    store = Store()
    async with store.read("a") as numbers:
        assert numbers is store.numbers
        assert store.log == ["opened", "entered"]
    assert store.log == ["opened", "entered", "closed"]
    with pytest.raises(ValueError, match="inside"):
        async with store.read("a"):
            raise ValueError("inside")
    assert store.log[-1] == "closed by <class 'ValueError'>"


async def test_a_loop_opens_it_and_closes_it_when_it_is_left() -> None:
    store = Store()
    assert [number async for number in store.read("a")] == [0, 1, 2]
    assert store.log == ["opened", "entered", "closed"]
    async for number in store.read("a"):
        if number == 1:
            break
    for _ in range(10):  # the loop of asyncio finishes what a break has left
        if "closed" in store.log[-1]:
            break
        await asyncio.sleep(0)
    assert store.log[-1].startswith("closed")


@pytest.mark.parametrize("way", ["await", "block", "loop"])
async def test_an_error_of_opening_is_raised_where_it_is_used(way: str) -> None:
    store = Store()

    async def use(numbers: Opening[Numbers]) -> None:
        if way == "await":
            await numbers
        elif way == "block":
            async with numbers:
                pass
        else:
            async for _ in numbers:
                pass

    with pytest.raises(LookupError, match="b"):
        await use(store.read("b", fails=True))
    assert store.numbers is None


async def test_it_is_used_once() -> None:
    store = Store()
    numbers = store.read("a")
    await numbers
    with pytest.raises(RuntimeError, match="already awaited"):
        await numbers
    with pytest.raises(RuntimeError, match="already awaited"):
        async with numbers:
            pass


async def test_asyncio_takes_it_for_a_coroutine() -> None:
    store = Store()
    assert isinstance(await asyncio.create_task(store.read("a")), Numbers)
    assert isinstance(await asyncio.wait_for(store.read("a"), 1), Numbers)
    found = await asyncio.gather(
        store.read("a"), store.read("b", fails=True), return_exceptions=True
    )
    assert [type(each) for each in found] == [Numbers, LookupError]
    task = asyncio.ensure_future(store.read("a"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_one_that_is_never_used_warns() -> None:
    def forget() -> None:
        Store().read("a")
        gc.collect()

    with pytest.warns(RuntimeWarning, match=r"coroutine 'Store.read' was never awaited"):
        forget()


def test_one_that_is_closed_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    Store().read("a").close()
    gc.collect()
    assert not recwarn.list


def test_the_signature_and_the_help_are_those_of_the_method() -> None:
    assert list(inspect.signature(Store.read).parameters) == ["self", "name", "fails"]
    assert Store.read.__doc__ == "Open the numbers of this name."
    made = Store().read("a")
    assert isinstance(made, Opening)
    assert "Store.read" in repr(made)
    made.close()
