"""Creates a Spark session: embedded by default, or on a cluster.

Owns the settings. Workers use the Python of this process, filters are pushed down, the log shows
warnings only, and the user interface listens on the loopback address. All settings can be
overridden; a cluster must have Tradewind installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.spark.errors import SparkSetupError
from tradewind.spark.java import find_java_home

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
    # Whose values Spark must not show: its own patterns, and names of ours. First of settings, and
    # so of variables for executors, then of options.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|seed|jwt|credential|nats_url",
    "spark.sql.redaction.options.regex": "(?i)url|servers|seed|jwt",
}
EMBEDDED: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def get_session(
    master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one; it becomes the active one of the thread that asks.

    `settings` are Spark's own and win over ours.

    SparkSetupError says what to install if Spark or Java is missing.
    """
    for name in ("pyspark", "pyarrow"):
        if find_spec(name) is None:
            raise SparkSetupError(f"{name} is not installed; pip install 'tradewind[spark]'")
    if find_spec("pyspark.sql.datasource") is None:
        version = import_module("pyspark").__version__
        raise SparkSetupError(
            f"Spark {version} does not support data sources in Python (4.0 or later does);"
            " pip install 'tradewind[spark]' installs the tested version"
        )
    sql = import_module("pyspark.sql")
    running: SparkSession | None = sql.SparkSession.getActiveSession()
    if running is None:
        # That of another thread is not active in this one; one that was stopped has no Java.
        made = sql.SparkSession._instantiatedSession
        running = made if made is not None and made.sparkContext._jsc is not None else None
        if running is not None:
            _make_active(running)
    if running is not None:
        return running
    os.environ["JAVA_HOME"] = str(find_java_home())
    # The setting alone is not enough: the first workers are started by the environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", str(WORKER_SECONDS))
    is_embedded = master.startswith("local")
    if is_embedded:
        # Else Spark looks for the address of the machine, and warns that it may be the wrong one.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = DEFAULTS | (EMBEDDED if is_embedded else {}) | dict(settings or {})
    builder = sql.SparkSession.builder.master(master)
    options = f"-Dlog4j2.configurationFile=file:{LOG_SETTINGS}"
    java = chosen.pop("spark.driver.extraJavaOptions", "")
    builder = builder.config("spark.driver.extraJavaOptions", f"{options} {java}".strip())
    for name, value in chosen.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _make_active(session: SparkSession) -> None:
    """Let Spark find formats that are written in Python in this thread.

    It looks for them in the session that is active in the thread that writes, and knows none in a
    thread of the program that has not made a session.
    """
    name = "org.apache.spark.sql.classic.SparkSession"
    getattr(session._jvm, name).setActiveSession(session._jsparkSession)
