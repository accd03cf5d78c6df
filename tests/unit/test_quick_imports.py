"""What a start does to import less: stand-ins for modules, and a finder with less work to do."""

from __future__ import annotations

import importlib
import importlib.util
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tradewind.late_modules import Absent, Late, LateModule
from tradewind.quick_imports import QuickFinder, QuickLoader

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module below a folder that Python imports from; `quick` is found by our finder."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [QuickFinder(), *sys.meta_path])
    before = set(sys.modules)

    def put(name: str, text: str) -> Path:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    put("quick.__init__", "")
    yield put
    for name in set(sys.modules) - before:
        del sys.modules[name]


def compiled(path: Path) -> Path:
    return Path(py_compile.compile(str(path), doraise=True))


def test_late_module_is_loaded_when_a_name_of_it_is_used(write: Write) -> None:
    write("late_sample", "value = 7")
    with Late(("late_sample",)):
        late = importlib.import_module("late_sample")
    assert isinstance(late, LateModule)
    assert "late_sample" not in sys.modules
    assert late.value == 7
    loaded = sys.modules["late_sample"]
    assert not isinstance(loaded, LateModule)
    loaded.value = 8  # type: ignore[attr-defined]
    assert late.value == 8


def test_late_module_that_is_used_at_once_is_loaded_at_once(write: Write) -> None:
    write("late_sample", "value = 7")
    with Late(("late_sample",)):
        from late_sample import value  # type: ignore[import-not-found]
    assert value == 7
    assert not isinstance(sys.modules["late_sample"], LateModule)


def test_loaded_module_stays_what_it_is() -> None:
    with Late(("os",)), Absent("os"):
        assert sys.modules["os"] is os
    assert sys.modules["os"] is os


def test_name_that_a_late_module_lacks_is_an_attribute_error(write: Write) -> None:
    write("late_sample", "")
    with Late(("late_sample",)):
        late = importlib.import_module("late_sample")
    with pytest.raises(AttributeError, match="missing"):
        _ = late.missing


def test_absent_module_cannot_be_imported_inside_and_can_afterwards(write: Write) -> None:
    write("late_sample", "")
    with Absent("late_sample"), pytest.raises(ImportError):
        importlib.import_module("late_sample")
    importlib.import_module("late_sample")


def test_event_loop_works_without_what_it_imports_for_rare_questions() -> None:
    text = """
import sys
from tradewind.late_modules import LATE, import_decoder, import_event_loop
import_decoder()
import_event_loop()
early = [name for name in (*LATE, "typing_extensions") if name in sys.modules]
import asyncio, uvloop
async def answer():
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, lambda: 42)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    assert runner.run(answer()) == 42
assert asyncio.iscoroutinefunction(answer)
import traceback
try:
    1 / 0
except ZeroDivisionError:
    assert "1 / 0" not in traceback.format_exc()  # it has no file
import inspect
assert inspect.iscoroutinefunction(answer) and not early, early
print("good")
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("good\n", "")


def test_module_is_read_from_its_compiled_file(write: Write) -> None:
    source = write("quick.sample", "value = 1")
    written = source.stat()
    compiled(source)
    source.write_text("value = 2")
    os.utime(source, ns=(written.st_atime_ns, written.st_mtime_ns))
    module = importlib.import_module("quick.sample")
    assert isinstance(module.__loader__, QuickLoader)
    assert (module.value, module.__file__) == (1, str(source))
    assert module.__cached__ == importlib.util.cache_from_source(str(source))


@pytest.mark.parametrize("change", ["size", "time", "damage", "cut", "hash", "missing"])
def test_module_is_compiled_if_its_compiled_file_is_not_up_to_date(
    write: Write, change: str
) -> None:
    source = write("quick.sample", "value = 1")
    cache = compiled(source)
    written = source.stat()
    source.write_text("value = 2" + "#" * (change == "size"))
    if change == "time":
        later_ns = written.st_mtime_ns + 5_000_000_000
        os.utime(source, ns=(written.st_atime_ns, later_ns))
    else:
        os.utime(source, ns=(written.st_atime_ns, written.st_mtime_ns))
    if change == "damage":
        cache.write_bytes(b"\0" + cache.read_bytes()[1:])
    elif change == "cut":
        cache.write_bytes(cache.read_bytes()[:12])
    elif change == "hash":
        py_compile.compile(
            str(source), invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
        )
    elif change == "missing":
        cache.unlink()
    module = importlib.import_module("quick.sample")
    assert module.value == 2


def test_moved_package_names_its_own_files_in_tracebacks(write: Write) -> None:
    source = write("before.sample", "def work(): pass")
    times = source.stat()
    cache = compiled(source).read_bytes()
    moved = write("quick.sample", "def work(): pass")
    os.utime(moved, ns=(times.st_atime_ns, times.st_mtime_ns))
    place = Path(importlib.util.cache_from_source(str(moved)))
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(cache)
    module = importlib.import_module("quick.sample")
    assert module.work.__code__.co_filename == str(moved)


def test_packages_in_packages_are_found(write: Write) -> None:
    folder = write("quick.other", "").parent / "inner"
    folder.mkdir()
    (folder / "__init__.py").write_text("value = 3")
    (folder / "leaf.py").write_text("value = 4")
    inner = importlib.import_module("quick.inner")
    leaf = importlib.import_module("quick.inner.leaf")
    assert (inner.value, leaf.value, list(inner.__path__)) == (3, 4, [str(folder)])


def test_compiled_module_goes_before_its_source() -> None:
    import tradewind.server.links as package

    spec = QuickFinder().find_spec("tradewind.server.links.link_core", list(package.__path__))
    assert spec is not None
    assert spec.origin is not None
    assert spec.origin.endswith(".so")


@pytest.mark.parametrize("path", [None, [], ["one", "two"], ["/missing"], (".",)])
def test_everything_else_is_left_to_python(path: list[str] | None) -> None:
    assert QuickFinder().find_spec("quick.missing", path) is None


def test_module_that_is_added_is_found_after_the_caches_are_dropped(write: Write) -> None:
    importlib.import_module("quick")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("quick.added")
    write("quick.added", "value = 5")
    importlib.invalidate_caches()
    assert importlib.import_module("quick.added").value == 5
