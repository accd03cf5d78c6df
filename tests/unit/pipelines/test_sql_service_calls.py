"""The SQL service and its callers over a real socket, with runners that need no Spark."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.relations.queries import QueryResult
from tradewind.pipelines.sql import caller as caller_module
from tradewind.pipelines.sql import query_session
from tradewind.pipelines.sql import service as service_module
from tradewind.pipelines.sql.caller import Caller, ElsewhereError, OtherVersionError, is_held, stop
from tradewind.pipelines.sql.query_session import PendingAnswer, SessionLostError, SqlQuestion
from tradewind.pipelines.sql.service import CALLERS_MAX, AlreadyRunningError, SqlService
from tradewind.pipelines.sql.wire import (
    FRAME_BYTES_MAX,
    SOCKET_NAME,
    Ask,
    Cancel,
    Channel,
    Hello,
    StatementError,
    StatementFailure,
    Welcome,
    WireError,
    meeting_folder,
)

LIMIT_SECONDS = 60


class FakeRunners:
    """Runners that answer with the question, or (`hang`) when somebody says so or cancels."""

    def __init__(self) -> None:
        self.made = 0
        self.fails_to_start = ""
        self.hanging = threading.Semaphore(0)
        self.cancelled = threading.Event()
        self.released = threading.Event()
        self.hears_cancel = True
        self.may_start = threading.Event()
        self.may_start.set()
        self.is_stopped = False
        self.asked: list[SqlQuestion] = []

    def start(self) -> None:
        assert self.may_start.wait(LIMIT_SECONDS)
        if self.fails_to_start:
            raise PipelineError(self.fails_to_start)

    def make(self) -> FakeRunner:
        self.made += 1
        return FakeRunner(self)

    def stop(self) -> None:
        self.is_stopped = True


class FakeRunner:
    def __init__(self, runners: FakeRunners) -> None:
        self.runners = runners

    def begin(self, group: str, text: str) -> None:
        pass

    def cancel(self, group: str) -> None:
        self.runners.cancelled.set()
        if self.runners.hears_cancel:
            self.runners.released.set()

    def progress(self, group: str) -> tuple[int, int]:
        return 3, 8

    def ask(self, question: SqlQuestion) -> QueryResult:
        self.runners.asked.append(question)
        if question.text in ("hang", "insert slowly", "insert at once"):
            self.runners.hanging.release()
            assert self.runners.released.wait(LIMIT_SECONDS)
        if question.text == "insert slowly":
            raise PipelineError("7 of its rows were written")
        if question.text == "fail":
            raise PipelineError("no such table")
        if question.text == "misspelt":
            raise StatementError("syntax error", 2, 7)
        if question.text == "lost":
            raise SessionLostError("Spark has stopped")
        rows = [(question.text, number) for number in range(question.rows_max)]
        return QueryResult(["text", "number"], rows, has_more=question.rows_max > 2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(service_module, "_ASK_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(service_module, "LOCK_SECONDS", 0.2)
    found = meeting_folder(create=True)
    assert found is not None
    return found


class Running:
    """A service in a thread of this process."""

    def __init__(self, folder: Path, idle_seconds: float = 3600) -> None:
        self.runners = FakeRunners()
        self.service = SqlService(folder, "local[*]", idle_seconds, self.runners)
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.service.run()
        except BaseException as error:
            self.error = error

    def start(self) -> Running:
        self.thread.start()
        wait_for(lambda: connect() is not None)
        return self

    def join(self) -> None:
        self.thread.join(LIMIT_SECONDS)
        assert not self.thread.is_alive()


def wait_for(condition: Callable[[], Any]) -> None:
    pause = threading.Event()
    for _ in range(LIMIT_SECONDS * 100):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it has not come true")


def connect() -> Caller | None:
    caller = Caller.connect("state")
    if caller is not None:
        caller.close()
    return caller


@pytest.fixture
def running(folder: Path) -> Iterator[Running]:
    service = Running(folder).start()
    yield service
    service.runners.released.set()
    stop()
    service.join()
    assert service.runners.is_stopped


def ask(text: str, **more: Any) -> tuple[str, bool]:
    caller = Caller.connect()
    assert caller is not None
    written: list[str] = []
    try:
        has_more = caller.ask(Ask(text, **more), written.append)
    finally:
        caller.close()
    return "".join(written), has_more


def test_an_answer_comes_in_the_format_that_was_asked_for(running: Running) -> None:
    assert ask("a", rows_max=2, format="csv") == ("text,number\na,0\na,1\n", False)
    text, has_more = ask("a", rows_max=30_000, format="json")
    assert text.count("\n") == 30_000
    assert text.endswith('{"text":"a","number":29999}\n')
    assert has_more
    assert running.runners.made == 1, "the runner that is there is used again"


def test_what_is_wrong_with_a_question_is_told_and_nothing_else_ends(running: Running) -> None:
    with pytest.raises(PipelineError, match="no such table") as caught:
        ask("fail")
    assert not isinstance(caught.value, ElsewhereError)
    assert ask("a", rows_max=1)[1] is False


def test_the_place_of_an_error_is_told(running: Running) -> None:
    with pytest.raises(StatementError, match="syntax error") as caught:
        ask("misspelt")
    assert (caught.value.line, caught.value.column) == (2, 7)


def test_programs_get_names_kinds_and_rows(running: Running) -> None:
    header, *rows = ask("a", rows_max=2, format="rows")[0].splitlines()
    assert header == '{"columns":["text","number"],"numbers":[false,true]}'
    assert rows == ['["a","0"]', '["a","1"]']


def test_progress_is_told_to_those_who_want_it_and_another_thread_can_cancel(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "PROGRESS_SECONDS", 0.01)
    caller = Caller.connect()
    assert caller is not None
    told: list[tuple[int, int]] = []

    def progress(done: int, whole: int) -> None:
        if not told:
            caller.cancel()
        told.append((done, whole))

    with pytest.raises(PipelineError, match="cancelled"):
        caller.ask(Ask("hang", wants_progress=True), lambda _text: None, progress)
    assert told[0] == (3, 8)
    assert running.runners.cancelled.is_set()
    caller.close()


def test_two_callers_are_answered_at_once(running: Running) -> None:
    answers: list[str] = []
    first = threading.Thread(target=lambda: answers.append(ask("hang", rows_max=1)[0]))
    first.start()
    assert running.runners.hanging.acquire(timeout=LIMIT_SECONDS)
    assert ask("second", rows_max=1)[0]
    assert answers == []
    running.runners.released.set()
    first.join(LIMIT_SECONDS)
    assert "hang" in answers[0]
    assert running.runners.made == 2


def test_an_interruption_of_the_caller_cancels_the_query(running: Running) -> None:
    caller = Caller.connect()
    assert caller is not None

    class Interrupting(Channel):
        """Ctrl-C while the answer is waited for."""

        def from_service(self) -> Any:
            if not running.runners.cancelled.is_set() and not interrupted:
                interrupted.append(True)
                assert running.runners.hanging.acquire(timeout=LIMIT_SECONDS)
                raise KeyboardInterrupt
            return super().from_service()

    interrupted: list[bool] = []
    caller._channel = Interrupting(caller._channel._socket)
    with pytest.raises(KeyboardInterrupt):
        caller.ask(Ask("hang"), lambda _text: None)
    assert running.runners.cancelled.is_set()
    caller.close()
    assert ask("next", rows_max=1)[0]


def test_a_caller_that_dies_cancels_its_query(running: Running) -> None:
    caller = Caller.connect()
    assert caller is not None
    caller._channel.send(Ask("hang"))
    assert running.runners.hanging.acquire(timeout=LIMIT_SECONDS)
    caller.close()
    assert running.runners.cancelled.wait(LIMIT_SECONDS)


class InterruptingChannel(Channel):
    """Ctrl-C while the answer is waited for."""

    runners: FakeRunners
    is_interrupted = False

    def from_service(self) -> Any:
        if not self.is_interrupted:
            self.is_interrupted = True
            assert self.runners.hanging.acquire(timeout=LIMIT_SECONDS)
            raise KeyboardInterrupt
        return super().from_service()


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("insert slowly", "7 of its rows were written"),
        ("insert at once", "it was complete already: text number .* insert at once 0"),
    ],
)
def test_whoever_interrupts_a_write_is_told_what_it_left(
    running: Running, text: str, outcome: str
) -> None:
    caller = Caller.connect()
    assert caller is not None
    channel = InterruptingChannel(caller._channel._socket)
    channel.runners = running.runners
    caller._channel = channel
    with pytest.raises(KeyboardInterrupt, match=outcome):
        caller.ask(Ask(text, may_write=True, rows_max=1), lambda _text: None)
    caller.close()
    assert ask("next", rows_max=1)[0]


def test_what_a_write_left_whose_caller_died_is_in_the_log(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caller = Caller.connect()
    assert caller is not None
    caller._channel.send(Ask("insert slowly", may_write=True))
    assert running.runners.hanging.acquire(timeout=LIMIT_SECONDS)
    caller.close()
    wait_for(lambda: "insert slowly: 7 of its rows were written" in caplog.text)


def test_a_write_that_does_not_stop_is_not_called_done(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "WRITE_CANCEL_SECONDS", 0.05)
    running.runners.hears_cancel = False
    caller = Caller.connect()
    assert caller is not None
    caller._channel.send(Ask("insert slowly", may_write=True))
    assert running.runners.hanging.acquire(timeout=LIMIT_SECONDS)
    caller._channel.send(Cancel())
    caller._channel.limit(LIMIT_SECONDS)
    answer = caller._channel.from_service()
    assert isinstance(answer, StatementFailure)
    assert "it may still write" in answer.reason
    caller.close()


def test_who_may_write_and_under_which_id_is_what_the_caller_says(running: Running) -> None:
    statement = "0123456789abcdef" * 2
    ask("a", may_write=True, statement=statement, directory="/here", rows_max=1)
    ask("b", statement="../up", rows_max=1)
    first, second = running.runners.asked
    assert (first.may_write, first.statement, first.folder) == (True, statement, "/here")
    assert not second.may_write
    assert "/" not in second.statement


def test_a_query_that_does_not_stop_keeps_its_runner(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "CANCEL_SECONDS", 0.05)
    running.runners.hears_cancel = False
    caller = Caller.connect()
    assert caller is not None
    caller._channel.send(Ask("hang"))
    assert running.runners.hanging.acquire(timeout=LIMIT_SECONDS)
    caller._channel.send(Cancel())
    caller._channel.limit(LIMIT_SECONDS)
    answer = caller._channel.from_service()
    assert isinstance(answer, StatementFailure)
    assert "cancelled" in answer.reason
    caller.close()
    assert ask("next", rows_max=1)[0]
    assert running.runners.made == 2


def test_more_callers_than_it_takes_are_sent_elsewhere(running: Running) -> None:
    held = []
    for _ in range(CALLERS_MAX):
        caller = Caller.connect()
        assert caller is not None
        held.append(caller)
    with pytest.raises(ElsewhereError, match="answers 8 callers at a time"):
        ask("one too many")
    for caller in held:
        caller.close()
    wait_for(lambda: not running.service._callers)
    assert ask("a", rows_max=1)[0]


def test_callers_that_come_while_spark_starts_wait_for_it(folder: Path) -> None:
    running = Running(folder)
    running.runners.may_start.clear()
    running.thread.start()
    wait_for(connect)
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(ask("early", rows_max=1)[0]))
    asking.start()
    running.runners.may_start.set()
    asking.join(LIMIT_SECONDS)
    assert "early" in answers[0]
    assert stop()
    running.join()


def test_a_spark_that_does_not_start_ends_the_service_with_its_reason(folder: Path) -> None:
    running = Running(folder)
    running.runners.fails_to_start = "no Java"
    running.thread.start()
    running.join()
    assert isinstance(running.error, PipelineError)
    assert str(running.error) == "no Java"
    assert not is_held(folder)


def test_a_session_that_is_lost_ends_the_service(folder: Path) -> None:
    running = Running(folder).start()
    with pytest.raises(ElsewhereError, match="Spark has stopped"):
        ask("lost")
    running.join()
    assert connect() is None


def test_it_ends_by_itself_when_nobody_asks(folder: Path) -> None:
    running = Running(folder, idle_seconds=0)
    running.thread.start()
    running.join()
    assert running.error is None
    assert list(folder.glob("*.sock")) == []


def test_there_is_one_service_at_a_time(running: Running, folder: Path) -> None:
    second = Running(folder)
    second.thread.start()
    second.join()
    assert isinstance(second.error, AlreadyRunningError)
    assert ask("a", rows_max=1)[0], "the first one has its socket still"


def test_what_a_killed_service_leaves_stands_in_nobodys_way(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(folder / SOCKET_NAME))
        left.listen()
    assert (folder / SOCKET_NAME).exists()
    assert connect() is None
    assert stop() is False
    running = Running(folder).start()
    assert ask("a", rows_max=1)[0]
    assert stop()
    running.join()


def test_a_service_that_hears_nothing_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_module, "HELLO_SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        deaf.bind(str(folder / SOCKET_NAME))
        deaf.listen()
        with pytest.raises(ElsewhereError, match="does not respond"):
            Caller.connect()


def test_a_socket_has_its_name_only_when_it_listens(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that found one which does not listen yet would start another service."""
    was_there: list[bool] = []

    class Listener(socket.socket):
        def listen(self, *waiting: int) -> None:
            was_there.append((folder / SOCKET_NAME).exists())
            super().listen(*waiting)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", Listener)
        running = Running(folder).start()
    assert was_there == [False]
    assert stop()
    running.join()
    assert list(folder.glob("sql.[sn]*")) == []


