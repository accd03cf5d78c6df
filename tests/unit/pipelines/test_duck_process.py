"""The process that answers one question by DuckDB, and its caller."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

pytest.importorskip("duckdb")

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.sql.caller import ElsewhereError
from tradewind.pipelines.sql.duck_caller import start_duck
from tradewind.pipelines.sql.duck_process import answer_one
from tradewind.pipelines.sql.wire import Ask, Channel, StatementError, StatementFailure, WireError

ENDLESS = "select count(*) from range(1000000000) a, range(1000000000) b where a.range = -b.range"


def asked(text: str, *, may_write: bool = False) -> Ask:
    server = "nats://127.0.0.1:1"
    return Ask(text, server=server, format="rows", rows_max=10, may_write=may_write)


def test_a_process_answers_one_question() -> None:
    caller = start_duck()
    written: list[str] = []
    assert caller.ask(asked("select range as n from range(20)"), written.append)
    caller.close()
    header, *rows = "".join(written).splitlines()
    assert json.loads(header) == {"columns": ["n"], "numbers": [True]}
    assert [json.loads(row) for row in rows] == [[str(number)] for number in range(10)]
    assert caller._process.returncode == 0


def test_errors_have_their_place_and_what_needs_spark_goes_elsewhere() -> None:
    caller = start_duck()
    with pytest.raises(StatementError, match="syntax error") as caught:
        caller.ask(asked("select 1 +\n from"), lambda _text: None)
    caller.close()
    assert caught.value.line == 2
    other = start_duck()
    with pytest.raises(ElsewhereError, match="the statement writes"):
        other.ask(asked("insert into x values (1)", may_write=True), lambda _text: None)
    other.close()


def test_a_query_is_cancelled_from_another_thread() -> None:
    caller = start_duck()
    threading.Timer(0.2, caller.cancel).start()
    with pytest.raises(PipelineError, match="the query was cancelled"):
        caller.ask(asked(ENDLESS), lambda _text: None)
    caller.close()


def test_a_caller_that_hangs_up_ends_the_process() -> None:
    caller = start_duck()
    caller._channel.send(asked(ENDLESS))
    began = time.monotonic()
    caller.close()
    assert caller._process.returncode is not None
    assert time.monotonic() - began < 60


def test_a_query_that_takes_too_long_is_ended() -> None:
    ours, theirs = socket.socketpair()
    here, there = Channel(ours), Channel(theirs)
    here.send(asked(ENDLESS))
    answer_one(there, seconds_max=0.2)
    answer = here.from_service()
    assert isinstance(answer, StatementFailure)
    assert "longer than 0.2 s" in answer.reason
    here.close()
    there.close()


def test_no_question_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    here, there = Channel(ours), Channel(theirs)
    here.close()
    with pytest.raises(WireError):
        answer_one(there)
    there.close()
