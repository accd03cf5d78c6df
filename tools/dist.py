"""Builds the sdist and a wheel per Python, and proves that they work on their own.

    make dist                      # on every Python from 3.11 on that this machine has
    python tools/dist.py --only 3.12 --quick

The sdist is made of what git tracks, or of all there is where there is no git. Each Python makes
its wheel out of the sdist (which compiles), with no other packages than those that the sdist asks
for. auditwheel gives the wheel the tag of the oldest Linux that has every function it calls, such
as manylinux_2_34. The wheel is installed into an empty virtual environment, without a compiler on
the path. There a server is started, a client and the command line store and read messages, and the
server is stopped. What is in the packages, and what is not, is compared with the sources. Prints a
table; the exit code is 1 if anything failed. With `--quick` the compiler does not optimise: the
wheels are for this check only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
OLDEST = (3, 11)
NEWEST = (3, 20)
# What is built from, and what the image of deploy/Dockerfile is made of; with the pages about it.
SDIST_FOLDERS = ("deploy", "docs", "examples", "src")
SDIST_FILES = {
    "CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "constraints.txt", "pyproject.toml",
    "setup.py",
}  # fmt: skip
WRITTEN_BY_SETUPTOOLS = re.compile(r"PKG-INFO|setup\.cfg|src/tradewind\.egg-info(/.*)?")
# Files of a build or a tool, by their path.
MADE = re.compile(
    r"^(build|dist|tools)/|(^|/)\.|(^|/)__pycache__/|\.egg-info/|\.(so|c|pyc)$|(^|/)Dockerfile"
)
GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_")
WORKS = "works"
SMOKE = """\
import shutil, signal, socket, subprocess, sys, tempfile
from pathlib import Path
import tradewind
assert not any(map(shutil.which, ("cc", "gcc", "clang", "c++"))), "a compiler is on the path"
from tradewind.sync import connect
bin = Path(sys.executable).parent
assert Path(tradewind.__file__).is_relative_to(bin.parent), tradewind.__file__
version = subprocess.run([bin / "tradewind-server", "--version"], capture_output=True, text=True)
assert tradewind.__version__ in version.stdout, version
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
with tempfile.TemporaryDirectory() as folder:
    command = [bin / "tradewind-server", "-a", "127.0.0.1", "-p", port, "-js", "-sd", folder]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        said = []
        for line in server.stderr:
            said.append(line)
            if "Server is ready" in line:
                break
        else:
            raise AssertionError("".join(said))
        def cli(*args):
            done = subprocess.run(
                [bin / "tradewind", "--server", f"127.0.0.1:{port}", *args],
                capture_output=True, text=True,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout
        cli("stream", "add", "ORDERS", "--subjects", "orders.>", "--defaults")
        cli("pub", "orders.1", "two apples", "--jetstream")
        assert "two apples" in cli("stream", "get", "ORDERS", "1")
        with connect(f"127.0.0.1:{port}") as connection:
            assert connection.jetstream().publish("orders.2", b"a pear").seq == 2
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=30)
        assert server.returncode in (0, 1), server.returncode
    finally:
        server.kill()
"""


def main() -> int:
    """Build, check, print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="this Python, for example 3.12")
    parser.add_argument("--quick", action="store_true", help="do not optimise: only check")
    arguments = parser.parse_args()
    if arguments.quick:
        os.environ["TRADEWIND_QUICK"] = "1"
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    tracked = sources(ROOT)
    began = time.monotonic()
    sdist = build_sdist(target, tracked)
    outcomes = [sdist_problem(sdist_names(sdist), tracked)]
    say("", sdist, outcomes[-1], began)
    for version, python in pythons():
        if arguments.only in (None, version):
            began = time.monotonic()
            wheel, outcome = check(python, sdist, target, tracked)
            outcomes.append(outcome)
            say(version, wheel, outcome, began)
    if len(outcomes) == 1:
        print(f"no Python {arguments.only or 'from 3.11 on'} was found")  # noqa: T201
    return int(len(outcomes) == 1 or any(not outcome.startswith(WORKS) for outcome in outcomes))


def say(version: str, package: Path, outcome: str, began: float) -> None:
    """One row of the table."""
    seconds = f"{time.monotonic() - began:.0f} s"
    size = f"{package.stat().st_size / 1e6:.1f} MB" if package.is_file() else ""
    row = f"{version:6} {package.name:63} {size:>8} {seconds:>7}  {outcome}"
    print(row, flush=True)  # noqa: T201


# ------------------------------------------------------------------ what is made


def sources(root: Path) -> set[str]:
    """What git tracks; without git, all files but those that a build or a tool leaves."""
    if (root / ".git").exists():
        return set(filter(None, run(["git", "ls-files", "-z"], root).split("\0")))
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {path.as_posix() for path in found if not MADE.search(path.as_posix())}


