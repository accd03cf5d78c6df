"""/metrics: the text format, names, escaping and a bounded number of series."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_fakes import FakeAccount, FakeBroker

from tradewind.monitor.facade import MonitorView
from tradewind.monitor.health import HealthProblem
from tradewind.monitor.prometheus import (
    ACCOUNTS_LABELLED_MAX,
    OTHER_ACCOUNTS,
    Family,
    Sample,
    render,
)
from tradewind.monitor.stepping import at_once

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|\})')
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> tuple[Series, dict[str, str]]:
    """A strict reader of text format 0.0.4: series by name and labels, types by family."""
    assert text.endswith("\n")
    series: Series = {}
    types: dict[str, str] = {}
    helped: set[str] = set()
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in helped
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name in helped
            assert kind in ("counter", "gauge")
            types[name] = kind
        else:
            name, labels, value = parse_sample(line)
            assert NAME.match(name)
            assert name in types, "samples follow their TYPE line"
            key = (name, frozenset(labels.items()))
            assert key not in series, "no series twice"
            series[key] = float(value)
    return series, types


def parse_sample(line: str) -> tuple[str, dict[str, str], str]:
    if "{" not in line:
        name, value = line.split(" ")
        return name, {}, value
    name, rest = line.split("{", 1)
    labels: dict[str, str] = {}
    while True:
        match = LABEL.match(rest)
        assert match, rest
        labels[match[1]] = re.sub(r"\\.", lambda found: ESCAPES[found[0]], match[2])
        rest = rest[match.end() :]
        if match[3] == "}":
            assert rest.startswith(" ")
            return name, labels, rest[1:]


def scrape(broker: FakeBroker) -> tuple[Series, dict[str, str]]:
    return parse(b"".join(at_once(MonitorView(broker).metrics())).decode())


def value(series: Series, name: str, **labels: str) -> float:
    return series[name, frozenset(labels.items())]


def test_the_page_has_the_servers_figures() -> None:
    broker = FakeBroker()
    broker.add_session(1)
    broker.totals.in_msgs = 2**53 + 1
    broker.totals.auth_failures = 4
    series, types = scrape(broker)
    assert value(series, "tradewind_connections") == 1
    assert value(series, "tradewind_auth_failures_total") == 4
    assert (
        f"tradewind_in_messages_total {2**53 + 1}\n"
        in b"".join(at_once(MonitorView(broker).metrics())).decode()
    )
    assert value(series, "tradewind_healthy") == 1
    assert value(series, "tradewind_account_connections", account="A") == 1
    assert types["tradewind_connections"] == "gauge"


def test_counters_end_in_total_and_gauges_do_not() -> None:
    _, types = scrape(FakeBroker())
    assert len(types) > 20
    for name, kind in types.items():
        assert name.startswith("tradewind_")
        assert name.endswith("_total") == (kind == "counter"), name


@given(st.text(), st.text())
def test_any_account_and_server_name_survives_escaping(account: str, server: str) -> None:
    broker = FakeBroker(server_name=server, accounts={account: FakeAccount(account, in_msgs=3)})
    series, _ = scrape(broker)
    assert value(series, "tradewind_account_in_messages_total", account=account) == 3
    labels = next(dict(labels) for name, labels in series if name == "tradewind_info")
    assert labels["server_name"] == server


def test_many_accounts_are_added_up_beyond_a_limit() -> None:
    count = ACCOUNTS_LABELLED_MAX + 50
    accounts = {f"A{n}": FakeAccount(f"A{n}", in_msgs=1) for n in range(count)}
    series, _ = scrape(FakeBroker(accounts=accounts))
    name = "tradewind_account_in_messages_total"
    values = {dict(labels)["account"]: v for (n, labels), v in series.items() if n == name}
    assert len(values) == ACCOUNTS_LABELLED_MAX + 1
    assert values[OTHER_ACCOUNTS] == 50
    assert sum(values.values()) == count


def test_an_unhealthy_server_is_scraped_as_such() -> None:
    view = MonitorView(FakeBroker())
    view.health.add(lambda _options: [HealthProblem("broken")])
    series, _ = parse(b"".join(at_once(view.metrics())).decode())
    assert value(series, "tradewind_healthy") == 0


def test_other_parts_add_their_own_metrics() -> None:
    view = MonitorView(FakeBroker())
    family = Family(
        "tradewind_streams", "gauge", "Streams\nper \\account", (Sample(2.5, {"a": "b"}),)
    )
    view.add_metrics(lambda: [family])  # fmt: skip
    text = b"".join(at_once(view.metrics())).decode()
    assert "# HELP tradewind_streams Streams\\nper \\\\account\n" in text
    assert value(parse(text)[0], "tradewind_streams", a="b") == 2.5


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (1.0, "1"), (0.25, "0.25"), (2**60, str(2**60))]
)
def test_values_are_exact(number: float, text: str) -> None:
    family = Family("x", "gauge", "h", (Sample(number),))
    assert render([family]).decode().splitlines()[-1] == f"x {text}"


def test_a_name_that_is_not_text_does_not_cost_the_page() -> None:
    series, _ = scrape(FakeBroker(server_name="\udcff"))
    assert value(series, "tradewind_connections") == 0
