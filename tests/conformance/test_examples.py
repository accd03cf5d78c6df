"""The examples run as they are, against our server and, where they take an address, the official
one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers_ops import running

import tradewind
import tradewind.sync
from harness import StartServer
from ports import free_ports
from websocket_frames import websocket_config, websocket_port

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"


def run(*arguments: str, folder: Path = ROOT) -> list[str]:
    """The lines that an example prints; it must end well and say nothing on stderr."""
    result = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=folder,
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    return result.stdout.splitlines()


def test_hello_shows_the_three_patterns(start: StartServer) -> None:
    assert run(str(EXAMPLES / "hello.py"), start().url) == [
        "orders.42.created: two apples {'Trace': '7'}",
        "shout: HELLO",
        "nobody.listens.here: no responders",
        "jobs: 100 done, shared by 2 workers",
    ]


def test_our_client_shows_the_three_patterns(start: StartServer) -> None:
    assert run(str(EXAMPLES / "client.py"), start().url) == [
        "orders.42.created: two apples {'Trace': '7'}",
        "shout: HELLO",
        "nobody.listens.here: no responders",
        "jobs: 100 done, shared by 2 workers",
    ]


def test_celery_runs_on_a_nats_server(start: StartServer, tmp_path: Path) -> None:
    server = start("", "-js", "-sd", str(tmp_path))
    assert run(str(EXAMPLES / "celery_tasks_app.py"), server.url) == [
        "apple: 3",
        "the pear had to wait: True",
        "total: 11",
    ]


def test_our_client_in_a_program_without_a_loop(start: StartServer) -> None:
    assert run(str(EXAMPLES / "client_sync.py"), start().url) == [
        "{'readings.north': 499500, 'readings.south': 499500}",
        "total: 999000",
    ]


def test_a_payment_that_was_changed_on_disk_is_found() -> None:
    """The servers of the example are its own."""
    assert run(str(EXAMPLES / "integrity.py")) == [
        "intact: True, 99 messages verified, removed: {'deleted': 1}, proved up to 100",
        "proved: '42 EUR to account 0' is entry 41",
        "changed: sequence 42: content changed",
        "intact: False, 99 messages verified, removed: {'deleted': 1}, proved up to 41",
    ]


def test_an_order_is_one_trace() -> None:
    """The server of the example is its own."""
    assert run(str(EXAMPLES / "tracing.py")) == [
        "publish orders.new",
        "  publish orders.new",
        "    store ORDERS",
        "  deliver billing",
        "    ack billing",
        "  process orders.new",
        "    publish invoices.new",
        "      publish invoices.new",
    ]


def test_bucket_is_changed_and_watched(start: StartServer, tmp_path: Path) -> None:
    server = start("", "-js", "-sd", str(tmp_path))
    assert run(str(EXAMPLES / "kv.py"), server.url) == [
        "too late: its last revision is 2",
        "history: ['0.40', '0.45', '']",
        "watched: fruit.pear PUT 0.40",
        "watched: fruit.pear PUT 0.45",
        "watched: fruit.pear DEL ",
        "keys: ['nut.pea']",
    ]


def test_object_is_made_on_the_way(start: StartServer, tmp_path: Path) -> None:
    server = start("", "-js", "-sd", str(tmp_path))
    assert run(str(EXAMPLES / "objects.py"), server.url) == [
        "report.txt: 1088890 bytes in 11 chunks",
        "last line: line 99999",
        "names: ['report.txt', 'latest']",
    ]


def test_streams_are_read_and_written_as_frames(start: StartServer, tmp_path: Path) -> None:
    server = start("", "-js", "-sd", str(tmp_path))
    *lines, followed = run(str(EXAMPLES / "frames.py"), server.url)
    assert lines == [
        "stored 4 rows; the same frame again: 0",
        "4 messages, amounts [12.5, 7.0, 30.0, 1.25]",
        "[('north', 30.0), ('south', 7.0), ('west', 1.25)]",
    ]
    assert followed in ("followed 1 messages", "followed 2 messages")  # one or both at once


def test_services_are_asked_found_and_counted(start: StartServer) -> None:
    assert run(str(EXAMPLES / "services.py"), start().url) == [
        "largest: 14",
        "refused: 400: numbers, please",
        "found 2 instances of version 1.0.0",
        "2 requests, 1 error",
    ]


ACCOUNTS_OUTPUT = [
    "FACTORY does not see what SHOP publishes",
    'robot: nats: permissions violation for publish to "order.2"',
    "connected: FACTORY/robot, SHOP/clerk, SYS/guard",
]


def test_accounts_on_a_server_with_their_file(kind: str, tmp_path: Path) -> None:
    config = (EXAMPLES / "accounts.conf").read_text().replace("127.0.0.1:8222", "127.0.0.1:-1")
    with running(kind, tmp_path, config) as server:
        assert run(str(EXAMPLES / "accounts.py"), server.url) == ACCOUNTS_OUTPUT
        assert "[WRN]" not in server.log


def test_accounts_starts_a_server_of_its_own_from_any_folder(tmp_path: Path) -> None:
    assert run(str(EXAMPLES / "accounts.py"), folder=tmp_path) == ACCOUNTS_OUTPUT


def test_websocket_on_a_running_server(start: StartServer) -> None:
    port = websocket_port(start(websocket_config()))
    lines = run(str(EXAMPLES / "websocket.py"), f"ws://127.0.0.1:{port}")
    assert lines == ["INFO", "chat.room: hello"]


def test_streams_shows_streams_consumers_buckets_and_objects(
    start: StartServer, tmp_path: Path
) -> None:
    server = start("", "-js", "-sd", str(tmp_path))
    assert run(str(EXAMPLES / "streams.py"), server.url) == [
        "stored 3 messages; message 2 again: duplicate is True",
        "pulled 'a pear', delivery 2",
        "in order ['two apples', 'a pear', 'ten figs']",
        "a pear is 0.45 at revision 2",
        "pear.png has 400000 bytes in 4 chunks",
    ]


def test_bills_are_written_exactly_once(start: StartServer, tmp_path: Path) -> None:
    server = start("", "-js", "-sd", str(tmp_path))
    assert run(str(EXAMPLES / "exactly_once.py"), server.url) == [
        "SHOP_ORDERS: 50 messages",
        "SHOP_BILLS: 50 messages",
    ]


def test_a_transaction_needs_no_ids(tmp_path: Path) -> None:
    with tradewind.serve(jetstream=tmp_path) as server:
        assert run(str(EXAMPLES / "transactions.py"), server.url) == [
            "TX_BILLS: 50 messages, each once: True",
            "TX_BOOKS: 50 messages, each once: True",
            "the program has died: True",
        ]


def test_refused_messages_wait(tmp_path: Path) -> None:
    with running("tradewind", tmp_path, "jetstream {store_dir: STORE}") as server:
        assert run(str(EXAMPLES / "nak_policy.py"), server.url) == [
            "refused for busy: not again within 0.2 s",
            "refused for busy: not again within 0.4 s",
            "refused for any other reason: not again within 0.1 s",
        ]


def test_workers_keep_the_order_of_each_key(tmp_path: Path) -> None:
    with running("tradewind", tmp_path, "jetstream {store_dir: STORE}") as server:
        *lines, shares = run(str(EXAMPLES / "order.py"), server.url)
        assert lines == [f"{name}: 20 events, in order: True" for name in ("ada", "bob", "eve")]
        assert shares.startswith("workers that had a share: ")


def test_payloads_obey_their_schema(tmp_path: Path) -> None:
    with running("tradewind", tmp_path, "jetstream {store_dir: STORE}") as server:
        at_the_stream, at_the_client, *rest = run(str(EXAMPLES / "schemas.py"), server.url)
        reason = 'does not obey schema example-order.1: /id: "seven" is not of type "integer"'
        assert at_the_stream == f"the stream says: the payload {reason}"
        assert at_the_client == f"the client says: the payload for 'example.orders.new' {reason}"
        refusal = (
            "schema example-order: the new version is not backward compatible: it cannot read"
            " payloads of version 1: /fruit: is required now, and was not before"
        )
        assert rest == ["message 1 is stored", refusal, "the schema has version 2"]


def test_first_publishes_make_streams(tmp_path: Path) -> None:
    with running("tradewind", tmp_path, "jetstream {store_dir: STORE}") as server:
        assert run(str(EXAMPLES / "templates.py"), server.url) == [
            "ada: message 1 of tenant_ada",
            "bob: message 1 of tenant_bob",
            "ada: message 2 of tenant_ada",
            "eve: refused, True",
        ]


def test_a_truncation_is_undone(tmp_path: Path) -> None:
    with running("tradewind", tmp_path, "jetstream {store_dir: STORE}") as server:
        assert run(str(EXAMPLES / "truncate.py"), server.url) == [
            "would remove 8: sequences 64 to 99",
            "left: 92",
            "brought back: 8",
            "there are again: 100",
        ]


@pytest.mark.parametrize(
    ("name", "output"),
    [
        (
            "embedded.py",
            [
                "connected to <nats server v2.15.1> as client 1",
                "hello from the same process",
                "stopped",
            ],
        ),
        ("embedded_thread.py", ["INFO", "MSG weather.north 1 5", "windy", "stopped"]),
        ("websocket.py", ["INFO", "chat.room: hello"]),
    ],
)
def test_embedded_server(name: str, output: list[str]) -> None:
    address, *rest = run(str(EXAMPLES / name))
    assert address.startswith("listening on ")
    assert rest == output


def test_the_fixture_works_in_pytest() -> None:
    *_, summary = run("-m", "pytest", "-p", "no:cacheprovider", str(EXAMPLES / "test_orders.py"))
    assert summary.startswith("2 passed")


def test_every_example_is_run_here_or_with_spark_or_a_cluster() -> None:
    tests = Path(__file__).parent.parent
    others = [path for name in ("spark", "cluster") for path in (tests / name).glob("test_*.py")]
    text = "".join(path.read_text() for path in (Path(__file__), *others))
    assert [p.name for p in EXAMPLES.iterdir() if p.is_file() and p.name not in text] == []


def test_servers_are_joined_by_a_leaf_connection() -> None:
    assert run(str(EXAMPLES / "leaf_nodes.py")) == [
        "the hub got orders.1: two apples",
        "the hub has a copy of 3 readings",
    ]


def test_backups_bring_back_what_was_lost() -> None:
    assert run(str(EXAMPLES / "backups.py")) == [
        "a backup of ['KV_prices', 'ORDERS']",
        "the next one is smaller: True",
        "KV_prices is back as KV_prices: 1 messages",
        "ORDERS is back as ORDERS_BEFORE: 101 messages",
        "apple costs 1.20",
        "problems: []",
        "kept 1 and removed 1",
    ]


def test_a_stream_fails_over_and_comes_back() -> None:
    # A port that the system gives out may be another's while the server that had it is down.
    ports = map(str, free_ports(2))
    assert run(str(EXAMPLES / "disaster_recovery.py"), *ports) == [
        "east handles ['apples']",
        "west handles ['pears', 'plums']",
        "east is lost",
        "west has everything up to sequence 4",
        "west handles ['figs', 'grapes']",
        "east is back: two writers",
        "saved: 1 message",
        "east handles ['dates']",
    ]


def test_service_decides_who_may_connect(start: StartServer) -> None:
    server = start((EXAMPLES / "auth_callout.conf").read_text())
    prices, refused = run(str(EXAMPLES / "auth_callout.py"), server.url)
    assert prices == "visitor: prices.apple 0.40"
    assert refused.startswith("ann with a wrong password: the server refused the login:")


def test_the_worker_packs_orders_in_its_processes(start: StartServer, tmp_path: Path) -> None:
    program = EXAMPLES / "worker.py"
    server = start("", "-js", "-sd", str(tmp_path))
    with tradewind.sync.connect(server.url, timeout=60) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="ORDERS", subjects=["orders.>"])
        js.publish("orders.new", '{"id": 1, "fruit": "apple"}')
        js.publish("orders.new", '{"id": 2, "fruit": "stone"}')
        command = ["-m", "tradewind.cli", "worker", f"{program.stem}:app", "--server", server.url]
        with subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=program.parent
        ) as worker:
            try:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "packed order 1: apple\n"
            finally:
                worker.terminate()
                assert worker.wait(60) == 0
