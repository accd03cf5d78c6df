"""A running server whose disk refuses: one stream takes no messages and says why, others go on."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from harness import ServerProcess, wait_for
from server_disk_kit import (
    STORE_FAILED,
    STREAMS,
    check_content,
    consumer,
    fill,
    fill_until_refused,
    page,
    publish,
    running,
    take,
)
from server_kill_streams import Wire
from store_process_kit import can_mount

FILE_BYTES = 20_000
FAILING_SYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Fails for files below a folder of this name while the flag is there, or does not answer, and
   answers at once when it is not there. */
int fdatasync(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = 0;
    int is_meant = strstr(path, getenv("FAIL_NAME")) != 0;
    if (is_meant && getenv("HANG")) {
        while (access(getenv("FAIL_FLAG"), F_OK) == 0) {
            close(creat(getenv("HANG"), 0600));
            usleep(1000);
        }
        return 0;
    }
    if (is_meant && access(getenv("FAIL_FLAG"), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return real(fd);
}
"""


def create(wire: Wire, name: str, storage: str = "file") -> None:
    config = {"name": name, "subjects": [f"{name}.*"], "storage": storage}
    wire.api(f"STREAM.CREATE.{name}", config)


def check_only_this_one_failed(
    server: ServerProcess, wire: Wire, name: str, cause: str, others: dict[str, int]
) -> None:
    """The log, both pages and all who publish are told; `others` have so many messages."""
    server.wait_for_log(rf"\[ERR\] JetStream stream '{name}' takes no messages: .*{cause}")
    status, health = page(server, "/healthz")
    assert status == 503
    assert f"stream '$G > {name}' is read-only" in health["error"]
    assert cause in health["error"]
    problems = page(server, "/jsz")[1]["problems"]
    assert [problem["stream"] for problem in problems] == [name]
    refused = publish(wire, f"{name}.x", b"again")["error"]
    assert refused["err_code"] == STORE_FAILED
    assert cause in refused["description"]
    for other, count in others.items():
        fill(wire, other, 3, first=count + 1)


def test_file_size_limit_stops_one_stream_until_it_is_raised(tmp_path: Path) -> None:
    with running(tmp_path) as (server, wire):
        for name, storage in (("BIG", "file"), ("SMALL", "file"), ("MEMORY", "memory")):
            create(wire, name, storage)
        consumer(wire, "BIG", "reader")
        limit = (FILE_BYTES, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limit)
        last_seq, error = fill_until_refused(wire, "BIG", 1)
        assert error["err_code"] == STORE_FAILED
        assert 20 < last_seq < FILE_BYTES / 500
        others = {"SMALL": 0, "MEMORY": 0}
        check_only_this_one_failed(server, wire, "BIG", "File too large", others)
        # Reading goes on, and so do the consumers.
        check_content(wire, "BIG", last_seq)
        assert take(wire, "BIG", "reader", 5) == [1, 2, 3, 4, 5]

        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit[1], limit[1]))
        server.wait_for_log(r"\[INF\] JetStream stream '\$G > BIG' takes messages again")
        state = wire.api("STREAM.INFO.BIG")["state"]
        # What was refused while it was on its way may have been kept, or not.
        assert state["last_seq"] in (last_seq, last_seq + 1)
        answer = publish(wire, "BIG.x", b"after")
        assert answer["seq"] == state["last_seq"] + 1
        assert page(server, "/healthz")[0] == 200
        assert "problems" not in page(server, "/jsz")[1]
        server.signal(signal.SIGKILL)
        server.wait()
    with running(tmp_path) as (server, wire):
        check_content(wire, "BIG", last_seq)
        assert wire.api("STREAM.INFO.BIG")["state"]["last_seq"] == answer["seq"]
        check_content(wire, "SMALL", 3)
        assert not [line for line in server.lines if "[ERR]" in line]


