"""A disk that takes no changes: reads go on, and a store on it can be served as it is."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness import ServerProcess
from server_disk_kit import (
    STORE_FAILED,
    check_content,
    consumer,
    fill,
    page,
    publish,
    running,
    take,
)
from server_kill_streams import Wire

pytestmark = pytest.mark.slow
READ_ONLY = 20501
COUNT = 20


def can_mount_loop() -> bool:
    """Whether a file can be mounted as a disk, in a name space of its own."""
    tools = ("unshare", "nsenter", "mkfs.ext4", "mount")
    if os.geteuid() or not all(map(shutil.which, tools)):
        return False
    script = "truncate -s 4M $0/i && mkfs.ext4 -qF $0/i && mkdir $0/m && mount -o loop $0/i $0/m"
    folder = subprocess.run(["mktemp", "-d"], capture_output=True, text=True).stdout.strip()
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, folder], capture_output=True)
    shutil.rmtree(folder)
    return done.returncode == 0


needs_loop = pytest.mark.skipif(not can_mount_loop(), reason="no right to mount a file")


def tree(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Sizes, times and contents of all files, and the times of all folders."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns, content)
    return found


def create(wire: Wire, name: str, **config: Any) -> None:
    body = {"name": name, "subjects": [f"{name}.*"], "allow_direct": True, **config}
    wire.api(f"STREAM.CREATE.{name}", body)


def ask(wire: Wire, name: str, body: Any = None) -> dict[str, Any]:
    (answer,) = wire.api_all([(name, {} if body is None else body)])
    return answer


def filled(folder: Path, *, is_killed: bool) -> None:
    """A store with a stream, a work queue, a consumer that has acknowledged some, and a key."""
    with running(folder) as (server, wire):
        create(wire, "S", max_age=3600 * 1_000_000_000)
        create(wire, "WORK", retention="workqueue")
        for name in ("S", "WORK"):
            fill(wire, name, COUNT)
        consumer(wire, "S", "reader")
        assert take(wire, "S", "reader", 5) == [1, 2, 3, 4, 5]
        create(wire, "KV_b", subjects=["$KV.b.>"], max_msgs_per_subject=1)
        assert "seq" in publish(wire, "$KV.b.key", b"value")
        if is_killed:
            server.signal(signal.SIGKILL)
            server.wait()


def read_only_config(tmp_path: Path) -> tuple[str, str]:
    config = tmp_path / "read_only.conf"
    config.write_text("jetstream { read_only: true }\n")
    return "-c", str(config)


def check_served(server: ServerProcess, wire: Wire) -> None:
    """All that reads, and all that would write."""
    check_content(wire, "S", COUNT)
    check_content(wire, "WORK", COUNT)
    assert (
        base64.b64decode(
            ask(wire, "STREAM.MSG.GET.KV_b", {"last_by_subj": "$KV.b.key"})["message"]["data"]
        )
        == b"value"
    )
    assert ask(wire, "CONSUMER.INFO.S.reader")["ack_floor"]["stream_seq"] == 5
    # A durable consumer goes on, in memory.
    assert take(wire, "S", "reader", 3) == [6, 7, 8]
    assert ask(wire, "CONSUMER.INFO.S.reader")["ack_floor"]["stream_seq"] == 8
    config = {"name": "e", "ack_policy": "explicit", "inactive_threshold": 3600 * 10**9}
    made = ask(wire, "CONSUMER.CREATE.S.e", {"stream_name": "S", "config": config})
    assert made["config"]["mem_storage"] is True
    assert take(wire, "S", "e", 2) == [1, 2]
    assert ask(wire, "CONSUMER.DELETE.S.e")["success"] is True
    durable = {"durable_name": "d", "ack_policy": "explicit"}
    for name, body in (
        ("STREAM.CREATE.N", {"name": "N", "subjects": ["n"]}),
        ("STREAM.CREATE.M", {"name": "M", "subjects": ["m"], "storage": "memory"}),
        ("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.*", "T.*"]}),
        ("STREAM.PURGE.S", None),
        ("STREAM.DELETE.S", None),
        ("STREAM.MSG.DELETE.S", {"seq": 1}),
        ("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": durable}),
        ("CONSUMER.DELETE.S.reader", None),
        ("CONSUMER.PAUSE.S.reader", {"pause_until": "2999-01-01T00:00:00Z"}),
    ):
        error = ask(wire, name, body).get("error", {})
        assert error.get("err_code") == READ_ONLY, (name, error)
        assert "read_only" in error["description"]
    refused = publish(wire, "S.x", b"new")["error"]
    assert refused["err_code"] == STORE_FAILED
    assert "without changes (read_only in the jetstream block)" in refused["description"]
    status, health = page(server, "/healthz")
    assert (status, health["status"]) == (200, "ok")
    jsz = page(server, "/jsz")[1]
    assert jsz["config"]["read_only"] is True
    assert "problems" not in jsz
    assert page(server, "/varz")[1]["jetstream"]["config"]["read_only"] is True


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_store_is_served_and_not_a_byte_of_it_changes(tmp_path: Path, is_killed: bool) -> None:
    store = tmp_path / "store"
    filled(store, is_killed=is_killed)
    if is_killed:
        # An interrupted write, and damage that a start would repair.
        with (store / "jetstream/$G/streams/S/msgs/1.blk").open("ab") as file:
            file.write(b"\x40\0\0\0torn")
    before = tree(store)
    with running(store, *read_only_config(tmp_path)) as (server, wire):
        check_served(server, wire)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert not [line for line in server.lines if "[FTL]" in line or "Traceback" in line]
    assert tree(store) == before
    # What moved in memory is forgotten, and the store is as good as it was.
    with running(store) as (_, wire):
        assert ask(wire, "CONSUMER.INFO.S.reader")["ack_floor"]["stream_seq"] == 5
        fill(wire, "S", 1, first=COUNT + 1)


def test_a_store_that_a_server_changes_is_not_served_beside_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(store):
        flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(store)]
        other = ServerProcess("tradewind", [*flags, *read_only_config(tmp_path)])
        try:
            assert other.wait() == 1
            other.wait_for_log(r"the folder is in use by process \d+")
        finally:
            other.stop()


def test_a_folder_without_a_store_is_not_served_as_an_empty_one(tmp_path: Path) -> None:
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path / "nothing")]
    server = ServerProcess("tradewind", [*flags, *read_only_config(tmp_path)])
    try:
        assert server.wait() == 1
        server.wait_for_log(r"there is nothing to serve with read_only")
    finally:
        server.stop()
    assert not (tmp_path / "nothing").exists()


def without_rights() -> tuple[str, ...]:
    """Have the rights of files hold for a server of root, too."""
    rights = "-dac_override,-dac_read_search"
    return ("setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}") if can_drop() else ()


def can_drop() -> bool:
    return os.geteuid() == 0 and shutil.which("setpriv") is not None


@pytest.mark.skipif(os.geteuid() == 0 and not can_drop(), reason="root may write everywhere")
def test_a_store_without_the_right_to_write_is_served(tmp_path: Path) -> None:
    store = tmp_path / "store"
    filled(store, is_killed=True)
    paths = [store, *store.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(store)]
        other = ServerProcess("tradewind", flags, wrap=without_rights())
        try:
            assert other.wait() == 1
            other.wait_for_log(r"Permission denied.*set jetstream \{read_only: true\}")
        finally:
            other.stop()
        before = tree(store)
        settings = read_only_config(tmp_path)
        with running(store, *settings, wrap=without_rights()) as (server, wire):
            check_served(server, wire)
        assert tree(store) == before
    finally:
        for path in paths:
            path.chmod(0o700)


@pytest.fixture
def image(tmp_path: Path) -> tuple[Path, Path]:
    """A file with a file system in it, and where it is to be mounted."""
    path, place = tmp_path / "image", tmp_path / "disk"
    with path.open("wb") as file:
        file.truncate(16 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-qF", str(path)], check=True)
    place.mkdir()
    return path, place


def mounted(image: tuple[Path, Path], options: str) -> tuple[str, ...]:
    """Have a server see the image, and nobody else."""
    path, place = image
    return (
        "unshare",
        "-m",
        "sh",
        "-c",
        f"mount -o {options} '{path}' '{place}' && exec \"$@\"",
        "sh",
    )


def abort(server: ServerProcess, place: Path) -> None:
    """What a file system does to itself when it finds an error."""
    inside = ["nsenter", "-t", str(server.process.pid), "-m"]
    subprocess.run([*inside, "mount", "-o", "remount,abort", str(place)], check=False)
    mounts = Path(f"/proc/{server.process.pid}/mounts").read_text()
    (line,) = [each for each in mounts.splitlines() if f" {place} " in each]
    assert {"ro", "emergency_ro"} & set(line.split()[3].split(",")), line


@needs_loop
def test_reads_go_on_after_a_file_system_has_become_read_only(image: tuple[Path, Path]) -> None:
    path, place = image
    with running(place, wrap=mounted(image, "loop")) as (server, wire):
        create(wire, "S")
        fill(wire, "S", COUNT)
        create(wire, "IDLE")
        fill(wire, "IDLE", COUNT)
        consumer(wire, "S", "reader")
        consumer(wire, "S", "late")
        abort(server, place)
        check_content(wire, "S", COUNT)
        check_content(wire, "IDLE", COUNT)
        refused = publish(wire, "S.x", b"new")["error"]
        assert refused["err_code"] == STORE_FAILED
        assert any(word in refused["description"] for word in ("Read-only", "Input/output"))
        # Acknowledgements count while the server runs; nobody is told that they are kept.
        assert take(wire, "S", "reader", 5, is_confirmed=False) == [1, 2, 3, 4, 5]
        assert ask(wire, "CONSUMER.INFO.S.reader")["ack_floor"]["stream_seq"] == 5
        config = {"name": "e", "ack_policy": "explicit"}
        made = ask(wire, "CONSUMER.CREATE.S.e", {"stream_name": "S", "config": config})
        assert made["config"]["mem_storage"] is True
        assert take(wire, "S", "e", 3) == [1, 2, 3]
        for name, body in (
            ("STREAM.CREATE.N", {"name": "N", "subjects": ["n"]}),
            ("STREAM.DELETE.IDLE", None),
            ("CONSUMER.DELETE.S.late", None),
            ("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": {"durable_name": "d"}}),
        ):
            text = ask(wire, name, body)["error"]["description"]
            assert "Read-only file system" in text, (name, text)
        check_content(wire, "IDLE", COUNT)
        assert "is read-only" in page(server, "/healthz")[1]["error"]
        assert len(page(server, "/jsz?streams=true")[1]["account_details"][0]["stream_detail"]) == 2
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    # Still read-only: the start says what to do, and then serves.
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(place)]
    other = ServerProcess("tradewind", flags, wrap=mounted(image, "loop,ro,noload"))
    try:
        assert other.wait() == 1
        other.wait_for_log(r"Read-only file system.*set jetstream \{read_only: true\}")
    finally:
        other.stop()
    settings = read_only_config(path.parent)
    with running(place, *settings, wrap=mounted(image, "loop,ro,noload")) as (_, wire):
        check_content(wire, "S", COUNT)
        check_content(wire, "IDLE", COUNT)


@needs_loop
def test_a_snapshot_is_served_from_a_read_only_mount(
    tmp_path: Path, image: tuple[Path, Path]
) -> None:
    path, place = image
    filled(tmp_path / "store", is_killed=True)
    copy = f"mount -o loop '{path}' '{place}' && cp -a '{tmp_path}/store/.' '{place}'"
    subprocess.run(["unshare", "-m", "sh", "-c", copy], check=True)
    before = hashlib.sha256(path.read_bytes()).digest()
    settings = read_only_config(tmp_path)
    with running(place, *settings, wrap=mounted(image, "loop,ro,noload")) as (server, wire):
        check_served(server, wire)
    assert hashlib.sha256(path.read_bytes()).digest() == before