def fill(listener: socket.socket, path: str, opened: ExitStack) -> None:
    """As many callers as the kernel lets wait."""
    listener.bind(path)
    listener.listen(0)
    with suppress(BlockingIOError):
        while True:
            waiting = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            waiting.setblocking(False)
            waiting.connect(path)


def test_a_service_where_too_many_wait_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_module, "HELLO_SECONDS", 0.05)
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        fill(listener, str(folder / SOCKET_NAME), opened)
        with pytest.raises(ElsewhereError, match="too many callers are waiting for it"):
            Caller.connect()
        assert caller_module._listener(folder) == 0


def test_a_caller_waits_where_too_many_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        fill(listener, str(folder / SOCKET_NAME), opened)

        def answer_all(_seconds: float) -> None:
            """While the caller pauses, those in front of it are done with."""
            listener.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    connection, _ = listener.accept()
                    connection.close()
            listener.settimeout(LIMIT_SECONDS)
            answering.start()

        def answer() -> None:
            channel = Channel(listener.accept()[0])
            assert isinstance(channel.from_caller(), Hello)
            channel.send(Welcome("1"))
            channel.close()

        answering = threading.Thread(target=answer, daemon=True)
        monkeypatch.setattr(caller_module.time, "sleep", answer_all)
        caller = Caller.connect()
        assert caller is not None
        caller.close()
        answering.join(LIMIT_SECONDS)


