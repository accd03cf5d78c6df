"""How many random cases the hypothesis tests run: few and always the same, or many and new ones.

That compiled code looks at its invariants, here and in every server that a test starts. Which tests
go to which process. How Spark starts Java. And what is printed at the end: what kills have done, if
TRADEWIND_SINK_KILLS says how many to do.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

import kill_table

# Of a value in the name of a test.
NAME_LENGTH_MAX = 100

# Before anything compiled is loaded: it is looked at once. TRADEWIND_INVARIANTS=0 switches it off.
os.environ.setdefault("TRADEWIND_INVARIANTS", "1")

# A shell that runs this in the background has it ignore the interrupts of a keyboard, and so would
# every process that a test starts, of which some are to be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Of every Java that Spark starts, here and in programs that tests start. None runs for so long that
# it earns what its second compiler and a collector with threads of its own cost: half of its time.
# The room for code stays that for two compilers: all tests on one Java need more than that for one.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(name, JAVA_OPTIONS)


def spark_home(installed: Path) -> Path:
    """The home of this Spark without the archive of its Python part.

    Each Python that Spark starts would look for PySpark in that archive first, and compile it anew,
    which takes most of a second. Here it finds the same files where they are installed.
    """
    home = Path(__file__).parent.parent / "build" / f"spark-home-{crc32(bytes(installed)):08x}"
    home.mkdir(parents=True, exist_ok=True)
    for part in ("bin", "jars", "sbin"):
        with suppress(FileExistsError):
            (home / part).symlink_to(installed / part)
    return home


if "SPARK_HOME" not in os.environ and (pyspark := find_spec("pyspark")) and pyspark.origin:
    os.environ["SPARK_HOME"] = str(spark_home(Path(pyspark.origin).parent))

# The same cases in every run, so that a red build means a change and not bad luck.
settings.register_profile(
    "default",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    # How long it takes to make a case says how busy the machine is.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=6000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("thorough" if os.environ.get("TRADEWIND_THOROUGH") == "1" else "default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--official",
        choices=("all", "changed", "record"),
        default="all",
        help="which conformance tests ask the official server: all, those of modules that changed "
        "since they passed, or all, and record those that pass (default: all)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if (mode := config.getoption("--official")) != "all":
        from official_records import OfficialRecords

        config.pluginmanager.register(OfficialRecords(config, mode))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Do not name a test by long values: they are unreadable, and all workers must agree on
    them.
    """
    if isinstance(val, bytes | str) and len(val) > NAME_LENGTH_MAX:
        return argname
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Choose the scheduler for `--dist loadgroup`."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from scheduling import NeighbourScheduling

    return NeighbourScheduling(config, log)


def pytest_collection_finish() -> None:
    """All tests stay to the end, a gigabyte of objects: the collector need not look at them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Wait for streams of an earlier test that a server is still removing."""
    if "harness" in sys.modules:
        for server in list(sys.modules["harness"].ServerProcess.started):
            server.wait_until_removed()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of `make crash-spark`."""
    if "TRADEWIND_SINK_KILLS" in os.environ:
        for line in kill_table.lines():
            terminalreporter.write_line(line)
