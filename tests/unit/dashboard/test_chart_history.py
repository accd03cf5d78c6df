"""Charts have no hole while nobody looks; a day of them outlives the dashboard in a file."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.client.core.connect_options import ConnectOptions
from tradewind.dashboard.data import chart_history as module
from tradewind.dashboard.data.chart_history import DAY, MINUTE, ChartHistory
from tradewind.dashboard.data.history_file import HistoryFile
from tradewind.dashboard.data.series import ChartWindow, Point, Series
from tradewind.dashboard.look.charts import BUCKETS, Line, line_chart
from tradewind.dashboard.web.serving import DashboardSettings
from tradewind.errors import ConfigError

NOW = 1_800_000_000.0
SERVER = "nats://one:4222"


class Clock:
    """Seconds since 1970 that move when they are set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fill(history: ChartHistory, clock: Clock, seconds: int, step: int = 10) -> Series:
    series = history.series("account", ("n",), float(step))
    for _ in range(seconds // step):
        clock.now += step
        history.add("account", series, clock.now, (clock.now - NOW,))
    return series


def values(series: Series) -> list[float | None]:
    return [point.value for point in series.levels("n")]


def test_pages_and_the_survey_add_to_the_same_series(clock: Clock) -> None:
    history = ChartHistory(clock=clock)
    key = ("stream", "S")
    history.add_surveyed(key, ("n",), 15.0, NOW, (1,))
    seen = history.series(key, ("n",), 2.0)
    history.add(key, seen, NOW + 2, (2,))
    history.add_surveyed(key, ("n",), 15.0, NOW + 15, (3,))
    # What is sampled every 15 seconds has no gap between its samples.
    assert values(history.series(key, ("n",), 2.0)) == [1, 2, 3]


def test_the_number_of_series_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 8)
    monkeypatch.setattr(module, "SURVEYED_MAX", 4)
    history = ChartHistory(clock=clock)
    for number in range(100):
        history.add_surveyed(("stream", str(number)), ("n",), 5.0, NOW, (1,))
    assert len(history._series) == 4
    for number in range(100):
        history.series(f"page {number}", ("n",), 5.0)
    assert len(history._series) == 8
    assert len(history._surveyed) <= 8


async def test_a_day_is_there_after_a_restart_and_not_more(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = ChartHistory(HistoryFile(path, SERVER), clock)
    fill(history, clock, 2 * DAY, MINUTE)
    await history.save()
    await history.close()
    clock.now += 3600
    again = ChartHistory(HistoryFile(path, SERVER), clock)
    window = again.window({"range": "24h"})
    # Longer than the longest delay between two runs of this test's clock: a day and its edges.
    assert window.end - window.start == pytest.approx(DAY, abs=2 * MINUTE)
    series = fill(again, clock, 60)
    merged = await again.charted("account", series, again.window({"range": "24h"}))
    points = merged.levels("n")
    assert points[0].time >= clock.now - DAY - 2 * MINUTE
    assert values(merged)[-6:] == values(series)
    assert None in values(merged)  # while no dashboard ran
    assert len(points) > 1300
    await again.close()


async def test_a_file_that_cannot_be_written_is_reported_and_stops_nothing(
    clock: Clock, tmp_path: Path
) -> None:
    file = HistoryFile(tmp_path / "history", SERVER)
    history = ChartHistory(file, clock)
    series = fill(history, clock, 600)
    file._database.execute("drop table samples")
    await history.save()
    assert history.problem is not None
    assert "The history is not saved" in history.problem.text
    assert await history.charted("account", series, ChartWindow(NOW - 100, clock.now)) is not series
    # Nothing is lost when it can be written again.
    file._database.executescript(
        "create table samples (series, minute, data, primary key (series, minute))"
    )
    await history.save()
    assert history.problem is None
    assert len(file.read('"account"', 0, int(clock.now))) == 11
    await history.close()


def test_the_file_is_for_its_owner_and_for_one_server(tmp_path: Path) -> None:
    path = tmp_path / "history"
    HistoryFile(path, SERVER).close()
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match=r"has the history of nats://one:4222, not of nats://two"):
        HistoryFile(path, "nats://two:4222")
    HistoryFile(path, SERVER).close()


@pytest.mark.parametrize("kind", ["text", "folder", "missing folder", "version"])
def test_a_file_of_another_kind_is_refused_and_not_changed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "history"
    if kind == "text":
        path.write_text("important " * 200)
    elif kind == "folder":
        path.mkdir()
    elif kind == "missing folder":
        path = path / "none"
    else:
        HistoryFile(path, SERVER).close()
        with sqlite3.connect(path) as database:
            database.execute("update about set value = '0' where name = 'version'")
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(ConfigError, match=r"^--history .*: \S"):
        HistoryFile(path, SERVER)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_history_and_logins_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="--history"):
        DashboardSettings(ConnectOptions(), needs_login=True, history_path="h")


@given(
    st.dictionaries(st.sampled_from(["from", "to", "range"]), st.text() | st.integers().map(str))
)
def test_any_address_is_a_time_to_show(query: dict[str, str]) -> None:
    window = ChartHistory(clock=lambda: NOW).window(query)
    assert 0 < window.end - window.start <= DAY


def test_a_time_that_was_chosen_stays_and_others_move_on(clock: Clock) -> None:
    history = ChartHistory(clock=clock)
    chosen = {"from": str(int(NOW - 60)), "to": str(int(NOW - 30))}
    assert history.window(chosen) == ChartWindow(NOW - 60, NOW - 30, is_fixed=True)
    clock.now += 7200
    assert history.window(chosen).end == NOW - 30
    # Without a file there is an hour, whatever the address says.
    assert history.window({"range": "24h"}) == ChartWindow(clock.now - 3600, clock.now)
    assert not history.window({"from": "9", "to": "10"}).is_fixed


def points_of(html: str) -> list[list[list[str]]]:
    found = re.search(r'data-points="([^"]*)"', html)
    assert found
    lines: list[list[list[str]]] = msgspec.json.decode(unescape(found[1]))["lines"]
    return lines


@pytest.mark.parametrize("samples", [10, 1_800, 100_000])
def test_a_chart_does_not_grow_with_the_number_of_samples(samples: int) -> None:
    made = [Point(NOW + number / 100, float(number % 7)) for number in range(samples)]
    window = ChartWindow(NOW, NOW + samples / 100)
    html = line_chart("t", [Line("a", made)], window=window, percentiles=True)
    assert len(points_of(html)[0][0]) == min(samples, BUCKETS)
    assert len(html) < 12_000


def test_a_gap_stays_a_gap_and_percentiles_are_those_of_the_samples() -> None:
    made: Sequence[Point] = [
        *(Point(NOW + number, float(number)) for number in range(100)),
        Point(NOW + 100, None),
        *(Point(NOW + number, 5.0) for number in range(300, 320)),
    ]
    html = line_chart("t", [Line("a", made)], window=ChartWindow(NOW, NOW + 400), percentiles=True)
    assert html.count("stroke line0") == 2
    ordered = sorted(point.value for point in made if point.value is not None)
    assert f"p50 {ordered[59]:.0f}" in html
    assert "p95 93" in html
    assert "max 99" in html
