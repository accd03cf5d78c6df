"""The grammar of materialized views, their definitions and pipelines; no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tradewind
import tradewind.sync
from tradewind.cli.main import run
from tradewind.documents import Place
from tradewind.pipelines.definition.document import PipelineDocument
from tradewind.pipelines.definition.loading import pipeline_of
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.relations.statements import is_writing
from tradewind.pipelines.sql.view_grouping import Cover, Grouping
from tradewind.pipelines.sql.view_statement_runner import keyed
from tradewind.pipelines.sql.view_statements import (
    AlterView,
    CreateView,
    DropView,
    ShowViews,
    parse_view_statement,
)
from tradewind.pipelines.sql.wire import StatementError
from tradewind.pipelines.views.view_spec import (
    ViewReport,
    ViewSource,
    ViewSpec,
    checked_batch,
    checked_every,
    pipeline_values,
    source_problem,
)
from tradewind.pipelines.views.view_store import ViewStore, state_of


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "create materialized view v as select 1",
            CreateView("v", "select 1", 1, 31),
        ),
        (
            (
                "CREATE /* a /* nested */ */ Materialized VIEW if not exists `v`\n"
                "  using DELTA location 'a\\'b' -- where\n"
                "  options (key = 'a, b', every='2 seconds')\nas\n  select ';' ;"
            ),
            CreateView(
                "v",
                "select ';'",
                5,
                3,
                "delta",
                "a'b",
                {"key": "a, b", "every": "2 seconds"},
                may_exist=True,
            ),
        ),
        ("drop materialized view v;", DropView("v")),
        ("drop materialized view if exists v", DropView("v", may_be_missing=True)),
        ("alter materialized view v pause", AlterView("v", is_paused=True)),
        ("alter materialized view v RESUME ;", AlterView("v", is_paused=False)),
        ("-- all\nshow materialized views", ShowViews()),
        ("select 1", None),
        ("create table t as select 1", None),
        ("create or replace table t as select 1", None),
        ("drop table t", None),
        ("show tables", None),
        ("", None),
    ],
)
def test_statements_about_views_are_read(text: str, statement: Any) -> None:
    assert parse_view_statement(text) == statement


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("create materialized table t", 1, 21, "'view' is expected here, not 'table'"),
        ("create materialized view", 1, 25, "the name of a view is expected"),
        ("create materialized view 1v as select 1", 1, 26, "the name of a view is expected"),
        ("create materialized view `a-b` as select 1", 1, 26, "the name of a view is expected"),
        ("create materialized view v", 1, 27, "as is expected here, once, not 'the end'"),
        ("create materialized view v as ;", 1, 31, "the query of the view is expected"),
        ("create materialized view v\nusing orc as select 1", 2, 7, "'orc' is not one of bucket"),
        ("create materialized view v using delta using delta as x", 1, 40, "once, not 'using'"),
        ("create materialized view v location x as y", 1, 37, "in single quotes"),
        ("create materialized view v location ' ' as y", 1, 37, "in single quotes"),
        ("create materialized view v options (k = 'a') as y", 1, 37, "one of key, every, batch"),
        ("create materialized view v options (key 'a') as y", 1, 41, "'=' is expected"),
        ("create materialized view v options (key = 'a' as y", 1, 47, "',' is expected"),
        (f"create materialized view v location '{'x' * 1001}' as y", 1, 37, "more than 1000"),
        ("create or replace materialized view v as x", 1, 11, "drop it first"),
        ("drop materialized view v w", 1, 26, "nothing is expected here, but there is 'w'"),
        ("drop materialized view v; drop", 1, 27, "nothing is expected here, but there is 'drop'"),
        ("alter materialized view v stop", 1, 27, "pause or resume is expected"),
        ("show materialized view", 1, 19, "'views' is expected"),
        ("create /* materialized view v as x", 1, 8, "this comment has no end"),
    ],
)
def test_what_is_wrong_with_a_statement_is_said_with_its_place(
    text: str, line: int, column: int, reason: str
) -> None:
    with pytest.raises(StatementError, match=reason) as caught:
        parse_view_statement(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("insert into A select 1", True),
        ("/* c */ -- d\n INSERT into A select 1", True),
        ("create materialized view v as select 1", True),
        ("drop materialized view v", True),
        ("alter materialized view v pause", True),
        ("show materialized views", False),
        ("select 'insert'", False),
        ("inserted", False),
        ("/* insert", False),
        ("", False),
    ],
)
def test_statements_that_write_are_known_by_their_first_word(text: str, is_one: bool) -> None:
    assert is_writing(text) is is_one


ORDERS = ViewSource(
    "ORDERS",
    "stream",
    "ORDERS",
    ["stream", "seq", "subject", "time", "headers", "data"],
    ["id", "region", "time"],
    "`id` bigint, `region` string, `time` string",
)
PLAIN = ViewSpec("v", "t" * 32, "select region from ORDERS", "bucket", [ORDERS], ["region", "n"])


def pipeline(view: ViewSpec) -> Any:
    document = PipelineDocument(Path("/views/v"))
    document.value = pipeline_values(view, "checkpoint")
    document.places[()] = Place(1, 1, 1)
    return pipeline_of(document)


@pytest.mark.parametrize("kind", ["bucket", "delta", "parquet"])
@pytest.mark.parametrize("is_grouped", [True, False])
def test_every_view_is_a_pipeline_that_is_right(kind: Any, is_grouped: bool) -> None:
    view = msgspec.structs.replace(
        PLAIN, kind=kind, location="/lake", key=["region"] if is_grouped else []
    )
    view = msgspec.structs.replace(view, is_grouped=is_grouped and kind != "parquet")
    made = pipeline(view)
    assert made.name == "v"
    (sink,) = made.sinks.values()
    assert sink.kind == kind
    modes = {"bucket": "update", "delta": "upsert" if is_grouped else "append"}
    assert sink.mode == modes.get(kind, "append")
    stored = msgspec.json.decode(msgspec.json.encode(view), type=ViewSpec)
    assert stored == view


def test_fields_whose_names_are_taken_are_only_in_json() -> None:
    sql = pipeline(PLAIN).steps["ORDERS"].sql
    assert sql.count("tradewind_json.`time` as `time`") == 1
    assert sql.count("tradewind_json.`id` as `id`") == 2


def test_the_key_of_a_view_tells_its_groups_apart() -> None:
    by_region = Grouping((Cover("region", ("region",)),))
    assert keyed(PLAIN, "", by_region).key == ["region"]
    assert keyed(PLAIN, " region , n", by_region).key == ["region", "n"]
    assert keyed(PLAIN, "", Grouping(())).key == [], "one row for everything"
    files = msgspec.structs.replace(PLAIN, kind="parquet")
    assert keyed(files, "", None) == files
    for key, grouping, reason in (
        ("regoin", by_region, "did you mean 'region'"),
        ("n", by_region, "does not tell groups apart by region: add region"),
        ("n,n", by_region, "named twice"),
        ("", None, "only if the query groups them"),
        ("", Grouping((Cover("day", ()),)), "groups by day, which is none of its columns"),
    ):
        with pytest.raises(PipelineError, match=reason):
            keyed(PLAIN, key, grouping)
    with pytest.raises(PipelineError, match="are not changed"):
        keyed(files, "", by_region)


def test_options_and_names_are_checked() -> None:
    assert (checked_every("fast"), checked_every("2 seconds")) == ("fast", "2 seconds")
    assert checked_batch("1000") == 1000
    for text in ("0", "-1", "x", "99999999999", "٣"):
        with pytest.raises(PipelineError, match="option batch"):
            checked_batch(text)
    with pytest.raises(PipelineError, match="option every"):
        checked_every("sometimes")
    for name in ("RAW-1", "tradewind_source_0"):
        assert source_problem(msgspec.structs.replace(ORDERS, name=name))
    assert source_problem(ORDERS) == ""


def test_the_state_of_a_view_is_what_its_runner_said_last() -> None:
    now = 1_000_000_000_000
    report = ViewReport(PLAIN.token, "running", 3, "", "host", 1, now - 1_000_000_000)
    paused = msgspec.structs.replace(PLAIN, is_paused=True)
    assert state_of(PLAIN, report, now) == "running"
    assert state_of(paused, report, now) == "pausing"
    assert state_of(PLAIN, None, now) == "not running"
    assert state_of(paused, None, now) == "paused"
    other = msgspec.structs.replace(report, token="another")
    assert state_of(PLAIN, other, now) == "not running"
    assert state_of(PLAIN, report, now + 60_000_000_000) == "not running"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[ViewStore, Any]]:
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path)) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        yield ViewStore(connection), connection


def test_the_command_lists_pauses_resumes_and_drops(
    store: tuple[ViewStore, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    views, connection = store
    views.create(PLAIN)
    base = ["--server", connection.url, "view"]
    for words, said in (
        (["pause", "v"], "view v: paused\n"),
        (["ls"], "paused"),
        (["resume", "v"], "view v: resumed\n"),
        (["ls", "--json"], '"state": "not running"'),
        (["rm", "v"], "view v: dropped\n"),
    ):
        assert run([*base, *words]) == 0
        assert said in capsys.readouterr().out
    assert run([*base, "pause", "w"]) == 1
    assert "materialized view 'w' does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["perhaps", "2"])
def test_a_read_only_that_is_neither_yes_nor_no_is_named(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_SQL_READ_ONLY", text)
    assert run(["sql", "select 1"]) != 0
    assert f"TRADEWIND_SQL_READ_ONLY='{text}': 1 or 0" in capsys.readouterr().err


def test_views_are_stored_changed_and_dropped(store: tuple[ViewStore, Any]) -> None:
    views, connection = store
    buckets = connection.jetstream().kv
    assert views.all() == []
    assert not views.has("v")
    views.create(PLAIN)
    assert "v" in buckets.names()
    with pytest.raises(PipelineError, match="bucket 'v' exists already"):
        views.create(PLAIN)
    lake = msgspec.structs.replace(PLAIN, name="lake", kind="delta", location="/lake")
    views.create(lake)
    with pytest.raises(PipelineError, match="materialized view 'lake' exists already"):
        views.create(lake)

    seen: list[int] = []

    def contested(view: ViewSpec) -> ViewSpec:
        seen.append(len(seen))
        if len(seen) == 1:
            # Somebody else is faster: what they have stored is changed, not what was read.
            views.change("v", lambda one: msgspec.structs.replace(one, checkpoint="here"))
        return msgspec.structs.replace(view, is_paused=True)

    changed = views.change("v", contested)
    assert (changed.is_paused, changed.checkpoint) == (True, "here")
    assert [stored.view.name for stored in views.all()] == ["lake", "v"]
    report = ViewReport(PLAIN.token, "running", 3, "", "host", 1, 5)
    views.report("v", report)
    assert views.reports() == {"v": report}
    assert views.drop("v").name == "v"
    assert views.reports() == {}
    assert "v" not in buckets.names()
    with pytest.raises(PipelineError, match="'v' does not exist"):
        views.find("v")
    buckets.open("tradewind_views").put("view.lake", b"{")
    with pytest.raises(PipelineError, match=r"key view.lake: not a definition of a view"):
        views.all()
