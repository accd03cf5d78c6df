"""The tool that measures coverage: data of several programs become one."""

from __future__ import annotations

from pathlib import Path

from coverage import CoverageData
from tools.line_coverage import combine, erase, keep_earlier

PLUGIN = "Cython.Coverage.Plugin"


def write(folder: Path, name: str, lines: dict[str, list[int]], tracers: dict[str, str]) -> None:
    data = CoverageData(str(folder / f".coverage.{name}"))
    data.add_lines(lines)
    data.add_file_tracers(tracers)
    data.write()


def test_programs_that_know_a_compiled_file_differently_are_combined(tmp_path: Path) -> None:
    write(tmp_path, "one", {"a.pyx": [1, 2], "b.py": [5]}, {"a.pyx": PLUGIN})
    write(tmp_path, "two", {"a.pyx": [2, 3]}, {})
    assert combine(tmp_path)
    whole = CoverageData(str(tmp_path / ".coverage"))
    whole.read()
    assert sorted(whole.lines("a.pyx") or ()) == [1, 2, 3]
    assert whole.lines("b.py") == [5]
    assert (whole.file_tracer("a.pyx"), whole.file_tracer("b.py")) == (PLUGIN, "")
    assert not list(tmp_path.glob(".coverage.*"))


def test_nothing_is_said_to_be_nothing(tmp_path: Path) -> None:
    assert not combine(tmp_path)


def test_what_the_plugin_cannot_report_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "one", {"a.pyx": [1], "a.pxd": [2]}, {"a.pyx": PLUGIN, "a.pxd": PLUGIN})
    assert combine(tmp_path)
    whole = CoverageData(str(tmp_path / ".coverage"))
    whole.read()
    assert whole.measured_files() == {"a.pyx"}


def test_a_run_that_adds_keeps_what_was_found_but_for_files_that_have_changed(
    tmp_path: Path,
) -> None:
    same, moved = str(tmp_path / "src/same.pyx"), str(tmp_path / "src/moved.py")
    write(tmp_path, "one", {same: [1], moved: [1, 9]}, {same: PLUGIN})
    assert combine(tmp_path)
    write(tmp_path, "stopped", {same: [7]}, {})
    keep_earlier(tmp_path, {Path("src/moved.py")})
    write(tmp_path, "two", {same: [3], moved: [2]}, {same: PLUGIN})
    assert combine(tmp_path)
    whole = CoverageData(str(tmp_path / ".coverage"))
    whole.read()
    assert sorted(whole.lines(same) or ()) == [1, 3]
    assert whole.lines(moved) == [2]
    assert whole.file_tracer(same) == PLUGIN


def test_a_run_that_starts_anew_forgets_what_was_found(tmp_path: Path) -> None:
    write(tmp_path, "one", {"a.py": [1]}, {})
    assert combine(tmp_path)
    write(tmp_path, "stopped", {"a.py": [7]}, {})
    erase(tmp_path)
    assert not combine(tmp_path)
