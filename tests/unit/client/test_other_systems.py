"""Client and command line on a system that lacks what only Linux has.

A process of its own, from which the functions are removed before anything of tradewind is loaded,
and in which opening a file of /proc fails. The server runs elsewhere, as it would for a laptop.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from jetstream_servers import jetstream_on_both

url = jetstream_on_both()
SOURCE = Path(__file__).parents[3] / "src" / "tradewind"
LINUX_ONLY = {
    "os": "eventfd eventfd_read eventfd_write fdatasync posix_fadvise posix_fallocate pidfd_open "
    "fork forkpty register_at_fork sched_getaffinity sched_setaffinity memfd_create splice "
    "copy_file_range sendfile preadv pwritev O_DIRECTORY O_TMPFILE O_DIRECT getrandom setns",
    "select": "epoll EPOLLIN EPOLLOUT EPOLLET EPOLLEXCLUSIVE",
    "signal": "pidfd_send_signal sigtimedwait sigwaitinfo",
    "socket": "SO_PEERCRED SO_REUSEPORT TCP_USER_TIMEOUT TCP_QUICKACK TCP_CORK",
}
REMOVED = f"""
import sys
LINUX_ONLY = {LINUX_ONLY!r}
gone = 0
for module, names in LINUX_ONLY.items():
    for name in names.split():
        if hasattr(__import__(module), name):
            delattr(__import__(module), name)
            gone += 1
assert gone > 15, gone
sys.modules["ctypes"] = sys.modules["resource"] = sys.modules["uvloop"] = None

def refuse(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc", "/sys")):
        raise FileNotFoundError(arguments[0])

sys.addaudithook(refuse)
"""
ASYNC = """
import asyncio
import tradewind
import tradewind.client

async def main():
    async with await tradewind.connect(URL) as nats:
        js = nats.jetstream()
        await js.manager.streams.add(name=NAME, subjects=[f"{NAME}.>"])
        await js.manager.consumers.add(NAME, durable_name="all")
        assert (await js.publish(f"{NAME}.1", b"one")).seq == 1
        consumer = await js.consumers.get(NAME, "all")
        (message,) = [each async for each in await consumer.fetch(1)]
        print(message.data.decode())

asyncio.run(main())
"""
BLOCKING = """
from tradewind.sync import connect

with connect(URL) as nats:
    nats.jetstream_manager().streams.add(name=NAME, subjects=[f"{NAME}.>"])
    js = nats.jetstream()
    assert js.publish(f"{NAME}.1", b"two").seq == 1
    print(nats.jetstream_manager().streams.get_message(NAME, seq=1).data.decode())
"""
COMMANDS = """
from tradewind.cli.main import run

for words in (
    ["stream", "add", NAME, "--subjects", f"{NAME}.>", "--defaults"],
    ["pub", f"{NAME}.1", "three", "--jetstream"],
    ["stream", "get", NAME, "1"],
    ["stream", "ls"],
    ["kv", "add", NAME],
    ["kv", "put", NAME, "key", "four"],
    ["kv", "get", NAME, "key", "--raw"],
):
    assert run(["--server", URL, *words]) == 0, words
"""
# The one that may name them, and one that may import nothing because it has to start at once.
ALLOWED = {"platform_calls.py", "spark/processes/launcher_script.py"}
NAMES = re.compile(
    r"\bos\.(?:eventfd\w*|fdatasync|posix_f\w+|pidfd_open|register_at_fork|sched_\w+|memfd_create"
    r"|copy_file_range|O_DIRECTORY|O_TMPFILE|O_DIRECT)\b|\bselect\.(?:epoll|EPOLL\w+)"
    r"|pidfd_send_signal|SO_PEERCRED|renameat2|syncfs|prctl|[\"']/proc\b|import ctypes"
)
INCLUDES = re.compile(r"sys/(?:eventfd|timerfd|epoll|prctl|inotify)\.h|\bfdatasync\(")


@pytest.fixture
def name() -> str:
    """Of a stream that no other test has."""
    return f"S{uuid4().hex[:12]}"


def far_away(code: str, url: str, name: str, **settings: str) -> str:
    """What a program prints on such a system."""
    done = subprocess.run(
        [sys.executable, "-c", f"{REMOVED}\nURL, NAME = {url!r}, {name!r}\n{code}"],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("settings", [{}, {"TRADEWIND_PORTABLE": "1"}], ids=["removed", "forced"])
@pytest.mark.parametrize(
    ("code", "printed"), [(ASYNC, "one"), (BLOCKING, "two")], ids=["client", "sync"]
)
def test_clients_connect_publish_and_read(
    url: str, name: str, code: str, printed: str, settings: dict[str, str]
) -> None:
    assert far_away(code, url, name, **settings) == f"{printed}\n"


def test_commands_that_are_clients_run(url: str, name: str) -> None:
    printed = far_away(COMMANDS, url, name)
    assert "three" in printed
    assert printed.rstrip("\n").endswith("four")


def test_calls_that_only_linux_has_are_in_one_module() -> None:
    named = {
        str(path.relative_to(SOURCE)): found
        for path in SOURCE.rglob("*.py")
        if (found := NAMES.findall(path.read_text()))
    }
    assert set(named) == ALLOWED, named


def test_compiled_code_has_one_module_for_them_too() -> None:
    named = {
        path.name
        for suffix in ("*.pyx", "*.pxd")
        for path in SOURCE.rglob(suffix)
        if INCLUDES.search(path.read_text())
    }
    assert named == {"system_calls.pxd"}
