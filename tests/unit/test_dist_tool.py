"""tools/dist.py: what belongs into a package, and what does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import dist as tool

TRACKED = {
    "pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md",
    "constraints.txt", "docs/TOUR.md", "deploy/Dockerfile", "examples/a.py", "tests/test_a.py",
    "src/tradewind/__init__.py", "src/tradewind/py.typed", "src/tradewind/fast.pyx",
    "src/tradewind/fast.pxd", "src/tradewind/fast.pyi", "src/tradewind/typed.py",
    "src/tradewind/typed.pxd", "src/tradewind/look/page.css",
}  # fmt: skip
SDIST = {name for name in TRACKED if not name.startswith("tests/")} | {
    "PKG-INFO", "setup.cfg", "src/tradewind.egg-info/SOURCES.txt",
}  # fmt: skip
SO = "cpython-311-x86_64-linux-gnu.so"
WHEEL = {
    "tradewind/__init__.py", "tradewind/py.typed", "tradewind/fast.pyi", "tradewind/typed.py",
    f"tradewind/fast.{SO}", f"tradewind/typed.{SO}", "tradewind/look/page.css",
    "tradewind-1.dist-info/METADATA",
}  # fmt: skip


def test_whole_packages_are_right() -> None:
    assert tool.sdist_problem(SDIST, TRACKED) == tool.WORKS
    assert tool.wheel_problem(WHEEL, TRACKED) == tool.WORKS
    assert tool.wheel_problem(WHEEL | {"tradewind/", "tradewind/look/"}, TRACKED) == tool.WORKS


@pytest.mark.parametrize("name", sorted(SDIST & TRACKED))
def test_every_source_is_missed(name: str) -> None:
    assert name in tool.sdist_problem(SDIST - {name}, TRACKED)


@pytest.mark.parametrize("name", ["tests/test_a.py", f"src/tradewind/fast.{SO}", "build/fast.c"])
def test_what_git_does_not_have_or_nobody_needs_is_noticed(name: str) -> None:
    assert name in tool.sdist_problem(SDIST | {name}, TRACKED)


@pytest.mark.parametrize("name", sorted(name for name in WHEEL if "dist-info" not in name))
def test_every_part_of_a_wheel_is_missed(name: str) -> None:
    assert name.partition(".")[0] in tool.wheel_problem(WHEEL - {name}, TRACKED)


@pytest.mark.parametrize("name", ["tradewind/fast.pyx", "tradewind/fast.c", "tests/test_a.py"])
def test_a_wheel_has_no_sources_of_compiled_modules_and_no_tests(name: str) -> None:
    assert name in tool.wheel_problem(WHEEL | {name}, TRACKED)


def test_the_newest_of_each_python_is_used() -> None:
    found = tool.pythons()
    versions = [tuple(map(int, version.split("."))) for version, _ in found]
    assert versions == sorted(set(versions))
    assert all(version >= tool.OLDEST for version in versions)


def test_without_git_the_sources_are_all_that_no_tool_has_made(tmp_path: Path) -> None:
    wanted = {"setup.py", "docs/a.md", "src/tradewind/fast.pyx"}
    made = {
        "build/fast.c",
        "dist/a.whl",
        "src/tradewind/fast.so",
        "src/tradewind/fast.c",
        ".venv/a",
    }
    made |= {"src/tradewind.egg-info/PKG-INFO", "src/tradewind/__pycache__/a.pyc"}
    for name in wanted | made:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert tool.sources(tmp_path) == wanted


@pytest.mark.parametrize(
    ("tags", "system"),
    [
        ("manylinux_2_34_x86_64", "for glibc 2.34 and newer"),
        ("manylinux2014_aarch64.manylinux_2_17_aarch64", "for glibc 2.17 and newer"),
        ("manylinux_2_5_x86_64.manylinux_2_17_x86_64", "for glibc 2.5 and newer"),
        ("linux_x86_64", "for this Linux only"),
    ],
)
def test_the_tag_says_which_linux_a_wheel_is_for(tags: str, system: str) -> None:
    assert tool.system_of(f"tradewind-0.1.0-cp313-cp313-{tags}.whl") == system


def test_the_recipe_names_no_processor() -> None:
    root = Path(tool.__file__).parents[1]
    for name in ("tools/dist.py", "Makefile", "setup.py", "deploy/Dockerfile"):
        assert not re.search("x86_64|x86-64|amd64", (root / name).read_text()), name
