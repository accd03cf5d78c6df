"""The tool that measures coverage: data of several programs become one."""

from __future__ import annotations

from pathlib import Path

from coverage import CoverageData
from tools.line_coverage import combine

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