def build_sdist(target: Path, tracked: Iterable[str], root: Path = ROOT) -> Path:
    """From a copy of the sources: a build leaves nothing in them."""
    with tempfile.TemporaryDirectory() as folder:
        for name in tracked:
            if (root / name).is_file():
                copy = Path(folder, name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy)
        code = f"from setuptools import build_meta as b; b.build_sdist({str(target)!r})"
        run([sys.executable, "-c", code], folder)
    return next(target.glob("*.tar.gz"))


def pythons() -> list[tuple[str, str]]:
    """The newest of each version that can be found, oldest version first."""
    found = []
    for minor in range(OLDEST[1], NEWEST[1]):
        name = f"python{OLDEST[0]}.{minor}"
        installed = sorted(
            Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}"),
            key=lambda path: [int(number) for number in re.findall(r"\d+", path.parts[-3])],
        )
        # The images in which wheels for many systems are made.
        installed = installed or list(Path("/opt/python").glob(f"cp3{minor}-cp3{minor}/bin/{name}"))
        path = str(installed[-1]) if installed else shutil.which(name)
        if path is not None:
            found.append((f"{OLDEST[0]}.{minor}", path))
    return found


def check(python: str, sdist: Path, target: Path, tracked: set[str]) -> tuple[Path, str]:
    """The wheel that a Python makes of the sdist, and "works", or what did not."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            own = environment(python, Path(folder, "build"))
            made = Path(folder, "made")
            run([*pip(own), "wheel", "--no-deps", "--wheel-dir", str(made), str(sdist)], folder)
            wheel = labelled(next(made.glob("*.whl")), Path(folder, "labelled"))
            wheel = Path(shutil.move(wheel, target / wheel.name))
            own = environment(python, Path(folder, "empty"))
            without_compiler = {"PATH": str(own.parent)}
            run([*pip(own), "install", "--only-binary=:all:", str(wheel)], folder, without_compiler)
            run([str(own), "-c", SMOKE], folder, without_compiler)
        except subprocess.CalledProcessError as error:
            lines = (error.stderr or error.stdout or "").strip().splitlines()
            return sdist, f"failed: {lines[-1] if lines else error}"
    with zipfile.ZipFile(wheel) as content:
        problem = wheel_problem(set(content.namelist()), tracked)
    return wheel, f"{problem}, {system_of(wheel.name)}" if problem == WORKS else problem


def environment(python: str, folder: Path) -> Path:
    """The Python of a new, empty virtual environment."""
    run([python, "-m", "venv", str(folder)], folder.parent)
    return folder / "bin" / "python"


def pip(python: Path) -> list[str]:
    """The start of a command of pip."""
    return [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]


def labelled(wheel: Path, folder: Path) -> Path:
    """The wheel with the oldest platform tag that auditwheel finds right; an index needs one."""
    tools = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)]
    run(command, folder.parent, tools)
    return next(folder.glob("*.whl"))


def system_of(name: str) -> str:
    """Which Linux a wheel is for, by the oldest tag in its name."""
    versions = [(int(major), int(minor)) for major, minor in GLIBC.findall(name)]
    if not versions:
        return "for this Linux only"
    return "for glibc {}.{} and newer".format(*min(versions))


# ------------------------------------------------------------------ what is in it


def sdist_names(sdist: Path) -> set[str]:
    """Its files, without the folder that they are in."""
    with tarfile.open(sdist) as content:
        return {each.name.partition("/")[2] for each in content if each.isfile()}


def sdist_problem(names: set[str], tracked: set[str]) -> str:
    """Whether it has every source and nothing that git does not track."""
    wanted = {name for name in tracked if name.partition("/")[0] in SDIST_FOLDERS} | SDIST_FILES
    return difference({n for n in names if not WRITTEN_BY_SETUPTOOLS.fullmatch(n)}, wanted)


def wheel_problem(names: set[str], tracked: set[str]) -> str:
    """Whether it has all that runs and all that types it: no Cython, but what became of it."""
    sources = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    wanted = {name for name in sources if not name.endswith((".pyx", ".pxd"))}
    compiled = {name.removesuffix(".pyx") for name in sources if name.endswith(".pyx")} | {
        stem for name in sources if (stem := name.removesuffix(".pxd")) + ".py" in sources
    }
    # auditwheel adds an entry for each folder.
    found = {name for name in names if ".dist-info/" not in name and not name.endswith("/")}
    modules = {name for name in found if name.endswith(".so")}
    by_stem = {re.sub(r"\.[^/]*\.so$", "", name): name for name in modules}
    wanted |= {by_stem.get(stem, stem + ".*.so") for stem in compiled}
    return difference(found, wanted)


def difference(found: set[str], wanted: set[str]) -> str:
    """ "works", or the first names that are missing or too many."""
    if found == wanted:
        return WORKS
    missing, more = sorted(wanted - found), sorted(found - wanted)
    return f"lacks {len(missing)} files {missing[:3]}, has {len(more)} too many {more[:3]}"


def run(command: list[str], folder: Path | str, settings: Mapping[str, str] | None = None) -> str:
    """What a command prints; CalledProcessError if it fails."""
    inherited = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    return subprocess.run(  # noqa: S603
        command,
        cwd=folder,
        env=inherited | dict(settings or {}),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