@pytest.mark.parametrize(
    ("member", "value", "error", "reason"),
    [
        ("version", "0.0.1", OtherVersionError, "is version 0.0.1"),
        ("place", "x", ElsewhereError, "another Python or home folder"),
        ("master", "spark://a:7077", ElsewhereError, "--master spark://a:7077"),
        ("folder", "/elsewhere", ElsewhereError, "looks for files in /elsewhere"),
    ],
)
def test_a_service_that_would_answer_otherwise_is_not_asked(
    running: Running, member: str, value: str, error: type[Exception], reason: str
) -> None:
    caller = Caller.connect("state")
    assert caller is not None
    question = Ask("select * from parquet.`lake`")
    caller.check(question, "local[*]")
    setattr(caller.welcome, member, value)
    with pytest.raises(error, match=reason.replace("[", r"\[")):
        caller.check(question, "local[*]")
    caller.close()


def test_a_login_that_only_this_process_can_look_up_is_not_sent(running: Running) -> None:
    caller = Caller.connect("state")
    assert caller is not None
    with pytest.raises(ElsewhereError, match="other environment variables"):
        caller.check(Ask("select 1", login={"token": "env:TOKEN"}), "local[*]")
    caller.close()


def test_the_folder_is_private_or_not_used(folder: Path) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(PipelineError, match="mode 0700"):
        Caller.connect()
    folder.chmod(0o700)
    folder.rename(folder.with_name("other"))
    folder.symlink_to("other")
    with pytest.raises(PipelineError, match="mode 0700"):
        meeting_folder(create=True)


