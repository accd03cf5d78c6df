"""Questions are asked only while somebody looks, once for all who do, within bounds."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest

from tradewind.client.errors import DisconnectedError, NoLeaderError, NoRespondersError
from tradewind.dashboard.data import samplers as module
from tradewind.dashboard.data.samplers import LEASE_SECONDS, TOPICS_MAX, Question, Samplers
from tradewind.dashboard.data.series import KEPT_SECONDS, MOMENTS_MAX, Series


class Server:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked = 0
        self.error: Exception | None = None

    async def answer(self) -> int:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.asked

    def question(self, key: str = "q", interval: float = 0.001) -> Question[int]:
        return Question(key, self.answer, interval, ("asked",), lambda value: (value,))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the condition is of the code under test
            await asyncio.sleep(0.001)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def samplers(server: Server) -> Samplers:
    return Samplers(lambda: server.now, lambda: server.now)


async def test_pages_that_show_the_same_share_one_question(
    server: Server, samplers: Samplers
) -> None:
    seen = await asyncio.gather(*(samplers.see(server.question(interval=60)) for _ in range(20)))
    assert server.asked == 1
    assert {each.value for each in seen} == {1}
    await samplers.close()


async def test_nothing_is_asked_when_nobody_has_looked_for_a_while(
    server: Server, samplers: Samplers
) -> None:
    await samplers.see(server.question())
    await until(lambda: server.asked > 3)
    server.now += LEASE_SECONDS + 1
    await until(lambda: samplers._topics["q"].task is None)
    asked = server.asked
    await asyncio.sleep(0)
    assert server.asked == asked
    # Whoever comes back gets a new answer and not the old one.
    seen = await samplers.see(server.question())
    assert seen.value is not None
    assert seen.value > asked
    await samplers.close()


async def test_an_error_is_told_beside_the_last_answer(server: Server, samplers: Samplers) -> None:
    await samplers.see(server.question())
    server.error = DisconnectedError("away")
    await until(lambda: samplers._topics["q"].problem is not None)
    seen = await samplers.see(server.question())
    assert seen.value is not None
    assert seen.problem is not None
    assert seen.problem.kind == "away"
    server.error = None
    await until(lambda: samplers._topics["q"].problem is None)
    await samplers.close()


async def test_a_problem_is_looked_at_again_soon_however_seldom_the_question_is(
    server: Server, samplers: Samplers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)
    server.error = NoLeaderError("no leader at the moment")
    seen = await samplers.see(server.question(interval=3600))
    assert seen.problem is not None
    assert (seen.problem.kind, "no leader at the moment" in seen.problem.text) == ("away", True)
    server.error = None
    await until(lambda: samplers._topics["q"].problem is None)
    assert server.asked > 1
    asked = server.asked
    assert (await samplers.see(server.question(interval=3600))).problem is None
    assert server.asked == asked
    await samplers.close()


async def test_an_answer_that_does_not_come_holds_no_page_up(
    samplers: Samplers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.01)

    async def never() -> int:
        await asyncio.Event().wait()
        return 0

    seen = await samplers.see(Question("never", never))
    assert seen.value is None
    assert seen.problem is not None
    await samplers.close()


async def test_the_number_of_topics_is_bounded_and_the_newest_stay(
    server: Server, samplers: Samplers
) -> None:
    for number in range(TOPICS_MAX + 20):
        await samplers.see(server.question(f"q{number}", 60))
    assert len(samplers) <= TOPICS_MAX
    assert f"q{TOPICS_MAX + 19}" in samplers._topics
    assert "q0" not in samplers._topics
    await samplers.close()


async def test_topics_are_forgotten_when_charts_do_not_reach_back_to_them(
    server: Server, samplers: Samplers
) -> None:
    await samplers.see(server.question("old", 60))
    server.now += KEPT_SECONDS + 1
    await samplers.see(server.question("new", 60))
    assert len(samplers) == 1
    await samplers.close()


async def test_what_was_changed_is_asked_anew(server: Server, samplers: Samplers) -> None:
    await samplers.see(server.question(interval=60))
    samplers.forget("q")
    assert (await samplers.see(server.question(interval=60))).value == 2
    await samplers.close()


def test_a_series_keeps_the_newest_moments() -> None:
    series = Series(("n",), 1.0)
    for number in range(MOMENTS_MAX + 50):
        series.add(float(number + 1), (number,))
    points = series.levels("n")
    assert len(series) == len(points) == MOMENTS_MAX
    assert points[0].value == 50
    assert points[-1].value == MOMENTS_MAX + 49


def test_rates_have_holes_where_a_counter_began_anew_or_nobody_looked() -> None:
    series = Series(("n",), 2.0)
    for time, value in ((10, 100), (12, 120), (14, 5), (16, 15), (60, 400), (62, 402)):
        series.add(time, (value,))
    assert [point.value for point in series.rates("n")] == [10.0, None, 5.0, None, 1.0]
    assert [point.value for point in series.levels("n")] == [100, 120, 5, 15, None, 400, 402]
    assert series.last_rate("n") == 1.0


def test_a_clock_that_goes_back_adds_nothing() -> None:
    series = Series(("n",), 2.0)
    series.add(10, (1,))
    series.add(9, (2,))
    series.add(10, (3,))
    assert len(series) == 1
    assert series.last_rate("n") is None


async def test_what_was_missing_is_asked_once_more(server: Server, samplers: Samplers) -> None:
    server.error = NoRespondersError("x")
    assert (await samplers.see_present(server.question(interval=60))).problem is not None
    server.error = None
    seen = await samplers.see_present(server.question(interval=60))
    assert seen.problem is None
    await samplers.close()


def test_a_figure_that_is_no_number_is_a_hole() -> None:
    series = Series(("a",), 1.0)
    for moment, value in enumerate((1.0, math.nan, 3.0)):
        series.add(float(moment + 1), [value])
    assert [point.value for point in series.levels("a")] == [1.0, None, 3.0]
    assert [point.value for point in series.rates("a")] == [None, None]
