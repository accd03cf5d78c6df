"""tools/sanitize.py: what it looks at, and what it makes of results."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import sanitize as tool

ROOT = Path(__file__).parent.parent.parent


def pretend_build(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sanitized build in which every module is as it should be."""
    monkeypatch.setattr(tool, "BUILD", folder)
    for source in tool.compiled_sources():
        library = tool.library_of(source)
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_bytes(b"...__asan_report...")


def test_every_compiled_module_must_be_instrumented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_build(tmp_path, monkeypatch)
    tool.check_instrumented()
    for name in ("wire/parser.pyx", "store/folder/filestore.py"):
        library = tool.library_of(ROOT / "src" / "tradewind" / name)
        library.write_bytes(b"plain")
        with pytest.raises(SystemExit, match=f"{Path(name).stem}.* was not built"):
            tool.check_instrumented()
        library.unlink()
        with pytest.raises(SystemExit, match=f"{Path(name).stem}.* was not built"):
            tool.check_instrumented()
        library.write_bytes(b"__asan_")


def test_libraries_of_modules_that_are_gone_do_not_linger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_build(tmp_path, monkeypatch)
    stale = tool.library_of(ROOT / "src" / "tradewind" / "wire" / "gone.pyx")
    stale.write_bytes(b"__asan_")
    tool.copy_sources()
    assert not stale.exists()
    assert tool.library_of(ROOT / "src" / "tradewind" / "wire" / "parser.pyx").exists()


def test_pieces_are_chosen_by_name_and_anything_else_is_for_pytest() -> None:
    assert tool.chosen([]) == tool.PIECES
    assert tool.chosen(["store"]) == {"store": ("tests/unit/store",)}
    assert tool.chosen(["tests/unit/store", "-k", "hash"]) == {
        "given": ["tests/unit/store", "-k", "hash"]
    }
    for paths in tool.PIECES.values():
        assert all((ROOT / path).is_dir() for path in paths)


def test_results_are_counted_without_the_skipped(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    assert tool.counted(results) == (0, 0)
    results.write_text(
        '<testsuites><testsuite tests="9" skipped="2" failures="1" errors="1"/></testsuites>'
    )
    assert tool.counted(results) == (7, 2)


def test_a_piece_with_a_report_a_leak_or_a_failure_is_not_clean() -> None:
    def outcome(exit_code: int = 0, reports: int = 0, leaks: int = 0) -> tool.Outcome:
        return tool.Outcome("piece", 1.0, exit_code, 5, 0, reports, leaks)

    assert outcome().is_clean
    assert outcome().row().endswith("clean")
    for other in (outcome(exit_code=-6), outcome(exit_code=1), outcome(reports=1)):
        assert not other.is_clean
    assert outcome(leaks=1).row().endswith("NOT CLEAN")
