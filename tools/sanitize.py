"""Run the tests of the compiled code under AddressSanitizer, UBSan and a search for leaks.

    python tools/sanitize.py [pieces, or paths and other arguments of pytest]

Builds the extensions with the sanitizers into build/sanitize, away from those in use, proves on a
module with known faults that a report would be seen, then runs the tests with the sanitizers'
run-time library loaded into Python: all pieces, one per processor at a time, those that are named
(`store`, `client` and so on, see PIECES), or what pytest is told. A piece is a process of its own,
so that a report ends no more than that piece; a table at the end says what became of each. Exits
with 0 only when there was no report. Memory that Python itself leaks is not reported; what our own
code allocates and loses is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "sanitize"
# Those that take longest come first.
PIECES = {
    "faults": ("tests/faults",),
    "store": ("tests/unit/store",),
    "model": ("tests/model",),
    "server": ("tests/unit/server",),
    "jetstream": ("tests/unit/jetstream",),
    "spark": ("tests/spark_source",),
    "stream": ("tests/unit/stream", "tests/unit/consumer"),
    "client": ("tests/unit/client",),
    "wire": ("tests/unit/wire", "tests/unit/route", "tests/unit/broker"),
}
BUILDING = re.compile(r"building '([^']+)' extension")
FAULT = re.compile(r"ERROR: AddressSanitizer|runtime error:")
LEAK = re.compile(r"^(?:Direct|Indirect) leak of .*?(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
FAULTY_MODULE = """
from libc.stdlib cimport calloc, free, malloc

def read_behind_the_end(size_t size):
    cdef char* block = <char*>calloc(size, 1)
    cdef char byte = block[size]
    free(block)
    return byte

def shift_too_far(int amount):
    cdef int value = 1
    return value << amount

def lose_a_block(size_t size):
    cdef char* block = <char*>malloc(size)
    block[0] = 1
    return block[0]
