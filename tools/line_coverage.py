"""Measure which lines of the product its tests run, Python and compiled ones alike.

    python tools/line_coverage.py [--add] [--missing PACKAGE] [paths and other arguments of pytest]

Copies the project to build/coverage, builds the compiled modules there with line tracing, runs the
tests in that copy and prints a table per package. The build in use is left alone. Without arguments
it runs the unit, model and fault tests that are not marked as slow. That takes long, for loops per
byte are traced per byte: a package at a time is better. Lines of programs that a test kills are not
counted, nor are those of .pxd files.
`--add` adds to what the runs before have found, except in files that have changed since: several
short runs give the result of a long one.
`--missing store` lists the lines of that package that nothing ran, after the last run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "coverage"
RESULT = ROOT / "build" / "coverage.json"
TESTS = ("-m", "not slow", "tests/unit", "tests/model", "tests/faults")
# What is made here and not part of the project.
LEFT_OUT = {"build", "dist", "__pycache__", "spark-warehouse"}
MADE = {".so", ".c", ".pyc"}
SETTINGS = """
[run]
plugins = Cython.Coverage
source_pkgs = tradewind
parallel = true
sigterm = true
patch = subprocess
disable_warnings = no-data-collected,module-not-measured,already-imported
[report]
exclude_also =
    if TYPE_CHECKING:
    \\.\\.\\.$
"""


def say(text: str) -> None:
    """At once, for a run takes long."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def project_files(root: Path) -> set[Path]:
    """The paths of all sources, relative to `root`."""
    found = set()
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name not in LEFT_OUT and not name.startswith(".")]
        here = Path(folder)
        found |= {(here / name).relative_to(root) for name in files if not name.startswith(".")}
    return {path for path in found if path.suffix not in MADE}


def copy_project() -> set[Path]:
    """Bring the copy up to date; files that are the same keep what was made of them.

    Gives what has changed.
    """
    wanted = project_files(ROOT)
    changed = set()
    for path in project_files(TREE) - wanted if TREE.exists() else ():
        (TREE / path).unlink()
        for made in (TREE / path).parent.glob(f"{path.stem}.*"):
            if made.suffix in MADE:
                made.unlink()
    for path in wanted:
        source, target = ROOT / path, TREE / path
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        changed.add(path)
    return changed


def build() -> None:
    """Compile the copy with line tracing, each module beside its source."""
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    result = subprocess.run(  # noqa: S603
        command,
        cwd=TREE,
        env=os.environ | {"TRADEWIND_TRACE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        sys.exit(f"{result.stdout[-2000:]}{result.stderr[-2000:]}the build has failed")


def coverage(*arguments: str) -> int:
    """One command of coverage.py in the copy."""
    command = [sys.executable, "-m", "coverage", *arguments]
    settings = os.environ | {"PYTHONPATH": str(TREE / "src"), "COVERAGE_CORE": "ctrace"}
    return subprocess.run(command, cwd=TREE, env=settings, check=False).returncode  # noqa: S603


def run(arguments: Sequence[str]) -> int:
    """The tests; gives pytest's exit code."""
    (TREE / ".coveragerc").write_text(SETTINGS)
    code = coverage("run", "-m", "pytest", "-p", "no:cacheprovider", "--timeout=1200", *arguments)
    if not combine(TREE) or coverage("json", "--quiet", "-o", str(RESULT)) != 0:
        sys.exit("nothing was measured")
    return code


def erase(folder: Path) -> None:
    """Forget what was found before, and what is left of a run that was stopped."""
    for path in (folder / ".coverage", *folder.glob(".coverage.*")):
        path.unlink(missing_ok=True)


def keep_earlier(folder: Path, changed: set[Path]) -> None:
    """Make what was found before part of the next result, but for files whose lines have moved."""
    earlier = CoverageData(str(folder / ".coverage"))
    earlier.read()
    names = earlier.measured_files() - {str(folder / path) for path in changed}
    lines = {name: earlier.lines(name) or [] for name in names}
    tracers = {name: earlier.file_tracer(name) or "" for name in names}
    erase(folder)
    kept = CoverageData(str(folder / ".coverage.earlier"))
    kept.add_lines(lines)
    kept.add_file_tracers(tracers)
    kept.write()


def combine(folder: Path) -> bool:
    """One file of the data of all programs; false if there is none.

    The command of coverage.py refuses if one of them knew a compiled file by Cython's plugin and
    another did not. The numbers of the lines are the same. Cython's plugin cannot report a .pxd,
    whose lines are compiled into the modules that use them: these are left out.
    """
    lines: dict[str, set[int]] = defaultdict(set)
    tracers: dict[str, str] = {}
    for path in folder.glob(".coverage.*"):
        data = CoverageData(str(path))
        data.read()
        for name in data.measured_files():
            if name.endswith(".pxd"):
                continue
            lines[name].update(data.lines(name) or ())
            if tracer := data.file_tracer(name):
                tracers[name] = tracer
        path.unlink()
    whole = CoverageData(str(folder / ".coverage"))
    whole.add_lines(lines)
    whole.add_file_tracers(tracers)
    whole.write()
    return bool(lines)


def package_of(path: str) -> str:
    """The package of a module: the first folder, or the module itself."""
    parts = Path(path).parts
    parts = parts[parts.index("tradewind") + 1 :]
    return parts[0] if len(parts) > 1 else "(top)"


def table(files: dict[str, dict[str, dict[str, int]]]) -> list[str]:
    """A row per package: Python lines, compiled lines, and how many of each were run."""
    counts: dict[str, dict[bool, list[int]]] = defaultdict(lambda: {True: [0, 0], False: [0, 0]})
    for path, file in files.items():
        kind = path.endswith(".pyx")
        for name in (package_of(path), "all"):
            counts[name][kind][0] += file["summary"]["num_statements"]
            counts[name][kind][1] += file["summary"]["covered_lines"]
    rows = [f"{'package':<12}{'Python':>9}{'run':>8}{'.pyx':>9}{'run':>8}"]
    for name in sorted(counts, key=lambda name: (name == "all", name)):
        row = f"{name:<12}"
        for kind in (False, True):
            lines, covered = counts[name][kind]
            share = f"{100 * covered / lines:.1f}%" if lines else "-"
            row += f"{lines:>9}{share:>8}"
        rows.append(row)
    return rows


def missing(files: dict[str, dict[str, list[int]]], package: str) -> list[str]:
    """The lines of a package that nothing ran."""
    rows = []
    for path, file in sorted(files.items()):
        if package_of(path) == package and file["missing_lines"]:
            text = (TREE / path).read_text().splitlines()
            rows.append(f"{path}: {len(file['missing_lines'])}")
            rows += [f"{number:>6} {text[number - 1]}" for number in file["missing_lines"]]
    return rows


def main() -> int:
    """Copy, build, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--add", action="store_true", help="to what the runs before have found")
    parser.add_argument("--missing", metavar="PACKAGE", help="of the last run, without a new one")
    options, arguments = parser.parse_known_args()
    code = 0
    if options.missing is None:
        say("the project, compiled with line tracing; only what has changed since the last time")
        changed = copy_project()
        build()
        if options.add and (TREE / ".coverage").exists():
            keep_earlier(TREE, changed)
        else:
            erase(TREE)
        say("the tests")
        code = run(arguments or TESTS)
    files = json.loads(RESULT.read_text())["files"]
    rows = missing(files, options.missing) if options.missing else table(files)
    say("\n".join(rows))
    return code


if __name__ == "__main__":
    sys.exit(main())
