"""`tradewind apply` and `tradewind export`, on both servers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from cli_outcome import Cli
from harness import ServerProcess
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE
from tradewind.sync import connect

if TYPE_CHECKING:
    from tradewind.sync import JetStreamManager

FILE = """\
streams:
  ORDERS:
    subjects: [orders.>]
    max_age: 1d
    max_bytes: 10GB
    metadata: {team: shop}
    consumers:
      packer: {backoff: [1s, 5s, 1m], max_deliver: 5, filter_subject: orders.new}
      tail: {deliver_subject: out.tail, ack_policy: none, deliver_policy: new}
  LOGS:
    subjects: [logs.>]
    storage: memory
    retention: interest
    discard: new
    max_msgs_per_subject: 5
    consumer_limits: {inactive_threshold: 1h}
    republish: {src: logs.>, dest: copy.>, headers_only: true}
kv:
  settings: {history: 5, ttl: 1h}
objects:
  images: {max_bytes: 1GiB, compression: true, description: for the shop}
"""
Write = Callable[[str], str]
Types = Callable[..., None]


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """write("streams: ...") gives the path of a file."""

    def _write(text: str) -> str:
        path = tmp_path / "declared.yaml"
        path.write_text(text)
        return str(path)

    return _write


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> Types:
    def _types(*lines: str) -> None:
        monkeypatch.setattr("sys.stdin", Keyboard("".join(f"{line}\n" for line in lines)))

    return _types


@pytest.fixture
def streams(js_server: ServerProcess) -> Iterator[JetStreamManager]:
    with connect(js_server.url) as connection:
        yield connection.jetstream_manager()


def summary(text: str) -> str:
    return text.rstrip("\n").splitlines()[-1]


# ---------------------------------------------------------------- to the declared state


def test_everything_is_made_once_and_then_stays(
    cli: Cli, write: Write, streams: JetStreamManager
) -> None:
    path = write(FILE)
    made = cli("apply", "-f", path, "--force").ok()
    assert summary(made.out) == "6 to add, 0 to change, 0 to remove, 0 as declared"
    assert "+ consumer ORDERS > packer\n" in made.out
    assert "    + max_bytes: 10GiB\n" in made.out
    orders = streams.streams.info("ORDERS").config
    assert (orders.max_age, orders.max_bytes) == (86_400 * 10**9, 10 << 30)
    packer = streams.consumers.info("ORDERS", "packer").config
    assert packer.ack_policy == "explicit", "unless the file says otherwise"
    assert packer.backoff == [10**9, 5 * 10**9, 60 * 10**9]
    assert streams.streams.info("KV_settings").config.max_msgs_per_subject == 5
    assert streams.streams.info("OBJ_images").config.compression == "s2"
    again = cli("apply", path).ok()
    assert again.out == "0 to add, 0 to change, 0 to remove, 6 as declared\n"


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_export_is_a_file_that_changes_nothing_and_makes_the_same_again(
    cli: Cli, write: Write, streams: JetStreamManager, flags: tuple[str, ...]
) -> None:
    cli("apply", "-f", write(FILE), "--force").ok()
    before = {info.config.name: info.config for info in streams.streams.list().all()}
    consumers = {info.name: info.config for info in streams.consumers.list("ORDERS").all()}
    exported = write(cli("export", *flags).ok().out)
    assert cli("apply", exported, "--prune").ok().out == (
        "0 to add, 0 to change, 0 to remove, 6 as declared\n"
    )
    for name in before:
        streams.streams.delete(name)
    cli("apply", exported, "--force").ok()
    assert {info.config.name: info.config for info in streams.streams.list().all()} == before
    assert {i.name: i.config for i in streams.consumers.list("ORDERS").all()} == consumers


def test_drift_is_shown_and_repaired(cli: Cli, write: Write, streams: JetStreamManager) -> None:
    path = write(FILE)
    cli("apply", "-f", path, "--force").ok()
    streams.streams.update("ORDERS", max_msgs=100, max_age="1h", metadata={})
    streams.streams.update("KV_settings", max_msgs_per_subject=7)
    streams.consumers.update("ORDERS", "packer", max_deliver=9)
    shown = cli("apply", path, "--dry-run").ok().out
    assert (
        "~ stream ORDERS\n"
        "    - max_age: 1h\n"
        "    + max_age: 1d\n"
        "    + metadata: {team: shop}\n"
        "    - max_msgs: 100\n"
    ) in shown
    assert "~ kv settings\n    - history: 7\n    + history: 5\n" in shown
    assert "~ consumer ORDERS > packer\n    - max_deliver: 9\n    + max_deliver: 5\n" in shown
    assert streams.streams.info("ORDERS").config.max_msgs == 100, "it was only shown"
    cli("apply", path, "--force").ok()
    orders = streams.streams.info("ORDERS").config
    assert (orders.max_msgs, orders.max_age) == (-1, 86_400 * 10**9)
    assert cli("apply", path).ok().out.startswith("0 to add, 0 to change")


def test_what_a_bucket_has_beyond_its_settings_stays(
    cli: Cli, write: Write, streams: JetStreamManager
) -> None:
    cli("apply", "-f", write("kv: {b: {history: 3}}"), "--force").ok()
    streams.streams.update("KV_b", allow_direct=False)
    cli("apply", "-f", write("kv: {b: {history: 4}}"), "--force").ok()
    config = streams.streams.info("KV_b").config
    assert (config.max_msgs_per_subject, config.allow_direct) == (4, False)


def test_streams_that_swap_subjects_find_their_order(
    cli: Cli, write: Write, streams: JetStreamManager
) -> None:
    text = "streams: {A: {subjects: [%s]}, B: {subjects: [%s]}, C: {subjects: [c]}}"
    cli("apply", write(text % ("a", "b")), "--force").ok()
    cli("apply", write(text % ("a, b", "d")), "--force").ok()
    assert streams.streams.info("A").config.subjects == ["a", "b"]
    assert streams.streams.info("B").config.subjects == ["d"]


def test_several_files_are_one_declaration(cli: Cli, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(
            f"streams: {{{name.upper()}: {{subjects: [{name}]}}}}"
        )
    paths = [str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")]
    cli("apply", "-f", paths[0], "-f", paths[1], "--force").ok()
    assert cli("apply", *paths, "--prune").ok().out.startswith("0 to add, 0 to change, 0 to remove")
    twice = cli("apply", paths[0], paths[0])
    assert f"stream A is declared twice; first in {paths[0]}:1" in twice.err


def test_file_can_come_from_the_input(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, streams: JetStreamManager
) -> None:
    content = io.TextIOWrapper(io.BytesIO(b'{"streams": {"A": {"subjects": ["a"]}}}'))
    monkeypatch.setattr("sys.stdin", content)
    cli("apply", "-f", "-", "--force").ok()
    assert streams.streams.names().all() == ["A"]


# ---------------------------------------------------------------- what may be lost


def test_nothing_is_removed_without_prune(
    cli: Cli, write: Write, streams: JetStreamManager
) -> None:
    streams.streams.add(name="OTHER", subjects=["other"])
    outcome = cli("apply", "-f", write("streams: {A: {subjects: [a]}}"), "--force").ok()
    assert "stream OTHER is not in the file and is kept; --prune removes it" in outcome.err
    assert streams.streams.names().all() == ["A", "OTHER"]


@pytest.mark.parametrize(
    ("answer", "left"), [("n", ["A", "OTHER"]), ("", ["A", "OTHER"]), ("y", ["A"])]
)
def test_prune_asks_before_it_removes(
    cli: Cli, write: Write, types: Types, streams: JetStreamManager, answer: str, left: list[str]
) -> None:
    streams.streams.add(name="OTHER", subjects=["other"])
    streams.streams.add(name="A", subjects=["a"])
    types(answer)
    outcome = cli("apply", "-f", write("streams: {A: {subjects: [a]}}"), "--prune")
    assert outcome.out.startswith("- stream OTHER with 0 messages, 0 B\n")
    assert "Really make 1 change and lose stream OTHER" in outcome.err
    assert outcome.code == (0 if answer == "y" else EXIT_FAILED)
    assert streams.streams.names().all() == left


def test_without_a_terminal_and_force_nothing_is_changed(
    cli: Cli, write: Write, streams: JetStreamManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    outcome = cli("apply", "-f", write("streams: {A: {subjects: [a]}}"))
    assert outcome.code == EXIT_USAGE
    assert "use --force" in outcome.err
    assert streams.streams.names().all() == []


def test_prune_touches_only_what_the_file_lists_as_a_whole(
    cli: Cli, write: Write, streams: JetStreamManager
) -> None:
    streams.streams.add(name="A", subjects=["a"])
    streams.streams.add(name="B", subjects=["b"])
    for stream in ("A", "B"):
        for name in ("one", "two"):
            streams.consumers.add(stream, durable_name=name, ack_policy="explicit")
    cli("apply", "-f", write("kv: {x: {}, y: {}}\nobjects: {o: {}}"), "--force").ok()
    text = "streams: {A: {subjects: [a], consumers: {one: {}}}, B: {subjects: [b]}}\nkv: {x: {}}"
    outcome = cli("apply", "-f", write(text), "--prune", "--force").ok()
    assert summary(outcome.out) == "0 to add, 0 to change, 2 to remove, 4 as declared"
    assert streams.streams.names().all() == ["A", "B", "KV_x", "OBJ_o"]
    assert streams.consumers.names("A").all() == ["one"]
    assert streams.consumers.names("B").all() == ["one", "two"]


def test_consumers_of_running_programs_are_neither_removed_nor_exported(
    cli: Cli, write: Write, streams: JetStreamManager
) -> None:
    streams.streams.add(name="A", subjects=["a"])
    running = ConsumerConfig(name="running", inactive_threshold=3600 * 10**9)
    streams.consumers.add("A", running)
    cli("apply", "-f", write("streams: {A: {subjects: [a], consumers: {}}}"), "--prune").ok()
    assert streams.consumers.names("A").all() == ["running"]
    assert "running" not in cli("export").ok().out


def test_refusals_name_the_line_and_the_rest_is_done(
    cli: Cli, write: Write, streams: JetStreamManager
) -> None:
    streams.streams.add(name="A", subjects=["a"], storage="memory")
    text = "streams:\n  A: {subjects: [a]}\n  B: {subjects: [b]}\n"
    path = write(text)
    outcome = cli("apply", path, "--force")
    assert outcome.code == EXIT_FAILED
    assert "added stream B" in outcome.err
    assert f"{path}:2: stream A: refused: " in outcome.err
    assert "can not change storage type" in outcome.err
    assert "1 change made, 1 refused" in outcome.err
    assert streams.streams.names().all() == ["A", "B"]


# ---------------------------------------------------------------- for scripts


def test_plan_as_json(cli: Cli, write: Write) -> None:
    plan = cli(
        "apply", write("streams: {A: {subjects: [a], max_age: 90s}}"), "--dry-run", "-j"
    ).ok()
    assert plan.json == {
        "changes": [
            {
                "action": "add",
                "section": "streams",
                "name": "A",
                "consumer": "",
                "before": {},
                "after": {"subjects": ["a"], "max_age": "1m30s"},
            }
        ],
        "same": [],
        "unmentioned": [],
    }


def test_export_of_some_streams_into_a_file(cli: Cli, write: Write, tmp_path: Path) -> None:
    cli("apply", "-f", write(FILE), "--force").ok()
    target = tmp_path / "out.json"
    cli("export", "LOGS", "--json", "--output", str(target)).ok()
    content = msgspec.json.decode(target.read_bytes())
    assert list(content["streams"]) == ["LOGS"]
    assert not content["kv"]
    assert cli("export", "-o", str(target)).code == EXIT_USAGE, "it would be overwritten"
    assert msgspec.json.decode(target.read_bytes()) == content
    cli("export", "-o", str(target), "--force").ok()
    assert target.read_text().startswith("# Streams, consumers and buckets")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert "did you mean 'LOGS'?" in cli("export", "LOG").err


# ---------------------------------------------------------------- files that are wrong


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: nothing is declared; expected streams, kv, objects"),
        ("stream: {}", ":1: section 'stream' does not exist; did you mean 'streams'?"),
        ("streams:\n  A:\n    subject: a\n", ":3: unknown setting 'subject'; did you mean 'subj"),
        ("streams:\n  A:\n    subjects: a\n", ":3: subjects: Expected array, got str"),
        (
            "streams:\n  A:\n    subjects: [yes]\n",
            ":3: subjects: Expected str, got bool; YAML reads",
        ),
        ("streams:\n  A:\n    max_age: soon\n", ":3: max_age must be a duration such as"),
        ("streams:\n  A:\n    max_bytes: big\n", ":3: max_bytes must be a size such as"),
        ("streams:\n  A:\n    max_msgs: many\n", ":3: max_msgs: Expected int, got str"),
        ("streams:\n  A:\n    storage: tape\n", ":3: storage: Invalid enum value 'tape'"),
        (
            "streams:\n  A:\n    subjects: [a]\n    placement: {clustr: x}\n",
            ":4: unknown setting 'clustr'",
        ),
        ("streams:\n  A.B: {}\n", ":2: name 'A.B': no blanks, dots, slashes or wildcards"),
        ("streams:\n  A: 5\n", ":2: A: expected a mapping of settings, not 5"),
        ("streams:\n  KV_x: {}\n", ":2: 'KV_x' is the stream of a bucket; declare `kv: x`"),
        ("streams:\n  A: {subjects: [a.]}\n", ":2: stream A: "),
        ("streams:\n  A: {name: B}\n", ":2: unknown setting 'name'"),
        (
            "streams:\n  A:\n    consumers:\n      c:\n        ack_wait: 1x\n",
            ":5: ack_wait must be a duration such as",
        ),
        (
            "streams:\n  A:\n    consumers:\n      c: {pause_until: '2030-01-01T00:00:00Z'}\n",
            ":4: unknown setting 'pause_until'",
        ),
        (
            "streams:\n  A:\n    consumers:\n      c: {max_deliver: 1, backoff: [1s, 2s]}\n",
            ":4: consumer c: max deliver is required to be >",
        ),
        ("streams: {A: {}}\nkv:\n  b: {history: 100}\n", ":3: b: history: 1 to 64 values per key"),
        ("kv:\n  b: {mirror: 5}\n", ":2: expected the name of a bucket, not 5"),
        ("objects:\n  b: {history: 2}\n", ":2: unknown setting 'history'"),
        ('{"name": "A",\n"subjects": ["a"]}', ":1: this is a single configuration; write it as"),
        ("streams: [\n", "not valid YAML or JSON"),
        ("streams:\n  A: {}\n  A: {}\n", ":3: 'A' appears twice; first in line 2"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line_before_anything_is_asked(
    offline: Cli, write: Write, text: str, says: str
) -> None:
    outcome = offline("apply", "-f", write(text), "--server", "nats://127.0.0.1:1")
    assert outcome.code in (EXIT_FAILED, EXIT_USAGE)
    assert outcome.err.startswith("tradewind: error: ")
    assert says in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_no_file_says_what_to_type(offline: Cli) -> None:
    outcome = offline("apply")
    assert outcome.code == EXIT_USAGE
    assert "tradewind apply -f streams.yaml" in outcome.err
    assert "cannot be read" in offline("apply", "none.yaml").err


TEMPLATE_FILE = """\
streams: {}
templates:
  k8s: {match: k8s.*.>, stream: "k8s_{1}", idle: 30d, max_streams: 7, config: {max_age: 7d}}