"""


def say(text: str) -> None:
    """At once, for a run takes long."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def build(project: Path, target: Path) -> None:
    """Compile everything under `project`/src with this project's own build script and flags."""
    command = [sys.executable, "-u", str(ROOT / "setup.py"), "build_ext"]
    command += [f"-j{os.cpu_count() or 1}", f"--build-lib={target}", f"--build-temp={target}-temp"]
    flags = os.environ | {"TRADEWIND_SANITIZE": "1"}
    modules, lines = 0, []
    with subprocess.Popen(  # noqa: S603
        command, cwd=project, env=flags, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if found := BUILDING.match(line):
                modules += 1
                say(f"building {modules}: {found[1]}")
    if process.returncode != 0:
        sys.exit("".join(lines[-50:]) + "the build has failed")


def compiled_sources() -> list[Path]:
    """What setup.py compiles: every .pyx, and every .py whose types are in a .pxd beside it."""
    sources = ROOT / "src"
    typed = (path.with_suffix(".py") for path in sources.rglob("*.pxd"))
    return sorted([*sources.rglob("*.pyx"), *(path for path in typed if path.exists())])


def library_of(source: Path) -> Path:
    """Where the sanitized form of a compiled module is."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return BUILD / source.relative_to(ROOT / "src").parent / f"{source.stem}{suffix}"


def copy_sources() -> None:
    """The Python modules beside the compiled ones; what was deleted must not linger."""
    wanted = {library_of(path) for path in compiled_sources()}
    for path in BUILD.rglob("*.py"):
        path.unlink()
    for path in BUILD.rglob("*.so"):
        if path not in wanted:
            path.unlink()
    for path in (ROOT / "src").rglob("*.py"):
        target = BUILD / path.relative_to(ROOT / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def check_instrumented() -> None:
    """Every compiled module must be there, in its sanitized form."""
    for path in compiled_sources():
        library = library_of(path)
        if not library.exists() or b"__asan_" not in library.read_bytes():
            sys.exit(f"{library} was not built with the sanitizers")


def runtime(name: str) -> str:
    """Where the compiler keeps a sanitizer's run-time library."""
    command = ["gcc", f"-print-file-name={name}.so"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    found = answer.stdout.strip()
    if not Path(found).is_absolute():
        sys.exit(f"{name}.so is not installed: it comes with gcc")
    return found


def environment(path: Path, reports: Path) -> dict[str, str]:
    """What makes Python run with the sanitizers; they write to files `reports`.<pid>, except that
    UBSan knows stderr only.
    """
    return os.environ | {
        "LD_PRELOAD": f"{runtime('libasan')} {runtime('libubsan')}",
        # Python's own allocator would hide the ends of the blocks.
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # Leaks do not change the exit code, since only our own count (see `own_leaks`); a fault
        # aborts, so that it changes it in any case.
        "ASAN_OPTIONS": "detect_leaks=1:exitcode=0:abort_on_error=1:halt_on_error=1:"
        "detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1:"
        f"log_path={reports}",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:abort_on_error=1",
        "LSAN_OPTIONS": f"exitcode=0:log_path={reports}",
    }


def read_reports(reports: Path) -> str:
    """All that the sanitizers have said."""
    files = sorted(reports.parent.glob(f"{reports.name}.*"))
    return "\n\n".join(path.read_text(errors="replace") for path in files)


def own_leaks(text: str, libraries: Path) -> list[str]:
    """The leaks whose memory was allocated by a compiled module of ours, not by Python."""
    found = []
    for leak in LEAK.findall(text):
        frames = re.findall(r"^\s*#\d+ .*", leak, re.MULTILINE)
        # Frame 0 is malloc itself, frame 1 is who called it.
        if len(frames) > 1 and is_ours(frames[1], libraries):
            found.append(leak.strip())
    return found


def is_ours(frame: str, libraries: Path) -> bool:
    """Whether a stack frame is in our code: by library, or by source where that is known."""
    return str(libraries) in frame or "cython-sanitize" in frame


def check_sanitizers_see_faults() -> None:
    """Without this, a clean run could as well mean that nothing was looked at."""
    with tempfile.TemporaryDirectory() as folder:
        project, target = Path(folder), Path(folder) / "lib"
        (project / "src").mkdir()
        (project / "src" / "faulty.pyx").write_text(FAULTY_MODULE)
        build(project, target)
        for call, sign in (
            ("read_behind_the_end(10)", "heap-buffer-overflow"),
            ("shift_too_far(40)", "shift exponent 40 is too large"),
            ("lose_a_block(123)", "leak of 123 byte"),
        ):
            reports = project / call[:4]
            result = subprocess.run(  # noqa: S603
                [sys.executable, "-c", f"import faulty; faulty.{call}"],
                env=environment(target, reports),
                capture_output=True,
                text=True,
                check=False,
            )
            text = result.stderr + read_reports(reports)
            if "leak" not in sign and result.returncode == 0:
                sys.exit(f"the sanitizers did not stop at {call}")
            seen = "".join(own_leaks(text, target)) if "leak" in sign else text
            if sign not in seen:
                sys.exit(f"the sanitizers did not see {sign!r}:\n{text}")


@dataclass(slots=True)
class Outcome:
    """What became of one piece."""

    name: str
    seconds: float
    exit_code: int  # of pytest; negative if a report has aborted it
    tests: int  # that were run to their end
    failed: int
    reports: int  # of AddressSanitizer and UBSan
    leaks: int  # of our own

    @property
    def is_clean(self) -> bool:
        """Whether nothing at all was found, by tests or sanitizers."""
        return self.exit_code == 0 and not self.reports and not self.leaks

    def row(self) -> str:
        """One line of the table."""
        return (
            f"{self.name:<12}{self.tests:>8}{self.failed:>8}{self.reports:>9}{self.leaks:>7}"
            f"{self.seconds:>9.0f}  {'clean' if self.is_clean else 'NOT CLEAN'}"
        )


def counted(results: Path) -> tuple[int, int]:
    """Tests that were run and those of them that failed; an aborted run leaves nothing behind."""
    if not results.exists():
        return 0, 0
    suites = list(ElementTree.parse(results).getroot().iter("testsuite"))  # noqa: S314
    total = {
        name: sum(int(suite.get(name, "0")) for suite in suites)
        for name in ("tests", "skipped", "failures", "errors")
    }
    return total["tests"] - total["skipped"], total["failures"] + total["errors"]


def run_piece(name: str, arguments: Sequence[str]) -> Outcome:
    """The tests of one piece under the sanitizers, with a line per test while they run."""
    say(f"--- {name}: {' '.join(arguments)}")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--timeout=600"]
    # With the default capture, a report on stderr would be lost with the aborted process.
    command += ["--capture=sys", "-o", "console_output_style=count"]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        reports, results = Path(folder) / "report", Path(folder) / "results.xml"
        command += [f"--junitxml={results}", *arguments]
        said: list[str] = []
        with subprocess.Popen(  # noqa: S603
            command,
            cwd=ROOT,
            env=environment(BUILD, reports),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                say(f"{name:<12}{line.rstrip()}")
        text = read_reports(reports)
        tests, failed = counted(results)
    lost = own_leaks(text, BUILD)
    faults = len(FAULT.findall(text)) + len(FAULT.findall("".join(said)))
    say(text if FAULT.search(text) else "\n\n".join(lost))
    return Outcome(
        name, time.monotonic() - began, process.returncode, tests, failed, faults, len(lost)
    )


def chosen(arguments: Sequence[str]) -> dict[str, Sequence[str]]:
    """The pieces that the arguments name, or one of all the paths in them."""
    if not arguments:
        return dict(PIECES)
    if all(argument in PIECES for argument in arguments):
        return {name: PIECES[name] for name in arguments}
    return {"given": arguments}


def run_tests(arguments: Sequence[str]) -> int:
    """The tests under the sanitizers; gives the exit code."""
    pieces = chosen(arguments)
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        outcomes = list(threads.map(run_piece, pieces, pieces.values()))
    say(f"\n{'piece':<12}{'tests':>8}{'failed':>8}{'reports':>9}{'leaks':>7}{'seconds':>9}")
    say("\n".join(outcome.row() for outcome in outcomes))
    return 0 if all(outcome.is_clean for outcome in outcomes) else 1


def main() -> int:
    """Build, prove, run."""
    say("whether the sanitizers see faults")
    check_sanitizers_see_faults()
    say("the compiled modules; only those that have changed since the last time")
    build(ROOT, BUILD)
    copy_sources()
    check_instrumented()
    say("the tests")
    return run_tests(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
