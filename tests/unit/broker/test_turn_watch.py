"""Turns above the budget: what counts as one, who is named, and how often the log says so."""

from __future__ import annotations

import pytest

from tradewind.broker.turn_watch import BUDGET_NS, QUIET_NS, TurnWatch
from tradewind.errors import ConfigError
from tradewind.monitor.facade import MonitorView
from tradewind.monitor.stepping import at_once
from tradewind.server.links.turn_budget import EXIT_STRICT, set_turn_budget
from tradewind.testing import FakeClock, InProcessServer, MemoryLog
from tradewind.testing.fake_disk import SimulatedDisk

MS = 1_000_000


class Ground:
    """A watch with its clock and its log."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.watch = TurnWatch(self.clock, self.log)

    def turn(self, *, input_ms: int = 0, end_ms: int = 0, **steps_ms: int) -> None:
        """One turn: sockets are read, steps follow, and it ends."""
        self.clock.work_ns(input_ms * MS)
        self.watch.begin()
        for kind, duration_ms in steps_ms.items():
            self.clock.work_ns(duration_ms * MS)
            self.watch.lap(kind, f"this {kind}")
        self.clock.work_ns(end_ms * MS)
        self.watch.end_turn()

    def counts(self) -> dict[str, int]:
        return {name: kind.count for name, kind in self.watch.kinds.items()}


def test_a_turn_within_the_budget_is_not_counted() -> None:
    ground = Ground()
    ground.turn(input_ms=20, request=15, end_ms=15)
    assert BUDGET_NS == 50 * MS
    assert ground.counts() == {}
    assert ground.log.lines == []
    assert ground.watch.longest_ns == 50 * MS


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        ({"input_ms": 40, "request": 20}, "input"),
        ({"input_ms": 20, "request": 40}, "request"),
        ({"input_ms": 20, "request": 15, "timer": 30}, "timer"),
        ({"request": 20, "end_ms": 40}, "end of turn"),
    ],
)
def test_a_turn_above_the_budget_is_counted_as_its_largest_part(
    turn: dict[str, int], kind: str
) -> None:
    ground = Ground()
    ground.turn(**turn)
    assert ground.counts() == {kind: 1}
    assert ground.watch.kinds[kind].longest_ns == ground.watch.longest_ns
    assert f"mostly with {kind}" in ground.log.texts("warn")[0]


def test_many_small_steps_of_one_kind_count_together_and_the_longest_is_named() -> None:
    ground = Ground()
    ground.watch.begin()
    for number in range(30):
        ground.clock.work_ns((3 if number == 7 else 2) * MS)
        ground.watch.lap("request", f"number {number}")
    ground.watch.end_turn()
    assert ground.counts() == {"request": 1}
    line = ground.log.texts("warn")[0]
    assert "busy for 61 ms (budget 50 ms), mostly with request, 30 times (61 ms): number 7" in line


def test_time_in_which_the_thread_did_not_run_is_no_turn() -> None:
    ground = Ground()
    ground.clock.advance_ns(10_000 * MS)
    ground.turn(input_ms=10)
    ground.watch.begin()
    ground.clock.advance_ns(200 * MS)
    ground.clock.work_ns(30 * MS)
    ground.watch.lap("request", "put to sleep by a busy machine")
    ground.watch.end_turn()
    assert ground.counts() == {}
    assert ground.watch.longest_ns <= 32 * MS


def test_the_start_of_a_server_is_no_turn() -> None:
    ground = Ground()
    ground.clock.work_ns(300 * MS)
    ground.watch.start()
    ground.turn(input_ms=1)
    assert ground.counts() == {}
    assert ground.watch.longest_ns <= 2 * MS


def test_short_turns_do_not_add_up() -> None:
    ground = Ground()
    for _ in range(1000):
        ground.turn(input_ms=1)
    assert ground.counts() == {}


def test_a_commit_in_the_turn_gives_the_rest_its_name() -> None:
    ground = Ground()
    ground.watch.saw_commits = True
    ground.turn(input_ms=60)
    ground.turn(input_ms=60)
    assert ground.counts() == {"commit": 1, "input": 1}


def test_the_log_has_one_line_per_kind_and_minute_with_the_number_of_the_others() -> None:
    ground = Ground()
    for _ in range(5):
        ground.turn(request=60)
    ground.turn(timer=60)
    assert len(ground.log.lines) == 2
    assert ground.counts() == {"request": 5, "timer": 1}
    ground.clock.advance_ns(QUIET_NS)
    ground.turn(request=60)
    assert len(ground.log.lines) == 3
    assert ground.log.lines[-1][1].endswith("; 4 more such turns since the last line")


def test_what_a_client_has_sent_cannot_forge_a_line_of_the_log() -> None:
    ground = Ground()
    ground.watch.begin()
    ground.clock.work_ns(60 * MS)
    ground.watch.lap("service", "a\r\n[ERR] \udcff" + "x" * 10_000)
    ground.watch.end_turn()
    line = ground.log.texts("warn")[0]
    assert r"a\r\n[ERR]" in line
    assert "\n" not in line
    assert len(line) < 500


# -------------------------------------------------------------------- in a server


def slow_service(server: InProcessServer, subject: str, work_ms: int) -> list[str]:
    called: list[str] = []

    def handler(message: object) -> None:
        called.append(getattr(message, "subject", ""))
        server.clock.work_ns(work_ms * MS)

    server.broker.accounts["$G"].subscribe(subject, handler)
    return called


def test_services_that_take_long_are_divided_over_turns_in_their_order() -> None:
    server = InProcessServer()
    called = slow_service(server, "slow.*", 6)
    client = server.connect(b'CONNECT {"verbose":false}\r\n')
    client.send(b"".join(b"PUB slow.%d 0\r\n\r\n" % number for number in range(40)))
    assert called == [f"slow.{number}" for number in range(40)]
    assert server.broker.watch.kinds == {}
    assert server.broker.watch.longest_ns <= 14 * MS


def test_a_service_above_the_budget_is_named_with_its_subject() -> None:
    server = InProcessServer()
    slow_service(server, "slow", 80)
    server.connect(b'CONNECT {"verbose":false}\r\n').send(b"PUB slow 0\r\n\r\n")
    assert {name: kind.count for name, kind in server.broker.watch.kinds.items()} == {"service": 1}
    assert "mostly with service (80 ms): slow" in server.log.texts("warn")[0]


def test_a_request_is_named_by_its_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    from tradewind.api.endpoints import ENDPOINT_BY_NAME
    from tradewind.jetstream import handlers

    server = InProcessServer(disk=SimulatedDisk())
    handler = handlers.handler_of(ENDPOINT_BY_NAME["stream_info"])

    def slow(request: object) -> object:
        server.clock.work_ns(70 * MS)
        return handler(request)  # type: ignore[arg-type]

    monkeypatch.setitem(handlers.HANDLERS, "stream_info", slow)  # type: ignore[arg-type]
    client = server.connect(b'CONNECT {"verbose":false}\r\n')
    client.send(b"PUB $JS.API.STREAM.INFO.S r 0\r\n\r\n")
    assert list(server.broker.watch.kinds) == ["request stream_info"]
    assert "(70 ms): $JS.API.STREAM.INFO.S" in server.log.texts("warn")[-1]


def test_varz_and_metrics_show_the_turns_above_the_budget() -> None:
    server = InProcessServer()
    slow_service(server, "slow", 80)
    client = server.connect(b'CONNECT {"verbose":false}\r\n')
    for _ in range(3):
        client.send(b"PUB slow 0\r\n\r\n")
    view = MonitorView(server.broker)
    turns = view.varz().tradewind_turns
    assert (turns.budget_ms, turns.longest_ms, turns.over_budget) == (50, 80, 3)
    assert {name: (kind.count, kind.longest_ms) for name, kind in turns.kinds.items()} == {
        "service": (3, 80)
    }
    metrics = b"".join(at_once(view.metrics())).decode()
    assert 'tradewind_turns_over_budget_total{kind="service"} 3\n' in metrics
    assert 'tradewind_turn_over_budget_longest_seconds{kind="service"} 0.08\n' in metrics
    assert "tradewind_turn_longest_seconds 0.08\n" in metrics


# -------------------------------------------------------------------- the environment


def test_the_environment_sets_the_budget() -> None:
    ground = Ground()
    set_turn_budget(ground.watch, ground.log, {"TRADEWIND_TURN_BUDGET_MS": "20"})
    ground.turn(request=21)
    assert ground.counts() == {"request": 1}


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "3600001", "9" * 100])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    ground = Ground()
    with pytest.raises(ConfigError, match="TRADEWIND_TURN_BUDGET_MS must be a number of millisec"):
        set_turn_budget(ground.watch, ground.log, {"TRADEWIND_TURN_BUDGET_MS": text})


def test_a_strict_server_ends_with_the_first_turn_above_the_budget() -> None:
    ground = Ground()
    ends: list[int] = []
    set_turn_budget(ground.watch, ground.log, {"TRADEWIND_STRICT_TURNS": "1"}, ends.append)
    ground.turn(request=50)
    assert ends == []
    ground.turn(request=51)
    assert ends == [EXIT_STRICT]
    assert "mostly with request" in ground.log.texts("error")[0]
