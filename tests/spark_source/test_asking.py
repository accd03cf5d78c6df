"""How often a query that waits asks the server."""

from __future__ import annotations

from tradewind.spark.providers.network import (
    ASK_IDLE_SECONDS,
    ASK_SECONDS,
    ASK_SECONDS_MAX,
    ASK_SHARE,
    next_pace,
)


def test_a_server_is_asked_less_often_the_longer_nothing_comes() -> None:
    paces = [ASK_SECONDS]
    silent_seconds = 0.0
    while paces[-1] < ASK_IDLE_SECONDS:
        silent_seconds += paces[-1]
        paces.append(next_pace(paces[-1], 0.0, is_idle=True))
        # A message never waits long compared with the silence before it.
        assert paces[-1] <= ASK_SECONDS + silent_seconds / 10
    assert paces == sorted(paces)
    assert silent_seconds < 10
    assert next_pace(paces[-1], 0.0, is_idle=True) == ASK_IDLE_SECONDS
    assert next_pace(paces[-1], 0.0, is_idle=False) == ASK_SECONDS


def test_a_server_that_answers_slowly_is_asked_seldom() -> None:
    assert next_pace(ASK_SECONDS, 0.08, is_idle=True) == 0.08 * ASK_SHARE
    assert next_pace(ASK_SECONDS, 60.0, is_idle=True) == ASK_SECONDS_MAX
