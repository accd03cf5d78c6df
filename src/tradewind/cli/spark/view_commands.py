"""`tradewind view`: keep materialized views up to date, list, pause, resume and drop them.

Owns the flags and the output. Views are made by `tradewind sql`; `tradewind.pipelines.views` does
the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tradewind.cli.frame.failures import EXIT_FAILED
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import line, note, print_json
from tradewind.cli.spark.spark_flags import MasterFlag, spark_address
from tradewind.spark.processes.local_master import LOCAL_MASTER

if TYPE_CHECKING:
    from tradewind.pipelines.views.view_store import ViewStore

app = CommandApp("Materialized views: the results of a query, kept up to date")

ViewName = Annotated[str, Argument(help="Name of the view")]


@app.command("run", aliases=("start",))
def run_views(
    names: Annotated[
        list[str] | None, Argument(help="Run only these views; all if omitted")
    ] = None,
    state: Annotated[
        str,
        Option(
            "--state", help="Folder of the views' state; default ~/.local/state/tradewind/views"
        ),
    ] = "",
    once: Annotated[
        bool, Option("--once", help="Stop when everything stored so far is processed")
    ] = False,
    seconds: Annotated[
        float | None, Option("--seconds", help="Stop after this time", min=0.1)
    ] = None,
    master: MasterFlag = LOCAL_MASTER,
) -> int:
    """Keep materialized views up to date; Ctrl-C stops, and the next run resumes."""
    from tradewind.pipelines.machine.signals import stop_event
    from tradewind.pipelines.sessions.pipeline_session import using_session
    from tradewind.pipelines.sql.query_session import SPARK_SETTINGS
    from tradewind.pipelines.views.view_runner import ViewRunner, default_folder

    address = spark_address()
    folder = Path(state).expanduser().absolute() if state else default_folder()
    log_file = folder / "spark.log"
    note(f"views: starting Spark (log: {log_file})")
    with using_session(master, log_file, SPARK_SETTINGS) as session, stop_event() as stop:
        runner = ViewRunner(session, address, folder, note, names or (), is_once=once)
        failed = runner.run(stop, seconds)
    return EXIT_FAILED if failed else 0


@app.command("ls", aliases=("list",))
def list_views(json: JsonFlag = False) -> None:
    """List materialized views: their state, where their results are, and their queries."""
    from tradewind.pipelines.sql.rendering import RenderStyle, lines
    from tradewind.pipelines.sql.view_statement_runner import listed_views

    with _store() as store:
        result = listed_views(store)
    if json:
        print_json([dict(zip(result.columns, row, strict=True)) for row in result.rows])
        return
    for each in lines(result, RenderStyle()):
        line(each)


@app.command("pause")
def pause_view(name: ViewName) -> None:
    """Pause a view: its results stay as they are."""
    _set_paused(name, is_paused=True)


@app.command("resume")
def resume_view(name: ViewName) -> None:
    """Resume a view that is paused: it continues where it was."""
    _set_paused(name, is_paused=False)


@app.command("rm", aliases=("drop",))
def drop_view(name: ViewName) -> None:
    """Drop a view and the bucket of its results; files of a lake stay."""
    with _store() as store:
        view = store.drop(name)
    stays = "" if view.kind == "bucket" else f"; {view.location} stays"
    line(f"view {name}: dropped{stays}")


def _set_paused(name: str, *, is_paused: bool) -> None:
    import msgspec

    with _store() as store:
        store.change(name, lambda view: msgspec.structs.replace(view, is_paused=is_paused))
    line(f"view {name}: {'paused' if is_paused else 'resumed'}")


@contextmanager
def _store() -> Iterator[ViewStore]:
    from tradewind.pipelines.views.view_store import ViewStore

    with spark_address().connect() as connection:
        yield ViewStore(connection)
