"""Outcomes of checks: the worst counts, and each format says so."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.cli.servers.check_result import FORMATS, CheckFigure, CheckResult, Status


def made() -> CheckResult:
    result = CheckResult("stream", 'ORD"ERS')
    result.ok("fine")
    result.measure(CheckFigure("lag", 7, "", 5, 10, "Operations behind"), "7 behind")
    result.measure(CheckFigure("age", 2.5, "s", None, 2.0), "2.5s old")
    return result


def test_nagios_line_has_the_worst_first_and_the_figures_behind() -> None:
    assert made().render("nagios") == (
        'CRITICAL ORD"ERS Crit:2.5s old Warn:7 behind OK:fine | lag=7;5;10 age=2.5000s;;2.0000'
    )


def test_json_has_texts_and_figures() -> None:
    document = json.loads(made().render("json"))
    assert document["status"] == "CRITICAL"
    assert (document["critical"], document["warning"]) == (["2.5s old"], ["7 behind"])
    assert document["perf_data"][0] == {
        "name": "lag", "value": 7, "unit": "", "warning": 5, "critical": 10
    }  # fmt: skip


def test_prometheus_has_a_gauge_for_each_figure_and_the_status() -> None:
    lines = made().render("prometheus", "ns").splitlines()
    assert "# HELP ns_stream_lag Operations behind" in lines
    assert 'ns_stream_lag{item="ORD\\"ERS"} 7' in lines
    assert lines[-1] == 'ns_stream_status_code{item="ORD\\"ERS",status="CRITICAL"} 2'


def test_text_lists_everything() -> None:
    text = made().render("text")
    assert text.startswith('ORD"ERS: CRITICAL\n')
    assert "WARNING: 7 behind" in text


@pytest.mark.parametrize("form", FORMATS)
def test_an_unknown_outcome_is_in_every_format(form: str) -> None:
    result = CheckResult("x", "y", unknown="who knows")
    assert result.status is Status.UNKNOWN
    assert "UNKNOWN" in result.render(form)


@given(
    st.integers(0, 20),
    st.one_of(st.none(), st.integers(0, 20)),
    st.one_of(st.none(), st.integers(0, 20)),
    st.booleans(),
    st.booleans(),
)
def test_thresholds_decide_as_written(
    value: int, warning: int | None, critical: int | None, at_least: bool, may_invert: bool
) -> None:
    result = CheckResult("x", "y")
    figure = CheckFigure("v", value, "", warning, critical)
    result.measure(figure, "v", at_least=at_least, may_invert=may_invert)
    below = at_least
    if may_invert and warning is not None and critical is not None and critical < warning:
        below = True

    def beyond(limit: int | None) -> bool:
        return limit is not None and (value <= limit if below else value >= limit)

    expected = Status.CRITICAL if beyond(critical) else Status.OK
    if expected is Status.OK and beyond(warning):
        expected = Status.WARNING
    assert result.status is expected
