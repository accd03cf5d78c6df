"""`pytest tests/interop --matrix` prints the tables of FORMAT.md from the results of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

DIRECTIONS = {
    "test_the_stream_and_its_consumers_are_the_same": "nats-server to Tradewind",
    "test_the_official_server_finds_the_same": "Tradewind to nats-server",
    "test_what_it_has_changed_comes_back": "Tradewind to nats-server and back",
}
Results = dict[str, dict[str, dict[str, bool]]]
RESULTS = pytest.StashKey[Results]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix", action="store_true", help="print which folders went which way")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RESULTS] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    report = yield
    function = getattr(item, "originalname", "")
    if report.when == "call" and function in DIRECTIONS:
        values = item.callspec.params  # type: ignore[attr-defined]
        table = item.config.stash[RESULTS].setdefault(DIRECTIONS[function], {})
        table.setdefault(values["name"], {})[values["end"]] = report.passed
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not config.getoption("--matrix", default=False):
        return
    for direction, table in config.stash[RESULTS].items():
        ends = list(next(iter(table.values())))
        terminalreporter.write_line(f"\n### {direction}\n")
        terminalreporter.write_line(f"| stream | {' | '.join(ends)} |")
        terminalreporter.write_line(f"|---|{'---|' * len(ends)}")
        for name, row in table.items():
            cells = " | ".join("same" if row[end] else "DIFFERS" for end in ends)
            terminalreporter.write_line(f"| {name} | {cells} |")