"""


@pytest.mark.parametrize("js_server", ["tradewind"], indirect=True)
def test_templates_are_declared_exported_and_pruned(
    cli: Cli, write: Write, js_server: ServerProcess
) -> None:
    path = write(TEMPLATE_FILE)
    applied = cli("apply", "-f", path, "--force").ok()
    assert "+ template k8s" in applied.out
    assert "    + idle: 30d" in applied.out
    assert "1 as declared" in cli("apply", "-f", path, "--force").ok().out
    with connect(js_server.url) as connection:
        assert connection.jetstream().publish("k8s.web.pods", b"").stream == "k8s_web"
        # A stream that a template has made is no stream that the file forgot.
        pruned = cli("apply", "-f", path, "--force", "--prune").ok()
        assert "0 to remove" in pruned.out
        exported = cli("export", "--json").ok().json
        assert exported["templates"] == {
            "k8s": {
                "match": "k8s.*.>",
                "stream": "k8s_{1}",
                "max_streams": 7,
                "idle": "30d",
                "config": {"max_age": "7d"},
            }
        }
        assert "k8s_web" not in exported["streams"]
        assert "k8s_web" in cli("export", "k8s_web", "--json").ok().json["streams"]
        changed = cli("apply", "-f", write(TEMPLATE_FILE.replace("30d", "10d")), "--force").ok()
        assert "~ template k8s" in changed.out
        gone = cli("apply", "-f", write("templates: {}"), "--prune", "--force").ok()
        assert "- template k8s with its streams are kept" in gone.out
        assert list(connection.jetstream_manager().templates.list()) == []
        assert "k8s_web" in connection.jetstream_manager().streams.names().all()


@pytest.mark.parametrize("js_server", ["tradewind"], indirect=True)
def test_wrong_templates_are_refused_with_their_line(cli: Cli, write: Write) -> None:
    for old, new, text in (
        ("k8s.*.>", "k8s", "declared.yaml:3: template k8s: "),
        ("idle", "idel", "declared.yaml:3: unknown setting 'idel'; did you mean 'idle'?"),
        ("max_age: 7d", "name: x", "config must not contain name, subjects, mirror or sources"),
    ):
        refused = cli("apply", "-f", write(TEMPLATE_FILE.replace(old, new)), "--force")
        assert refused.code != 0
        assert text in refused.err


@pytest.mark.parametrize("js_server", ["official"], indirect=True)
def test_templates_need_a_server_that_has_them(cli: Cli, write: Write) -> None:
    refused = cli("apply", "-f", write(TEMPLATE_FILE), "--force")
    assert refused.code != 0
    assert "only a Tradewind server has templates" in refused.err
    assert "templates" not in cli("export", "--json").ok().json


TABLES = """\
streams:
  ORDERS:
    subjects: [orders.>]
    metadata: {team: shop}
    table: {to: lake/orders, partition: [day], every: 30s}