@pytest.mark.skipif(not can_mount(), reason="no right to mount a small disk")
def test_full_disk_stops_what_needs_room_until_there_is_some(tmp_path: Path) -> None:
    disk, config = tmp_path / "disk", tmp_path / "server.conf"
    disk.mkdir()
    # Otherwise the server takes three quarters of the disk and never fills it.
    config.write_text("jetstream { max_file_store: 1GB }\n")
    mount = f"mount -t tmpfs -o size=1m tmpfs '{disk}' && head -c 700000 /dev/zero"
    script = f"{mount} > '{disk}/ballast' && exec \"$@\""
    wrap = ("unshare", "-Urm", "sh", "-c", script, "sh")
    with running(disk, "-c", str(config), wrap=wrap) as (server, wire):
        create(wire, "BIG")
        create(wire, "MEMORY", "memory")
        consumer(wire, "BIG", "reader")
        last_seq, error = fill_until_refused(wire, "BIG", 1)
        assert error["err_code"] == STORE_FAILED
        check_only_this_one_failed(server, wire, "BIG", "No space left", {"MEMORY": 0})
        check_content(wire, "BIG", last_seq)
        # Acknowledgements count; nobody is told that they are kept, for they are not.
        assert take(wire, "BIG", "reader", 5, is_confirmed=False) == [1, 2, 3, 4, 5]
        assert wire.api("CONSUMER.INFO.BIG.reader")["ack_floor"]["stream_seq"] == 5
        # What needs a new file is refused, in words, and leaves nothing behind.
        (refused,) = wire.api_all([("STREAM.CREATE.MORE", {"name": "MORE", "subjects": ["m"]})])
        assert "No space left" in refused["error"]["description"], refused

        inside = Path(f"/proc/{server.process.pid}/root{disk}")
        (inside / "ballast").unlink()
        server.wait_for_log(r"\[INF\] JetStream stream '\$G > BIG' takes messages again")
        assert "error" not in publish(wire, "BIG.x", b"after")
        create(wire, "MORE")
        fill(wire, "MORE", 3)
        assert take(wire, "BIG", "reader", 2) == [6, 7]
        assert page(server, "/healthz")[0] == 200
        state = inside / STREAMS / "BIG/obs/reader/o.dat"
        written = state.read_bytes()
        take(wire, "BIG", "reader", 1)
        wait_for(lambda: state.read_bytes() != written, "the consumer to be written")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def failing_syncs(tmp_path: Path, **more: str) -> tuple[dict[str, str], Path]:
    """The environment of a server whose syncs of stream BAD fail while the flag is there."""
    source, library, flag = tmp_path / "f.c", tmp_path / "f.so", tmp_path / "flag"
    source.write_text(FAILING_SYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    preloaded = f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()  # sanitizers come first
    env = {"LD_PRELOAD": preloaded, "FAIL_FLAG": str(flag), "FAIL_NAME": "/BAD/msgs/"}
    return {**env, **more}, flag


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_disk_that_does_not_answer_holds_up_only_those_who_wait_for_it(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    env, flag = failing_syncs(tmp_path, HANG=str(hangs))
    with running(tmp_path / "store", env=env) as (server, wire):
        for name in ("BAD", "GOOD"):
            create(wire, name)
            fill(wire, name, 10)
        flag.touch()
        with Wire(server.port) as waiting:
            for number in (11, 12):
                reply = waiting.answer_to(number)
                waiting.send(f"PUB BAD.x {reply} 1\r\nx\r\n".encode())
                wait_for(hangs.exists, "a sync that does not answer")
            assert wire.api("STREAM.INFO.BAD")["state"]["last_seq"] in (11, 12)
            # Everybody else goes on: the loop, durable publishes elsewhere, and the pages.
            fill(wire, "GOOD", 10, first=11)
            assert page(server, "/healthz")[0] == 200
            flag.unlink()
            answers = [json.loads(waiting.next_message()[3])["seq"] for _ in range(2)]
            assert answers == [11, 12]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_failed_sync_ends_one_stream_until_the_next_start(tmp_path: Path) -> None:
    """Nobody knows what is on the disk after it, so nothing is promised until all was read."""
    env, flag = failing_syncs(tmp_path)
    folder = tmp_path / "store"
    with running(folder, env=env) as (server, wire):
        for name in ("BAD", "GOOD"):
            create(wire, name)
            fill(wire, name, 10)
        flag.touch()
        last_seq, error = fill_until_refused(wire, "BAD", 11)
        assert (last_seq, error["err_code"]) == (10, STORE_FAILED)
        check_only_this_one_failed(server, wire, "BAD", "Input/output error", {"GOOD": 10})
        check_content(wire, "BAD", 10)
        flag.unlink()
        assert publish(wire, "BAD.x", b"still not")["error"]["err_code"] == STORE_FAILED
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    with running(folder, env=env) as (server, wire):
        assert page(server, "/healthz")[0] == 200
        check_content(wire, "BAD", 10)
        check_content(wire, "GOOD", 13)
        state = wire.api("STREAM.INFO.BAD")["state"]
        assert state["last_seq"] in (10, 11)
        assert publish(wire, "BAD.x", b"again")["seq"] == state["last_seq"] + 1
