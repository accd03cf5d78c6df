"""The bucket with the definitions of the materialized views of an account.

Owns the bucket `tradewind_views`: a definition is at `view.NAME`, and what the runner says of it at
`status.NAME`. Every change names the revision that it replaces, so that of two changes at the same
time one is refused. The module never runs a view.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.client.errors import BucketNotFoundError, KeyExistsError, WrongRevisionError
from tradewind.pipelines.definition.loading import near
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.views.view_spec import ViewReport, ViewSpec

if TYPE_CHECKING:
    from tradewind.sync import Connection, KeyValue

VIEWS_BUCKET: Final = "tradewind_views"
VIEWS_MAX: Final = 100
VIEW_BYTES_MAX: Final = 1 << 19
_CHANGES_MAX: Final = 5
# A runner that has said nothing for so long is taken for gone.
REPORT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class StoredView:
    """A definition, and the revision that has it."""

    view: ViewSpec
    revision: int


class ViewStore:
    """The views of the account of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._js = connection.jetstream()

    def _open(self) -> KeyValue | None:
        try:
            return self._js.kv.open(VIEWS_BUCKET)
        except BucketNotFoundError:
            return None

    def all(self) -> list[StoredView]:
        """All views by name; PipelineError if a definition cannot be read."""
        bucket = self._open()
        if bucket is None:
            return []
        names = sorted(key.removeprefix("view.") for key in bucket.keys("view.*"))
        found = [self._get(bucket, name) for name in names]
        return [one for one in found if one is not None]

    def find(self, name: str) -> StoredView:
        """A view; PipelineError names one that is like it if it is not there."""
        bucket = self._open()
        found = self._get(bucket, name) if bucket is not None else None
        if found is None:
            known = [stored.view.name for stored in self.all()]
            raise PipelineError(f"materialized view {name!r} does not exist{near(name, known)}")
        return found

    def _get(self, bucket: KeyValue, name: str) -> StoredView | None:
        entry = bucket.get(f"view.{name}")
        if entry is None:
            return None
        try:
            return StoredView(msgspec.json.decode(entry.value, type=ViewSpec), entry.revision)
        except msgspec.DecodeError as error:
            raise PipelineError(
                f"bucket {VIEWS_BUCKET}, key view.{name}: not a definition of a view: {error};"
                " remove it, or use the version of this program that has written it"
            ) from None

    def has(self, name: str) -> bool:
        """Whether there is a view of this name."""
        bucket = self._open()
        return bucket is not None and bucket.get(f"view.{name}") is not None

    def create(self, view: ViewSpec) -> None:
        """Store a new view, and make the bucket of its results; PipelineError if it cannot be."""
        value = msgspec.json.encode(view)
        if len(value) > VIEW_BYTES_MAX:
            raise PipelineError(
                f"materialized view {view.name}: its definition has {len(value)} bytes, and"
                f" {VIEW_BYTES_MAX} are allowed"
            )
        if len(self.all()) >= VIEWS_MAX:
            raise PipelineError(f"there are {VIEWS_MAX} materialized views already; drop one")
        bucket = self._open() or self._js.kv.create(
            VIEWS_BUCKET, history=5, description="Materialized views of tradewind sql"
        )
        is_bucket = view.kind == "bucket"
        if is_bucket and view.name in self._js.kv.names():
            raise PipelineError(
                f"bucket {view.name!r} exists already; a materialized view keeps its results in"
                " a new one"
            )
        try:
            bucket.create(f"view.{view.name}", value)
        except KeyExistsError:
            raise PipelineError(f"materialized view {view.name!r} exists already") from None
        if is_bucket:
            self._js.kv.create(view.name, description=f"Results of the view {view.name}")

    def change(self, name: str, change: Callable[[ViewSpec], ViewSpec]) -> ViewSpec:
        """Replace a definition by what `change` makes of it, as it is now."""
        for _ in range(_CHANGES_MAX):
            found = self.find(name)
            bucket = self._open()
            assert bucket is not None
            changed = change(found.view)
            if changed == found.view:
                return changed
            try:
                bucket.update(f"view.{name}", msgspec.json.encode(changed), found.revision)
            except WrongRevisionError:
                continue
            return changed
        raise PipelineError(f"materialized view {name!r}: others keep changing it; try again")

    def drop(self, name: str) -> ViewSpec:
        """Remove a view and the bucket of its results; the files of a lake stay."""
        found = self.find(name)
        bucket = self._open()
        assert bucket is not None
        # The definition goes first: a runner that sees it no longer begins anew.
        bucket.delete(f"view.{name}", revision=found.revision)
        bucket.purge(f"status.{name}")
        if found.view.kind == "bucket":
            with suppress(BucketNotFoundError):  # already removed
                self._js.kv.open(name).destroy()
        return found.view

    def report(self, name: str, report: ViewReport) -> None:
        """Store the state of a view, for listings of views."""
        bucket = self._open()
        if bucket is not None:
            bucket.put(f"status.{name}", msgspec.json.encode(report))

    def reports(self) -> dict[str, ViewReport]:
        """The last reports of the runners, by view."""
        bucket = self._open()
        found: dict[str, ViewReport] = {}
        for key in bucket.keys("status.*") if bucket is not None else ():
            entry = bucket.get(key) if bucket is not None else None
            if entry is not None:
                try:
                    report = msgspec.json.decode(entry.value, type=ViewReport)
                except msgspec.DecodeError:
                    continue  # of another version; the next one replaces it
                found[key.removeprefix("status.")] = report
        return found


def state_of(view: ViewSpec, report: ViewReport | None, now_ns: int | None = None) -> str:
    """How a view is, in one word or two."""
    now = time.time_ns() if now_ns is None else now_ns
    is_ours = report is not None and report.token == view.token
    is_new = is_ours and report is not None and now - report.updated_ns < REPORT_SECONDS * 1e9
    if not is_new or report is None:
        return "paused" if view.is_paused else "not running"
    if view.is_paused:
        return "paused" if report.state in ("stopped", "done", "failed") else "pausing"
    return report.state
