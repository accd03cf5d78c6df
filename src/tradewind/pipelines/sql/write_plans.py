"""Reads statements that write from the plan of Spark's own parser.

Owns telling queries from statements that write, and which forms of those are known here; all others
are errors that say what would be right. The module never runs anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tradewind.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE_FORMATS: Final = ("parquet", "delta", "iceberg")
_WRITES: Final = ("InsertIntoStatement", "InsertIntoDir")
_VALUES: Final = ("LocalRelation", "UnresolvedInlineTable")
# Two parts of a name are never joined by this.
_BETWEEN: Final = "\x00"


@dataclass(frozen=True, slots=True)
class InsertPlan:
    """`insert into TABLE (COLUMNS) QUERY`; no columns if the statement names none."""

    table: str
    columns: tuple[str, ...]
    has_bare_values: bool
    query: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class CreatePlan:
    """`create [or replace] table NAME using FORMAT ... as QUERY`."""

    name: str
    format: str
    location: str
    partition_by: tuple[str, ...]
    may_replace: bool
    may_exist: bool
    query: Any = field(repr=False)


def parse(spark: SparkSession, text: str) -> Any:
    """The plan of a statement as Spark's parser gives it; raises what the parser raises."""
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(text)


def check_reads(plan: Any) -> None:
    """PipelineError if a statement that does not look like it would write."""
    kind = _class(plan)
    while kind in ("UnresolvedWith", "Union") and plan.children().size():
        plan = plan.children().apply(0)
        kind = _class(plan)
    if kind in _WRITES:
        raise PipelineError("a statement that writes begins with insert: insert into NAME with ...")


def frame_of(spark: SparkSession, query: Any) -> DataFrame:
    """The rows of a query that is part of a plan."""
    from pyspark.sql import DataFrame

    datasets = spark._jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(datasets.ofRows(spark._jsparkSession, query), spark)


def write_plan(plan: Any) -> InsertPlan | CreatePlan:
    """The statement; PipelineError if it is of a kind that is not known here."""
    kind = _class(plan)
    if kind == "InsertIntoStatement":
        return _insert(plan)
    if kind in ("CreateTableAsSelect", "ReplaceTableAsSelect"):
        return _create(plan, is_replacing=kind == "ReplaceTableAsSelect")
    if kind == "CreateTable":
        raise PipelineError("create table needs a query: create table NAME using delta as select")
    raise PipelineError(
        "this statement is not known; those that write are insert into, create table ... as select,"
        " and create, alter and drop materialized view"
    )


def _insert(plan: Any) -> InsertPlan:
    if plan.overwrite():
        raise PipelineError("insert overwrite: streams and buckets only grow; use insert into")
    if plan.partitionSpec().size() or plan.replaceCriteriaOpt().isDefined():
        raise PipelineError("insert: streams and buckets have no partitions")
    if _class(plan.table()) != "UnresolvedRelation":
        raise PipelineError("insert: name a stream or a bucket: insert into NAME (columns) ...")
    return InsertPlan(
        _one_name(plan.table().multipartIdentifier()),
        tuple(_texts(plan.userSpecifiedCols())),
        _class(plan.query()) in _VALUES,
        plan.query(),
    )


def _create(plan: Any, *, is_replacing: bool) -> CreatePlan:
    details = plan.tableSpec()
    given = {
        "options": details.optionExpression().options().size(),
        "tblproperties": details.properties().size(),
        "comment": details.comment().isDefined(),
        "row format or stored as": details.serde().isDefined(),
    }
    for name, is_given in given.items():
        if is_given:
            raise PipelineError(f"create table: {name} is not known here; leave it out")
    if is_replacing and not plan.orCreate():
        raise PipelineError("replace table: write create or replace table")
    provider = details.provider()
    format_ = provider.get().lower() if provider.isDefined() else ""
    if format_ not in TABLE_FORMATS:
        raise PipelineError(
            f"create table: say using {', '.join(TABLE_FORMATS[:-1])} or {TABLE_FORMATS[-1]}"
            + (f", not {format_!r}" if format_ else "")
        )
    location = details.location()
    columns = []
    for index in range(plan.partitioning().size()):
        transform = plan.partitioning().apply(index)
        if transform.name() != "identity":
            raise PipelineError(
                f"create table: partitioned by {transform.describe()}: only columns as they are"
            )
        columns.append(".".join(transform.references()[0].fieldNames()))
    names = _texts(plan.name().nameParts())
    return CreatePlan(
        ".".join(names),
        format_,
        location.get() if location.isDefined() else "",
        tuple(columns),
        is_replacing,
        not is_replacing and bool(plan.ignoreIfExists()),
        plan.query(),
    )


def _one_name(parts: Any) -> str:
    names = _texts(parts)
    if len(names) != 1:
        raise PipelineError(
            f"{'.'.join(names)}: streams and buckets have one name; quote it if it has a dot"
        )
    return names[0]


def _texts(sequence: Any) -> list[str]:
    return str(sequence.mkString(_BETWEEN)).split(_BETWEEN) if sequence.size() else []


def _class(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
