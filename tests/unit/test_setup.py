"""setup.py: when it compiles, and what it shows of that."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Compares signed with unsigned, which the C compiler warns of.
SOURCE = """
cdef extern from *:
    \"\"\"
    static int is_below(int left, unsigned long right) { int unused; return left < right; }
    \"\"\"
    int is_below(int left, unsigned long right)

def below(int left, unsigned long right) -> bool:
    return is_below(left, right) != 0
"""
METADATA = (
    '[project]\nname = "small"\nversion = "1"\n[tool.setuptools]\npackage-dir = { "" = "src" }\n'
)
HOOKS = """
from setuptools import build_meta
print(build_meta.get_requires_for_build_wheel(), build_meta.get_requires_for_build_sdist())
build_meta.prepare_metadata_for_build_wheel(".")
build_meta.build_sdist("dist")
"""

SYNC_SOURCES = (
    "__init__.py",
    "system_calls.pxd",
    "store/__init__.py",
    "store/files/__init__.py",
    "store/files/file_sync.pyx",
    "store/files/file_sync.pxd",
)
CALLS = """
from libc.errno cimport ENOSYS, errno
from tradewind.system_calls cimport open_event, open_timer, set_timer

def said(int result, str good):
    return "ENOSYS" if result < 0 and errno == ENOSYS else good if result >= 0 else "failed"

def answers():
    cdef int timer
    yield said(open_event(), "opened")
    timer = open_timer()
    yield said(timer, "opened")
    yield said(set_timer(timer, 1), "set")
"""
USE_CALLS = """
import os, sys, types
# Of the package only what was compiled.
sys.modules["tradewind"] = package = types.ModuleType("tradewind")
package.__path__ = ["tradewind"]
from tradewind.store.files.file_sync import sync_descriptor
from tradewind.calls import answers
sync_descriptor(os.open("file", os.O_RDWR | os.O_CREAT), "file")
try:
    sync_descriptor(os.open("file", os.O_RDWR), "nothing")
except FileNotFoundError:
    print("synced", *answers())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the build script of this one and two modules: Cython, and typed Python."""
    package = tmp_path / "src" / "small"
    package.mkdir(parents=True)
    shutil.copyfile(ROOT / "setup.py", tmp_path / "setup.py")
    (tmp_path / "pyproject.toml").write_text(METADATA)
    (package / "__init__.py").touch()
    (package / "fast.pyx").write_text(SOURCE)
    (package / "typed.py").write_text("def twice(number):\n    return 2 * number\n")
    (package / "typed.pxd").write_text("cpdef long twice(long number)\n")
    return tmp_path


def run(project: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Python in the project, without optimisation of what it compiles."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=os.environ | {"TRADEWIND_QUICK": "1"} | settings,
        capture_output=True,
        text=True,
        check=False,
    )


def build(project: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """The command of `make build`."""
    return run(project, "setup.py", "--quiet", "build_ext", "--inplace", **settings)


def test_metadata_and_source_packages_translate_nothing(project: Path) -> None:
    done = run(project, "-c", HOOKS)
    assert done.returncode == 0, done.stderr
    assert "[] []" in done.stdout
    assert not (project / "build").exists()
    assert [path.name for path in project.glob("dist/*")] == ["small-1.tar.gz"]


def test_a_build_shows_each_module_once_and_no_warnings_of_the_compiler(project: Path) -> None:
    done = build(project)
    assert done.stderr == ""
    steps = [line.split() for line in done.stdout.splitlines()]
    assert [" ".join(words[:5]) for words in steps] == [
        "translating module 1 of 1:",
        "translating module 1 of 1:",
        "compiling module 1 of 2:",
        "compiling module 2 of 2:",
    ]
    names = [words[5] for words in steps]
    assert sorted(names[:2]) == sorted(names[2:]) == ["small.fast", "small.typed"]
    code = (
        "from small import fast, typed; print(fast.below(1, 2), fast.below(2, 1), typed.__file__)"
    )
    used = run(project / "src", "-c", code)
    assert used.stdout.startswith("True False"), used
    assert used.stdout.endswith(".so\n"), used


def test_a_terminal_shows_a_counter(project: Path) -> None:
    leader, follower = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
            cwd=project,
            env=os.environ | {"TRADEWIND_QUICK": "1"},
            stdout=follower,
            stderr=follower,
            check=True,
        )
        lines = os.read(leader, 65536).decode().splitlines()
    finally:
        os.close(leader)
        os.close(follower)
    assert "\x1b[Kcompiling module 1 of 2: small." in lines[-2]
    assert "\x1b[Kcompiling module 2 of 2: small." in lines[-1]


def test_a_second_build_compiles_only_what_has_changed(project: Path) -> None:
    assert build(project).returncode == 0
    again = build(project)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    source = project / "src" / "small" / "typed.py"
    source.write_text(source.read_text() + "# More.\n")
    newest = max(path.stat().st_mtime for path in project.rglob("*") if path.is_file())
    os.utime(source, (newest + 2, newest + 2))
    assert build(project).stdout.splitlines() == [
        "translating module 1 of 1: small.typed",
        "compiling module 1 of 1: small.typed",
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("cdef int x = []\n", "fast.pyx:"),
        ('cdef extern from *:\n    """\n#error no\n    """', "#error no"),
    ],
    ids=["Cython", "C"],
)
def test_errors_of_both_compilers_are_shown(project: Path, wrong: str, said: str) -> None:
    (project / "src" / "small" / "fast.pyx").write_text(wrong)
    done = build(project)
    assert done.returncode == 1
    assert said in done.stdout + done.stderr


def test_sanitized_and_traced_modules_differ(project: Path) -> None:
    assert build(project, TRADEWIND_SANITIZE="1").returncode == 0
    libraries = list((project / "src").rglob("*.so"))
    assert len(libraries) == 2
    assert all(b"__asan_" in path.read_bytes() for path in libraries)
    assert not (project / "src" / "small" / "fast.c").exists()
    assert build(project, TRADEWIND_TRACE="1").returncode == 0
    assert "CYTHON_TRACE" in (project / "src" / "small" / "fast.c").read_text()


@pytest.mark.parametrize("is_portable", [False, True])
def test_system_calls_compile_and_answer_also_without_those_of_linux(
    project: Path, is_portable: bool
) -> None:
    package = project / "src" / "tradewind"
    for name in SYNC_SOURCES:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "src" / "tradewind" / name, package / name)
    (package / "calls.pyx").write_text(CALLS)
    done = build(project, TRADEWIND_PORTABLE=str(int(is_portable)))
    assert done.returncode == 0, done.stdout + done.stderr
    used = run(project / "src", "-c", USE_CALLS, PYTHONPATH=str(project / "src"))
    assert used.returncode == 0, used.stderr
    answers = used.stdout.split()
    assert answers == ["synced", *(["ENOSYS"] * 3 if is_portable else ["opened", "opened", "set"])]


def test_modules_that_are_in_place_are_not_made(project: Path) -> None:
    done = build(project, TRADEWIND_COMPILED="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(project.rglob("*.so"))
