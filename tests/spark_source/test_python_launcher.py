"""Python processes of Spark that a warm parent forks, and what happens if it cannot.

No Java is needed for this: the tests start what Java would start.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tradewind.spark.processes import python_launcher, spark_session
from tradewind.spark.processes.java import short_session_options
from tradewind.spark.processes.launcher_parent import (
    exit_code,
    parse_request,
    refusal,
    search_path,
    touch_folder,
)
from tradewind.spark.processes.python_launcher import (
    PythonLauncher,
    launcher_program,
    spark_archives,
)

WAIT_SECONDS = 60.0
DAEMON = ("-m", "pyspark.daemon", "pyspark.worker")
# With which the daemon of Spark ends, however it does.
DAEMON_CODE = 1
OWNER = """\
import sys, time
from pathlib import Path
from tradewind.spark.processes.python_launcher import PythonLauncher
launcher = PythonLauncher(Path(sys.argv[1]), sys.executable)
launcher.ensure_parent()
print(launcher._parent.pid, flush=True)
sys.stdin.read()
"""


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def is_ignoring(pid: int, number: int) -> bool:
    mask = Path(f"/proc/{pid}/status").read_text().partition("SigIgn:")[2].split()[0]
    return bool(int(mask, 16) >> (number - 1) & 1)


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


class Started:
    """A process as Java starts it: with pipes."""

    def __init__(self, launcher: PythonLauncher, *arguments: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [str(launcher.script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "YES", **variables},
        )

    def read(self, size: int) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read(size)

    def end(self) -> int:
        """Close the pipe, as Java does; the exit code."""
        self.process.communicate(timeout=WAIT_SECONDS)
        return self.process.returncode


@pytest.fixture(name="launcher")
def make_launcher(tmp_path: Path) -> Iterator[PythonLauncher]:
    folder = tmp_path / "l"
    folder.mkdir(mode=0o700)
    made = PythonLauncher(folder, sys.executable, spark_archives())
    made.ensure_parent()
    yield made
    made.close()
    assert made._parent is not None
    made._parent.wait(WAIT_SECONDS)


def parent_of(launcher: PythonLauncher) -> int:
    assert launcher._parent is not None
    return launcher._parent.pid


def test_a_daemon_is_forked_and_answers_as_one_that_java_started(launcher: PythonLauncher) -> None:
    started = Started(launcher, *DAEMON)
    port = int.from_bytes(started.read(4))
    (pid,) = children(parent_of(launcher))
    assert b"pyspark.daemon\0pyspark.worker" in command(pid)
    with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as worker:
        worker_pid = int.from_bytes(worker.recv(4))
        assert worker_pid in children(pid)
    assert started.end() == DAEMON_CODE
    wait_until(lambda: is_gone(pid) and is_gone(worker_pid))


def test_variables_and_folder_are_those_of_the_caller(
    launcher: PythonLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": "."}
    started = Started(launcher, *DAEMON, **here)
    name = started.read(int.from_bytes(started.read(4))).decode()
    assert (tmp_path / name).is_socket()
    assert len(children(parent_of(launcher))) == 1
    assert started.end() == DAEMON_CODE


def test_an_error_is_on_stderr_and_in_the_exit_code(launcher: PythonLauncher) -> None:
    module = "pyspark.sql.streaming.python_streaming_source_runner"
    started = Started(launcher, "-m", module, PYTHON_WORKER_FACTORY_PORT="none")
    _, errors = started.process.communicate(timeout=WAIT_SECONDS)
    assert started.process.returncode == 1
    assert b"invalid literal for int() with base 10: 'none'" in errors


def test_a_child_ends_with_the_process_that_java_sees(launcher: PythonLauncher) -> None:
    started = Started(launcher, *DAEMON)
    started.read(4)
    (pid,) = children(parent_of(launcher))
    started.process.kill()
    wait_until(lambda: is_gone(pid))
    started.end()


def test_without_the_parent_children_go_on_and_new_ones_are_plain_python(
    launcher: PythonLauncher,
) -> None:
    first = Started(launcher, *DAEMON)
    first.read(4)
    parent = parent_of(launcher)
    (pid,) = children(parent)
    os.kill(parent, signal.SIGKILL)
    wait_until(lambda: is_gone(parent))
    second = Started(launcher, *DAEMON)
    assert int.from_bytes(second.read(4)) > 0
    assert command(second.process.pid).startswith(os.fsencode(sys.executable) + b"\0-m\0pyspark.")
    assert not is_gone(pid)
    assert first.process.poll() is None
    assert second.end() == DAEMON_CODE
    first.end()
    wait_until(lambda: is_gone(pid))
    launcher.ensure_parent()
    third = Started(launcher, *DAEMON)
    third.read(4)
    assert len(children(parent_of(launcher))) == 1
    third.end()


def test_other_interpreter_settings_get_a_python_of_their_own(launcher: PythonLauncher) -> None:
    started = Started(launcher, *DAEMON, PYTHONOPTIMIZE="1")
    started.read(4)
    assert children(parent_of(launcher)) == []
    assert started.end() == DAEMON_CODE


def test_other_programs_get_a_python_of_their_own_without_the_archives(
    launcher: PythonLauncher,
) -> None:
    archives = spark_archives()
    assert any(path.endswith("pyspark.zip") for path in archives)
    places = ":".join([*archives, "elsewhere"])
    code = "import sys; print(sys.path, sys.argv); sys.exit(7)"
    started = Started(launcher, "-c", code, "word", PYTHONPATH=places)
    output, _ = started.process.communicate(timeout=WAIT_SECONDS)
    assert started.process.returncode == 7
    assert b"elsewhere" in output
    assert b"word" in output
    assert b"pyspark.zip" not in output


def test_the_parent_and_its_folder_go_when_the_owner_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "l"
    folder.mkdir(mode=0o700)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    parent = int(owner.stdout.readline())
    # As `timeout` and service managers do: all processes, not only the owner.
    wait_until(lambda: (folder / "socket").exists() and is_ignoring(parent, signal.SIGTERM))
    os.kill(parent, signal.SIGTERM)
    owner.kill()
    owner.communicate(timeout=WAIT_SECONDS)
    wait_until(lambda: is_gone(parent) and not folder.exists())


def test_a_program_is_made_in_a_private_folder_and_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(python_launcher, "_launchers", [])
    monkeypatch.setenv(python_launcher.SWITCH, python_launcher.OFF)
    assert launcher_program() == ""
    monkeypatch.delenv(python_launcher.SWITCH)
    script = Path(launcher_program())
    (made,) = python_launcher._launchers
    assert script.parent.stat().st_mode & 0o777 == 0o700
    assert launcher_program() == str(script)
    made.close()
    assert made._parent is not None
    made._parent.wait(WAIT_SECONDS)
    assert not script.parent.exists()


def test_a_folder_whose_name_is_too_long_for_a_socket_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(python_launcher, "_launchers", [])
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert launcher_program() == ""
    assert list(deep.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "asked", "own", "is_refused"),
    [
        ("PYTHONHASHSEED", "0", "0", False),
        ("PYTHONHASHSEED", None, "0", False),
        ("PYTHONHASHSEED", "1", "0", True),
        ("OMP_NUM_THREADS", "4", "1", True),
        ("PYTHONDEVMODE", "1", None, True),
        ("PYTHONPATH", "a", "b", False),
        ("PYTHON_WORKER_FACTORY_PORT", "1", None, False),
        ("LANG", "C", "de_DE", True),
        ("PYTHONPATH", "/site/pyspark/python/lib/pyspark.zip:/site", None, False),
        ("ANYTHING", "a", "b", False),
    ],
)
def test_only_processes_that_would_be_the_same_are_forked(
    name: str, asked: str | None, own: str | None, is_refused: bool
) -> None:
    variables = {} if asked is None else {name: asked}
    have = {} if own is None else {name: own}
    assert refusal(variables, have, Path("/site/pyspark")) == (name if is_refused else "")


def test_another_pyspark_gets_a_python_of_its_own(tmp_path: Path) -> None:
    archive = tmp_path / "lib" / "pyspark.zip"
    places = {"PYTHONPATH": f"{archive}:{tmp_path}"}
    assert refusal(places, {}, Path("/site/pyspark")) == ""
    archive.parent.mkdir()
    archive.touch()
    assert refusal(places, {}, Path("/site/pyspark")) == "PYTHONPATH"
    archive.unlink()
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    assert refusal(places, {}, Path("/site/pyspark")) == "PYTHONPATH"
    assert refusal(places, {}, tmp_path / "pyspark") == ""


def test_modules_are_looked_for_where_python_would_look_but_not_in_the_archives() -> None:
    places = "/s/python/lib/pyspark.zip:lib:/j/spark.jar:/site"
    path = search_path(
        Path("/project"), places, ["/std", "/site"], Path("/s/python/lib"), is_safe=False
    )
    assert path == ["/project", "/project/lib", "/j/spark.jar", "/site", "/std"]


@pytest.mark.parametrize(
    "body", [b"", b"x", b"2\0-m", b"1\0-m\0/", b"2\0-c\0x\0/", b"2\0-m\0x\0/\0y"]
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_request(body)


def test_a_signal_becomes_the_exit_code_that_java_knows() -> None:
    assert exit_code(signal.SIGKILL) == 128 + signal.SIGKILL
    assert exit_code(3 << 8) == 3


def test_the_program_is_in_the_environment_only_while_java_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_session, "launcher_program", lambda: "/quick")
    for name in spark_session.PYTHON_VARIABLES:
        monkeypatch.setenv(name, sys.executable)
    with spark_session._quick_python():
        assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == "/quick"
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/chosen")
    with spark_session._quick_python():
        assert os.environ["PYSPARK_PYTHON"] == "/chosen"


def test_a_session_that_ends_soon_has_one_compiler_and_a_collector_that_was_chosen_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g")
    options = short_session_options()
    assert "-XX:TieredStopAtLevel=1" in options
    assert "-XX:+UseSerialGC" in options
    # Java does not start with two of them.
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g -XX:+UseG1GC")
    assert "GC" not in short_session_options()


def test_files_that_are_in_use_do_not_look_old(tmp_path: Path) -> None:
    file = tmp_path / "python"
    file.touch()
    for path in (file, tmp_path):
        os.utime(path, (1, 1))
    touch_folder(tmp_path)
    assert min(file.stat().st_mtime, file.stat().st_atime, tmp_path.stat().st_mtime) > 1
