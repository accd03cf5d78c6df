"""Creates a Spark session: embedded by default, or on a cluster.

Owns the settings. Workers use the Python of this process, filters are pushed down, the log shows
warnings only, and the user interface listens on the loopback address. All settings can be
overridden; a cluster must have Tradewind installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.extra_packages import install_command
from tradewind.spark.errors import SparkSetupError
from tradewind.spark.processes.java import find_java_home
from tradewind.spark.processes.local_master import LOCAL_MASTER
from tradewind.spark.processes.python_launcher import launcher_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
WORKER_SECONDS: Final = 120
DEFAULTS: Final = {
    "spark.app.name": "tradewind",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # How long a Python process may take to come up: 15 s are not enough on a busy machine.
    "spark.python.authenticate.socketTimeout": f"{WORKER_SECONDS}s",
    # One server's streams need no 200 shuffle partitions.
    "spark.sql.shuffle.partitions": "8",
    # Names whose values Spark must not show: its own patterns and names of Tradewind. The first
    # pattern is for settings, and so for variables of executors, the second one for options.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|seed|jwt|credential|nats_url",
    "spark.sql.redaction.options.regex": "(?i)url|servers|seed|jwt",
}
# Which Python Spark starts: the first one names that of tasks, the second one that of the driver.
PYTHON_VARIABLES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
# A query that is stopped inside foreachBatch has Spark match the text of the error with a regular
# expression that takes 100 B of the stack for each character. If the stack is too small, the thread
# ends with a stack trace of a thousand lines, on the terminal if there is no log file.
JAVA_OPTIONS: Final = "-Xss16m -XX:MaxJavaStackTraceDepth=200"
EMBEDDED: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def get_session(
    master: str = LOCAL_MASTER, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one; it becomes the active one of the thread that asks.

    `settings` are Spark's own and win over ours.

    SparkSetupError says what to install if Spark or Java is missing.
    """
    for name in ("pyspark", "pyarrow"):
        if find_spec(name) is None:
            raise SparkSetupError(f"{name} is not installed: {install_command('spark')}")
    if find_spec("pyspark.sql.datasource") is None:
        version = import_module("pyspark").__version__
        raise SparkSetupError(
            f"Spark {version} does not support data sources in Python (4.0 or later does);"
            f" the tested version is installed by: {install_command('spark')}"
        )
    sql = import_module("pyspark.sql")
    running: SparkSession | None = sql.SparkSession.getActiveSession()
    if running is None:
        # A session of another thread is not active in this one; one that was stopped has no Java.
        made = sql.SparkSession._instantiatedSession
        running = made if made is not None and made.sparkContext._jsc is not None else None
        if running is not None:
            _make_active(running)
    if running is not None:
        return running
    os.environ["JAVA_HOME"] = str(find_java_home())
    # The setting alone is not enough: the first workers are started by the environment.
    for name in PYTHON_VARIABLES:
        os.environ.setdefault(name, sys.executable)
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", str(WORKER_SECONDS))
    is_embedded = master.startswith("local")
    if is_embedded:
        # Else Spark looks for the address of the machine, and warns that it may be the wrong one.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = DEFAULTS | (EMBEDDED if is_embedded else {}) | dict(settings or {})
    builder = sql.SparkSession.builder.master(master)
    options = f"-Dlog4j2.configurationFile=file:{LOG_SETTINGS} {JAVA_OPTIONS}"
    java = chosen.pop("spark.driver.extraJavaOptions", "")
    builder = builder.config("spark.driver.extraJavaOptions", f"{options} {java}".strip())
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with _quick_python() if is_embedded else nullcontext():
        session: SparkSession = builder.getOrCreate()
    return session


@contextmanager
def _quick_python() -> Iterator[None]:
    """Have the Java that starts meanwhile start its Python processes quickly, on this machine only.

    Programs that this process starts later must not inherit it: it ends with this process.
    """
    is_default = all(os.environ[name] == sys.executable for name in PYTHON_VARIABLES)
    program = launcher_program() if is_default else ""
    if program:
        os.environ.update(dict.fromkeys(PYTHON_VARIABLES, program))
    try:
        yield
    finally:
        if program:
            os.environ.update(dict.fromkeys(PYTHON_VARIABLES, sys.executable))


def _make_active(session: SparkSession) -> None:
    """Let Spark find formats that are written in Python in this thread.

    Spark looks for them in the session that is active in the thread that writes, and knows none in
    a thread of the program that has not made a session.
    """
    name = "org.apache.spark.sql.classic.SparkSession"
    getattr(session._jvm, name).setActiveSession(session._jsparkSession)
