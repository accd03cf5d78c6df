"""What is read from /proc."""

import os
import signal
import subprocess
import sys
import time

import pytest
from benchmarks.machine import parse_cpu_model
from benchmarks.procfs import (
    TICKS_PER_SECOND,
    Meter,
    TreeClock,
    parse_machine_busy_s,
    parse_stat,
    parse_status_kib,
    process_cpu_s,
    session_usage,
)

STAT = (
    "4242 (name) S 1 4242 4241 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 9 0 100 1000 200 "
    "18446744073709551615 1 1 0 0 0 0 0\n"
)


def test_stat_gives_process_and_session() -> None:
    stat = parse_stat(STAT)
    assert (stat.pid, stat.session) == (4242, 4241)


def test_cpu_clock_of_a_process_agrees_with_its_own_account() -> None:
    before_s = time.process_time()
    seen_s = process_cpu_s(os.getpid())
    assert before_s <= seen_s <= time.process_time()


def test_cpu_clock_of_a_process_that_is_gone_is_an_error() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    with pytest.raises(OSError, match="Invalid argument"):
        process_cpu_s(process.pid)


@pytest.mark.parametrize("name", ["a b", "a) S 1 2 3", "((", ""])
def test_stat_of_a_process_with_an_awkward_name(name: str) -> None:
    assert parse_stat(STAT.replace("(name)", f"({name})")) == parse_stat(STAT)


def test_status_value_is_found_by_its_whole_name() -> None:
    text = "Name:\tx\nVmHWMother:\t  1 kB\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n"
    assert parse_status_kib(text, "VmHWM") == 2048
    assert parse_status_kib(text, "VmRSS") == 1024
    assert parse_status_kib(text, "VmSwap") == 0


def test_machine_time_leaves_out_idle_and_waiting() -> None:
    text = "cpu  100 10 50 9999 8888 3 7 0 0 0\ncpu0 1 1 1 1 1 1 1 0 0 0\n"
    assert parse_machine_busy_s(text) == 170 / TICKS_PER_SECOND


def test_session_of_this_process_uses_memory() -> None:
    usage = session_usage(os.getsid(0))
    assert 0 < usage.rss_kib <= usage.rss_peak_kib


def test_meter_counts_a_child_of_the_session_leader() -> None:
    burn = "import time\nwhile time.process_time() < 30: pass\n"
    leader = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
    with subprocess.Popen([sys.executable, "-c", leader], start_new_session=True) as process:
        try:
            with Meter(process.pid) as meter:
                while session_usage(process.pid).cpu_s < 0.2 and process.poll() is None:
                    time.sleep(0.01)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert meter.server_cpu_s >= 0.1
    assert meter.wall_s > 0
    assert 0 <= meter.other_cpu_share <= (os.cpu_count() or 1) + 0.5


def test_cpu_model_is_the_first_one_named() -> None:
    assert parse_cpu_model("processor\t: 0\nmodel name\t: Fast 9000\nmodel name\t: B\n") == (
        "Fast 9000"
    )
    assert parse_cpu_model("Processor: none\n") == "unknown"


def test_the_time_of_processes_that_have_ended_is_not_lost() -> None:
    """Nobody waits for the Python processes of Spark, so the kernel forgets what they have used."""
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint('x'); input()"
    script = (
        "import signal, subprocess, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        f" subprocess.Popen([sys.executable, '-u', '-c', {busy!r}]).wait(); print('y'); input()"
    )
    clock = TreeClock(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-u", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"x\n"
        our_own = time.process_time()
        at_work = clock.read_s()
        assert at_work >= our_own + 0.3
        os.write(child.stdin.fileno(), b"\n")
        assert child.stdout.readline() == b"y\n"
        assert clock.read_s() >= at_work
        os.write(child.stdin.fileno(), b"\n")
    assert clock.read_s() >= at_work
