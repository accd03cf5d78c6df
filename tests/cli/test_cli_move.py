"""`tradewind move`: a stream changes its server while messages come and go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

import tradewind.sync
from cli_outcome import Cli
from harness import ServerProcess, wait_for
from jetstream_servers import keep_streams_folder
from move_kit import (
    ACKNOWLEDGED,
    OLD,
    KilledError,
    Publisher,
    check_a_move_with_kills,
    make_stream,
    numbers,
    run_move,
)
from ports import free_ports
from tradewind.cli.moving.move_journal import STEPS, Journal, Method, MoveStep, save
from tradewind.cli.moving.mover import Mover
from tradewind.client.errors import NoLeaderError

STREAM = "ORDERS"
API = "$JS.old.API"


class Place:
    """A server that can be killed and comes back under its address."""

    def __init__(self, kind: str, folder: Path, port: int, remote_port: int = 0) -> None:
        self.kind = kind
        self.url = f"nats://127.0.0.1:{port}"
        remotes = ""
        if remote_port and kind == "tradewind":
            remotes = f'remotes {{ old {{ url: "nats://127.0.0.1:{remote_port}" }} }}'
        self._folder = folder
        self._config = folder / "server.conf"
        folder.mkdir()
        self._config.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{folder}", sync_interval: always, {remotes} }}\n'
        )
        self.start()

    def start(self) -> None:
        self.process = ServerProcess(self.kind, ["-c", str(self._config)])
        self.process.wait_ready()
        if self.kind == "official":
            keep_streams_folder(self._folder)

    def kill_and_restart(self) -> None:
        self.process.process.kill()
        self.process.process.wait()
        self.process.stop()
        self.start()


class Servers:
    """Origin and target; the target can mirror the origin if it is ours."""

    def __init__(self, folder: Path, origin: str, target: str) -> None:
        ports = free_ports(2)
        self.origin = Place(origin, folder / "origin", ports[0])
        self.target = Place(target, folder / "target", ports[1], ports[0])
        self.urls = (self.origin.url, self.target.url)

    def stop(self) -> None:
        self.origin.process.stop()
        self.target.process.stop()


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    origin, target = getattr(request, "param", ("tradewind", "tradewind"))
    pair = Servers(tmp_path_factory.mktemp("move"), origin, target)
    yield pair
    pair.stop()


@pytest.fixture
def servers(shared: Servers) -> Iterator[Servers]:
    """Without streams when a test begins."""
    yield shared
    for place in (shared.origin, shared.target):
        with tradewind.sync.connect(place.url, timeout=20) as connection:
            streams = connection.jetstream_manager().streams
            for name in streams.names().all():
                streams.delete(name)


def start_flags(servers: Servers, journal: Path | None = None, *more: str) -> list[str]:
    places = ["--from", servers.origin.url, "--to", servers.target.url, *more]
    return places if journal is None else [*places, "--file", str(journal)]


@pytest.mark.parametrize(
    ("shared", "via"),
    [
        (("tradewind", "tradewind"), "mirror"),
        (("official", "tradewind"), "mirror"),
        (("tradewind", "official"), "backup"),
        (("official", "tradewind"), "backup"),
    ],
    indirect=["shared"],
)
def test_a_stream_moves_while_somebody_publishes(
    servers: Servers, via: str, offline: Cli, tmp_path: Path
) -> None:
    make_stream(servers.origin.url, STREAM)
    publisher = Publisher(STREAM, servers.urls)
    publisher.start()
    journal = tmp_path / "j.json"
    api = ["--origin-api", API] if via == "mirror" else []
    done = offline("move", "start", STREAM, *start_flags(servers, journal, "--via", via, *api))
    publisher.end()
    assert done.code == 0, done.err
    assert "publishers paused for" in done.out
    old = [-number for number in range(1, OLD + 1)]
    assert numbers(servers.target.url, STREAM) == [*old, *range(publisher.count)]
    with tradewind.sync.connect(servers.target.url) as connection:
        consumers = connection.jetstream_manager().consumers
        pending = OLD - ACKNOWLEDGED + publisher.count
        # nats-server tells consumers of a message behind its acknowledgement.
        wait_for(lambda: consumers.info(STREAM, "packer").num_pending >= pending)
        info = consumers.info(STREAM, "packer")
        assert info.num_pending == pending
        assert not info.paused
        message = connection.jetstream().consumers.get(STREAM, "packer").next()
        assert message is not None
        assert message.metadata.stream_sequence == ACKNOWLEDGED + 1

    finished = offline("move", "finish", str(journal), "--force")
    assert finished.code == 0, finished.err
    with tradewind.sync.connect(servers.origin.url) as connection:
        assert connection.jetstream_manager().streams.names().all() == []


def test_several_streams_move_one_after_the_other_and_back(
    servers: Servers, offline: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["ORDERS", "INVOICES"]
    for name in names:
        make_stream(servers.origin.url, name, count=60)
    with tradewind.sync.connect(servers.origin.url) as connection:
        connection.jetstream_manager().consumers.pause("INVOICES", "packer", timedelta(days=1))
    done = offline("move", "start", *names, *start_flags(servers))
    assert done.code == 0, done.err
    files = [f"{name}.move.json" for name in names]
    assert [json.loads(Path(file).read_text())["step"] for file in files] == ["done", "done"]
    for name in names:
        assert len(numbers(servers.target.url, name)) == 60
    with tradewind.sync.connect(servers.target.url) as connection:
        consumers = connection.jetstream_manager().consumers
        assert [consumers.info(name, "packer").paused for name in names] == [False, True]
    again = offline("move", "resume", *files)
    assert again.code == 0, again.err
    back = offline("move", "rollback", *files, "--force")
    assert back.code == 0, back.err
    assert not any(map(Path.exists, map(Path, files)))
    with tradewind.sync.connect(servers.target.url) as connection:
        assert connection.jetstream_manager().streams.names().all() == []
    with tradewind.sync.connect(servers.origin.url) as connection:
        consumers = connection.jetstream_manager().consumers
        assert [consumers.info(name, "packer").paused for name in names] == [False, True]
        assert connection.jetstream().publish("orders.x", b"1").seq == 61


def test_all_streams_are_looked_at_before_one_is_touched(
    servers: Servers, offline: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_stream(servers.origin.url, STREAM, count=60)
    done = offline("move", "start", STREAM, "MISSING", *start_flags(servers))
    assert done.code == 1
    assert "MISSING" in done.err
    assert list(tmp_path.glob("*.json")) == []
    with tradewind.sync.connect(servers.target.url) as connection:
        assert connection.jetstream_manager().streams.names().all() == []


def test_a_dry_run_changes_nothing(servers: Servers, offline: Cli, tmp_path: Path) -> None:
    make_stream(servers.origin.url, STREAM, count=60)
    journal = tmp_path / "j.json"
    done = offline("move", "start", STREAM, *start_flags(servers, journal, "--dry-run"))
    assert done.code == 0, done.err
    assert "Nothing was changed" in done.out
    assert not journal.exists()
    with tradewind.sync.connect(servers.origin.url) as connection:
        config = connection.jetstream_manager().streams.info(STREAM).config
        assert config.subjects == ["orders.>"]


@pytest.mark.timeout(300)  # seven restarts, and messages all the while
@pytest.mark.parametrize("party", ["mover", "origin", "target"])
def test_nothing_is_lost_or_doubled_when_a_party_is_killed_after_each_step(
    servers: Servers, tmp_path: Path, party: str
) -> None:
    make_stream(servers.origin.url, STREAM)
    kill = (lambda: None) if party == "mover" else getattr(servers, party).kill_and_restart
    check_a_move_with_kills(
        STREAM, servers.urls, tmp_path / "j.json", kill,
        method=Method.MIRROR, origin_api=API, steps=STEPS[:-1],
    )  # fmt: skip


@pytest.mark.parametrize("step", [MoveStep.FOLLOW, MoveStep.CONSUMERS, MoveStep.RELEASE])
def test_going_back_gives_the_origin_its_messages_again(
    servers: Servers, offline: Cli, tmp_path: Path, step: MoveStep
) -> None:
    """From the middle of a move, and after a release that nobody has noted."""
    make_stream(servers.origin.url, STREAM, count=60)
    path = journal_of(servers, tmp_path)
    with pytest.raises(KilledError):
        run_move(*servers.urls, path, step)
    assert json.loads(offline("move", "status", str(path), "--json").out)["step"] == step
    back = offline("move", "rollback", str(path), "--force")
    assert back.code == 0, back.err
    with tradewind.sync.connect(servers.origin.url) as connection:
        assert connection.jetstream().publish("orders.x", b"1").seq == 61
        info = connection.jetstream_manager().consumers.info(STREAM, "packer")
        assert (info.paused, info.ack_floor.stream_seq) == (False, ACKNOWLEDGED)
    with tradewind.sync.connect(servers.target.url) as connection:
        assert connection.jetstream_manager().streams.names().all() == []


@pytest.mark.parametrize("cut", [MoveStep.RELEASE, None])
def test_going_back_is_refused_when_the_target_has_new_messages(
    servers: Servers, offline: Cli, tmp_path: Path, cut: MoveStep | None
) -> None:
    make_stream(servers.origin.url, STREAM, count=60)
    path = journal_of(servers, tmp_path)
    with suppress(KilledError):
        run_move(*servers.urls, path, cut)
    with tradewind.sync.connect(servers.target.url) as connection:
        connection.jetstream().publish("orders.x", b"61")
    back = offline("move", "rollback", str(path), "--force")
    assert back.code == 1
    assert "has accepted 1 messages since the move" in back.err
    assert numbers(servers.target.url, STREAM)[-1] == 61


def journal_of(servers: Servers, folder: Path) -> Path:
    """Of a move that has not begun."""
    path = folder / "j.json"
    origin, target = servers.urls
    settings = {"method": Method.MIRROR, "origin_api": API}
    save(path, Journal(id="abc", stream=STREAM, origin=origin, target=target, **settings))
    return path


def test_a_stream_of_the_same_name_at_the_target_is_left_alone(
    servers: Servers, offline: Cli, tmp_path: Path
) -> None:
    make_stream(servers.origin.url, STREAM, count=60)
    make_stream(servers.target.url, STREAM, count=70)
    done = offline("move", "start", STREAM, *start_flags(servers, tmp_path / "j.json"))
    assert done.code == 1
    assert "already has a stream 'ORDERS'" in done.err
    assert len(numbers(servers.target.url, STREAM)) == 70


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--via", "magic"], "must be one of auto, mirror, backup"),
        (["--via", "mirror"], "needs --origin-api"),
        (["--to", "nats://a:b@127.0.0.1:4"], "the URL must not contain a login"),
        (["OTHER", "--file", "j.json"], "--file: only for one stream"),
    ],
)
def test_wrong_flags_are_named(offline: Cli, args: list[str], text: str) -> None:
    places = ["--from", "nats://127.0.0.1:1", "--to", "nats://127.0.0.1:2"]
    done = offline("move", "start", STREAM, *places, *args)
    assert done.code == 2
    assert text in done.err


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"id":"x","step":"dance"}'])
def test_a_damaged_journal_is_an_error_with_its_name(
    offline: Cli, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "j.json"
    path.write_bytes(content)
    done = offline("move", "resume", str(path))
    assert done.code == 1
    assert "j.json: not the journal of a move" in done.err


class _Away(Mover):
    """Its first step fails as while a server restarts; each try takes 45 seconds."""

    def __init__(self, journal: Journal, path: Path, clock: list[float], failures: int) -> None:
        self.journal, self.path = journal, path
        self.said: list[str] = []
        self._say = self.said.append
        self._clock, self._failures = clock, failures

    def _copy(self) -> None:
        self._clock[0] += 45.0
        if self._failures:
            self._failures -= 1
            raise NoLeaderError("no leader at the moment")
        self.journal.step = STEPS[-2]

    def _release(self) -> None:
        pass


@pytest.mark.parametrize("failures", [2, 3])
def test_a_step_begins_anew_for_a_minute_after_it_has_failed(
    failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("tradewind.recovery.recovery_errors.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("tradewind.recovery.recovery_errors.POLL_SECONDS", 0.0)
    journal = Journal(id="a", stream=STREAM, origin="o", target="t", method=Method.MIRROR)
    mover = _Away(journal, tmp_path / "j.json", clock, failures)
    if failures == 2:
        mover.run()
        assert mover.said[1] == "ORDERS: no leader at the moment; trying again"
        assert journal.step is MoveStep.DONE
    else:
        with pytest.raises(NoLeaderError):
            mover.run()