def test_a_folder_that_is_too_long_for_a_socket_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp/" + "x" * 100)
    with pytest.raises(PipelineError, match="set XDG_RUNTIME_DIR to a shorter folder"):
        Caller.connect()


@pytest.mark.parametrize("data", [b"\xff" * 8, b"\0\0\0\2{]", b"\0\0\0\2[]", b"\0\0\0\x09{}", b""])
def test_bytes_that_are_no_frames_end_only_their_caller(running: Running, data: bytes) -> None:
    folder = meeting_folder()
    assert folder is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.settimeout(LIMIT_SECONDS)
        stranger.connect(str(folder / SOCKET_NAME))
        stranger.sendall(data)
        stranger.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):  # what it had not read yet is thrown away
            assert stranger.recv(100) == b""
    assert ask("a", rows_max=1)[0]


def test_a_frame_has_a_largest_size() -> None:
    one, other = socket.socketpair()
    with one, other:
        with pytest.raises(WireError, match="too many for one frame"):
            Channel(one).send(Hello("x" * FRAME_BYTES_MAX))
        one.sendall((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        with pytest.raises(WireError, match="are allowed"):
            Channel(other).from_caller()


class LateRunner:
    """A runner whose first query hears of being cancelled only when it is told again."""

    def __init__(self) -> None:
        self.told = 0
        self.stopped = threading.Event()

    def begin(self, group: str, text: str) -> None:
        pass

    def cancel(self, group: str) -> None:
        self.told += 1
        if self.told == 3:
            self.stopped.set()

    def progress(self, group: str) -> tuple[int, int]:
        return 0, 0

    def ask(self, question: SqlQuestion) -> QueryResult:
        assert self.stopped.wait(LIMIT_SECONDS)
        raise PipelineError("stopped")


def test_a_query_that_begins_after_it_was_cancelled_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query_session, "CANCEL_AGAIN_SECONDS", 0.01)
    runner = LateRunner()
    asked = PendingAnswer(runner, SqlQuestion("select 1"))
    asked.cancel()
    assert asked.wait(LIMIT_SECONDS)
    assert runner.told == 3