kv:
  PRICES:
    table: {to: /lake/prices, format: delta}
"""


def test_tables_are_declared_exported_changed_and_given_up(
    cli: Cli, write: Write, streams: JetStreamManager, tmp_path: Path
) -> None:
    assert cli("apply", write(TABLES), "--force").code == 0
    kept = streams.streams.info("ORDERS").config.metadata
    assert kept["team"] == "shop"
    assert msgspec.json.decode(kept["tradewind.table"]) == {
        "to": f"{tmp_path}/lake/orders",
        "partition": ["day"],
        "every": "30s",
    }
    bucket = msgspec.json.decode(
        streams.streams.info("KV_PRICES").config.metadata["tradewind.table"]
    )
    assert bucket == {"to": "/lake/prices", "format": "delta", "rows": "latest"}
    assert "0 to add, 0 to change" in cli("apply", write(TABLES), "--force").out
    exported = cli("export").out
    assert f"to: {tmp_path}/lake/orders" in exported
    assert "tradewind.table" not in exported
    assert "0 to change" in cli("apply", write(exported), "--dry-run").out
    changed = cli("apply", write(TABLES.replace("30s", "5m")), "--force").out
    assert "every: 5m" in changed
    without = TABLES.replace("    table: {to: lake/orders, partition: [day], every: 30s}\n", "")
    assert "- table:" in cli("apply", write(without), "--force").out
    assert streams.streams.info("ORDERS").config.metadata["team"] == "shop"
    assert "tradewind.table" not in streams.streams.info("ORDERS").config.metadata


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("{to: lake, formt: delta}", "'formt'; did you mean"),
        ("{format: delta}", "`to` is missing"),
        ("{to: lake, every: soon}", "'soon' is not a duration"),
        ("{to: lake, rows: latest}", "latest is for buckets"),
        ("{to: lake, format: csv}", "'csv'"),
        ("{to: lake, partition: day}", "partition:"),
        ("lake", "expected a mapping"),
    ],
)
def test_wrong_tables_are_refused_with_their_line(
    offline: Cli, write: Write, table: str, problem: str
) -> None:
    text = f"streams:\n  ORDERS:\n    subjects: [orders.>]\n    table: {table}\n"
    outcome = offline("apply", write(text))
    assert outcome.code != 0
    assert "declared.yaml:4" in outcome.err
    assert problem in outcome.err
