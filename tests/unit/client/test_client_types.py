"""Typos in programs of users fail in mypy, at their line; without them the programs pass.

Each program has one line with a typo, marked by `# WRONG:` and the error; the next line is right.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WRONG = re.compile(r"^(.*?)  # WRONG: (\S+)\n(.*\n)", re.MULTILINE)

HEAD = """
import asyncio
from datetime import timedelta

import tradewind
import tradewind.sync
from tradewind.errors import NoRespondersError

"""
ASYNC = "async def main(nats: tradewind.Connection, js: tradewind.JetStream) -> None:\n"
BLOCKING = "def main(nats: tradewind.sync.Connection, js: tradewind.sync.JetStream) -> None:\n"
PROGRAMS = {
    "keyword_of_publish": ASYNC
    + """
    ack = await js.publish("orders.new", b"two apples", msgid="17")  # WRONG: call-arg
    ack = await js.publish("orders.new", b"two apples", msg_id="17")
    print(ack.stream, ack.seq, ack.duplicate)
""",
    "payload_of_publish": ASYNC
    + """
    await nats.publish("orders.new", {"apples": 2})  # WRONG: arg-type
    await nats.publish("orders.new", '{"apples": 2}', headers={"Trace": "7"})
    await nats.flush()
""",
    "literal_of_a_stream": ASYNC
    + """
    await js.manager.streams.add(name="ORDERS", subjects=["orders.>"], max_age="7d")
    await js.manager.streams.update("ORDERS", retention="limit")  # WRONG: arg-type
    await js.manager.streams.update("ORDERS", retention="limits")
    config = tradewind.StreamConfig(name="COPY", max_age=7 * 86_400 * 10**9)
    await js.manager.streams.add(config, mirror={"name": "ORDERS"}, storage="memory")
""",
    "member_of_a_source": ASYNC
    + """
    streams = js.manager.streams
    await streams.add(name="COPY", mirror={"nam": "ORDERS"})  # WRONG: arg-type
    await streams.add(name="COPY", mirror={"name": "ORDERS"})
""",
    "type_of_a_duration": ASYNC
    + """
    consumers = js.manager.consumers
    await consumers.add("ORDERS", durable_name="a", ack_wait=30, backoff=["1s", 5, timedelta(1)])
    await consumers.add("ORDERS", durable_name="b", backoff=5)  # WRONG: arg-type
    await consumers.add("ORDERS", durable_name="b", backoff=[5])
""",
    "method_of_a_message": ASYNC
    + """
    consumer = await js.consumers.get("ORDERS", "packer")
    async for message in consumer.fetch(10):
        message.ackk()  # WRONG: attr-defined
        message.ack()
    async with consumer.consume() as messages:
        async for message in messages:
            message.nak(delay=timedelta(seconds=message.metadata.delivered_count))
""",
    "missing_await": ASYNC
    + """
    state = js.manager.streams.info("ORDERS").state  # WRONG: attr-defined
    state = (await js.manager.streams.info("ORDERS")).state
    print(state.messages)
""",
    "forgotten_await": ASYNC
    + """
    js.manager.streams.delete("ORDERS")  # WRONG: unused-coroutine
    await js.manager.streams.delete("ORDERS")
""",
    "loop_over_a_connection": ASYNC
    + """
    async with tradewind.connect("nats://127.0.0.1:4222", name="reader") as other:
        async for message in other:  # WRONG: attr-defined
        async for message in other.subscribe("orders.>"):
            print(message.subject, message.data)
""",
    "type_of_items": ASYNC
    + """
    bucket = await js.kv.create("prices", history=5, ttl="1d")
    async with bucket.watch() as watcher:
        async for entry in watcher:
            text: str = entry.value  # WRONG: assignment
            text: str = entry.value.decode()
            print(entry.key, text)
""",
    "name_of_the_package": ASYNC
    + """
    try:
        await nats.request("price.apple", timeout=2)
    except NoRespondersError as error:
        print(error.subject)
    except tradewind.errors.StreamNotFoundErorr:  # WRONG: attr-defined
    except tradewind.errors.StreamNotFoundError:
        print("no stream")
""",
    "option_of_connect": """
async def main() -> None:
    async with tradewind.connect(reconect=False) as nats:  # WRONG: call-arg
    async with tradewind.connect(reconnect=False) as nats:
        print(nats.max_payload)

asyncio.run(main())
""",
    "setting_of_a_blocking_bucket": BLOCKING
    + """
    js.kv.create("prices", histroy=5)  # WRONG: call-arg
    js.kv.create("prices", history=5)
    js.objects.create("films", storage="memory", ttl=timedelta(days=1))
""",
    "literal_of_a_blocking_consumer": BLOCKING
    + """
    js.manager.consumers.add("ORDERS", ack_policy="explict")  # WRONG: arg-type
    js.manager.consumers.add("ORDERS", ack_policy="explicit")
    for message in js.consumers.get("ORDERS", "packer").fetch(10):
        message.ack()
""",
    "await_of_a_blocking_call": BLOCKING
    + """
    with nats.subscribe("orders.>", max_msgs=1) as messages:
        message = messages.next(timeout=1)
        subject: bytes = message.subject  # WRONG: assignment
        subject: str = message.subject
        print(subject)
""",
    "setting_of_a_run": ASYNC
    + """
    async def pack(message: tradewind.Msg) -> None:
        print(message.data)

    consumer = await js.consumers.get("ORDERS", "packer")
    await consumer.run(pack, concurency=8)  # WRONG: call-arg
    await consumer.run(pack, concurrency=8, retry=tradewind.Retry(delay="1s"))
""",
}


def with_typo(program: str) -> tuple[str, int, str]:
    """The program with its typo, the line at which it fails, and the code of the error."""
    match = WRONG.search(program)
    assert match, program
    wrong, code = match[1], match[2]
    text = program[: match.start()] + wrong + "\n" + program[match.end() :]
    line = text.splitlines().index(wrong) + 1
    return text, line, code


def without_typo(program: str) -> str:
    return WRONG.sub(lambda match: match[3], program)


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str, str]]]:
    """Line, code and text of each error of mypy --strict, by the name of the program."""
    folder = tmp_path_factory.mktemp("programs")
    for name, program in PROGRAMS.items():
        (folder / f"{name}_right.py").write_text(HEAD + without_typo(program))
        (folder / f"{name}_wrong.py").write_text(with_typo(HEAD + program)[0])
    run = subprocess.run(
        [
            str(Path(sys.executable).parent / "mypy"),
            "--strict",
            "--config-file=",
            "--follow-imports=silent",
            "--no-error-summary",
            f"--cache-dir={ROOT / '.mypy_cache' / 'programs'}",
            str(folder),
        ],
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, list[tuple[int, str, str]]] = {}
    for line in run.stdout.splitlines():
        match = re.fullmatch(r".*?(\w+)\.py:(\d+): error: (.*)  \[([\w-]+)\]", line)
        if match:
            found.setdefault(match[1], []).append((int(match[2]), match[4], match[3]))
        else:
            assert ": note: " in line, run.stdout + run.stderr
    assert not run.stderr, run.stderr
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_typo_fails_at_its_line(name: str, errors: dict[str, list[tuple[int, str, str]]]) -> None:
    _, line, code = with_typo(HEAD + PROGRAMS[name])
    found = errors.get(f"{name}_wrong", [])
    assert (line, code) in [(each[0], each[1]) for each in found], found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_without_the_typo_passes(
    name: str, errors: dict[str, list[tuple[int, str, str]]]
) -> None:
    assert errors.get(f"{name}_right", []) == []
