"""With `python -O` there are no assertions; whatever others send is refused all the same.

Assertions of a test would be gone too, so the code under test runs in a process of its own, without
them. It reports what happened, and the test, which has its assertions, looks at the report and at
the disk.
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest

from harness import RawClient, ServerProcess
from tradewind.store.format.s2 import compress

ROOT = Path(__file__).parent.parent.parent / "src" / "tradewind"
SECONDS = 60

# ---------------------------------------------------------------------- which assertions there are

# They read what others have written: bytes of clients, requests, files, backups, tokens.
DECODERS = (
    "api/go_json.py", "api/go_time.py", "api/plain_json.py", "api/requests.py", "chain/", "jwt/",
    "client/core/headers.py", "client/core/protocol.pyx", "client/core/upgrade.py",
    "route/mapping.py", "server/config/", "server/links/proxy_header.py",
    "server/websocket/websocket_handshake.py", "store/backup/", "store/format/",
    "store/repair/", "wire/",
)  # fmt: skip
# Recounts for tests and for TRADEWIND_INVARIANTS; see CONTRIBUTING.md.
RECOUNTS = ("testing/", "store/table/totals_audit.py", "invariants.pyx")
RECOUNTING = re.compile(r"(_?check|verify)\w*")
# Everything else, with the reason why no input can make it fail.
OWN_STATE = {
    "consumer/pending.pyx": "a consumer sets its order before it delivers",
    "jetstream/usage.py": "the server counts these sums, and checks them on request only",
    "api/errors.py": "the table of errors is ours",
    "broker/info.py": "the names of the fields are ours",
    "cli/frame/output.py": "a table is filled by the code that made it",
    "client/why/reasons.py": "the words of the commands are ours",
    "cluster/cluster_plan.py": "the ports were taken in this function",
    "dashboard/data/series.py": "a series is filled by the code that made it",
    "dashboard/look/elements.py": "an element is made by our own pages",
    "jetstream/transactions/transaction_planning.py": "sequences were given out in the same step",
    "jetstream/transactions/given_up_letters.py": "the key was looked up before",
    "pipelines/sql/query_session.py": "the thread has said that it is done",
    "server/tls/tls.py": "only listeners use this context",
    "spark/writes/sink.py": "Spark sets it for each task of a streaming query",
    "store/commits/syncer.pyx": "who commits what is ours",
    "store/files/disk.py": "mappings are made by the store",
    "store/files/open_files.pyx": "pins are counted by the store",
    "store/folder/consumer_states.py": "there is one commit at a time",
    "store/folder/filestore.py": "there is one commit at a time, of what was written",
    "store/folder/stream_chain.py": "a commit syncs what was written",
    "store/table/chain_links.pyx": "files are read before anything is added",
}


def is_narrowing(test: ast.expr, *, of_state_only: bool) -> bool:
    """Whether it only tells the type checker what is known; of attributes, or of anything."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return all(is_narrowing(part, of_state_only=of_state_only) for part in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if isinstance(test, ast.Call):
        is_checked = isinstance(test.func, ast.Name) and test.func.id == "isinstance"
        return is_checked and not of_state_only
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.IsNot):
        return False
    is_none = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
    return is_none and (isinstance(test.left, ast.Attribute) or not of_state_only)


def python_assertions(path: Path) -> list[tuple[int, ast.Assert]]:
    """Those inside of functions; outside they compare constants when the module is loaded."""
    text = path.read_text()
    if "assert " not in text:
        return []  # most modules; reading them all takes seconds
    tree = ast.parse(text)
    outside = {id(node) for node in tree.body}
    return [
        (node.lineno, node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and id(node) not in outside
    ]


def cython_assertions(path: Path) -> list[tuple[int, str]]:
    """Those that run in any server: not below `invariants.checked`, nor in a recount."""
    lines = path.read_text().split("\n")
    found = []
    for index, line in enumerate(lines):
        if not (match := re.match(r"( +)assert (.*)", line)):
            continue
        indent, is_optional = len(match[1]), False
        for above in reversed(lines[:index]):
            depth = len(above) - len(above.lstrip())
            if above.strip() and depth < indent:
                indent = depth
                name = re.match(r" *(?:cp?def|def)\b.*?(\w+)\(", above)
                is_optional |= "if invariants.checked" in above
                is_optional |= bool(name and RECOUNTING.fullmatch(name[1]))
                if name:
                    break
        if not is_optional:
            found.append((index + 1, match[2]))
    return found


def test_no_assertion_guards_against_input() -> None:
    """Such a check would be gone with `python -O`, and an attack a fault of ours otherwise."""
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(RECOUNTS):
            continue
        is_decoder = place.startswith(DECODERS)
        for number, node in python_assertions(path):
            if not is_narrowing(node.test, of_state_only=is_decoder) and (
                is_decoder or place not in OWN_STATE
            ):
                wrong.append(f"{place}:{number}: {ast.unparse(node)}")
    for path in sorted(ROOT.rglob("*.pyx")):
        place = path.relative_to(ROOT).as_posix()
        for number, text in cython_assertions(path):
            is_known = place.startswith(RECOUNTS) or place in OWN_STATE
            if not is_known and (" is not None" not in text or place.startswith(DECODERS)):
                wrong.append(f"{place}:{number}: assert {text}")
    assert not wrong, "raise an error instead, or say why no input can make it fail"


def test_every_exception_to_the_rule_is_needed() -> None:
    for place in OWN_STATE:
        path = ROOT / place
        if path.suffix == ".py":
            assert any(
                not is_narrowing(node.test, of_state_only=False)
                for _, node in python_assertions(path)
            ), place
        else:
            assert cython_assertions(path), place


# ---------------------------------------------------------------------- what happens without them

# What is refused, with the error that it has to raise.
REFUSED = {
    'layout.stream_folder("A", "../S")': "StoreError",
    'layout.stream_folder("..", "S")': "StoreError",
    "layout.block_file_name(0)": "StoreError",
    "varint.append_uvarint(bytearray(), -1)": "ValueError",
    "varint.append_varint(bytearray(), 1 << 63)": "ValueError",
    'varint.ByteReader(b"abc", "file", 2, 9)': "ValueError",
    'varint.ByteReader(b"abc", "file", -1)': "ValueError",
    'sequence_set.SequenceSet.decode(b"abc", 2, 1 << 40)': "ValueError",
    'chain_links.root_of_peaks(1, b"x" * 33)': "ValueError",
    'chain_links.root_of_peaks(1, b"")': "ValueError",
    'chain_links.tree_root(1, b"x" * 33)': "ValueError",
    'keyring.Keyring("/nowhere")._seed_path("../../seed")': "CommandError",
    "list(units._messages(bytes(64), Report()))": "StoreError",
    'list(ArchiveTask(sys.argv[2], sys.argv[3], RowFilter()).batches(["subject"]))': "StoreError",
}
PROGRAM = """
import json, sys
assert False, "this program runs without assertions"
from tradewind.cli.auth import keyring
from tradewind.spark.providers.backup_reading import ArchiveTask
from tradewind.spark.contract.filters import RowFilter
from tradewind.store.format import layout, sequence_set, varint
from tradewind.store.repair import units
from tradewind.store.table import chain_links

class Report:
    damage = ()

raised = {}
for text in json.loads(sys.argv[1]):
    try:
        eval(text)
        raised[text] = "nothing"
    except Exception as error:
        raised[text] = type(error).__name__
print(json.dumps(raised))
"""


def hostile_backup(folder: Path) -> Path:
    """An old backup, a tar of the files of a stream."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        member = tarfile.TarInfo("owned")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"owned"))
    path = folder / "stream.tar.s2"
    path.write_bytes(compress(packed.getvalue()))
    return path


@pytest.mark.slow
def test_decoders_refuse_without_assertions_what_they_refuse_with_them(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    stream = f"{'../' * 12}{str(outside)[1:]}"
    texts = msgspec.json.encode(list(REFUSED)).decode()
    backup = str(hostile_backup(tmp_path))
    done = subprocess.run(
        [sys.executable, "-O", "-c", PROGRAM, texts, backup, stream],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert not done.returncode, done.stderr
    assert msgspec.json.decode(done.stdout) == REFUSED
    assert not outside.exists()


# Requests that a server refuses.
REQUESTS = [
    ("STREAM.CREATE.a", {"name": "../a", "subjects": ["a"]}),
    ("STREAM.CREATE.a", {"name": "b", "subjects": ["a"]}),
    ("STREAM.UPDATE.S", {"name": "T", "subjects": ["s"]}),
    ("STREAM.RESTORE.a", {"config": {"name": "/a"}, "state": {}}),
    ("STREAM.RESTORE.a/b", {"config": {"name": "a/b"}, "state": {}}),
    ("STREAM.CREATE.c", {"name": "c", "subjects": [7]}),
    ("STREAM.CREATE.c", {"name": "c", "subjects": ["c"], "mirror": 7}),
    ("STREAM.MSG.GET.S", {"seq": "7"}),
    ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"durable_name": "../c"}}),
]


@pytest.mark.slow
def test_server_without_assertions_answers_as_ever(tmp_path: Path) -> None:
    answers = []
    for optimize in ("", "1"):
        store = tmp_path / f"store{optimize}"
        server = ServerProcess(
            "tradewind",
            ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(store)],
            env={"PYTHONOPTIMIZE": optimize},
            fresh=True,
        )
        try:
            with RawClient(server.wait_ready().port) as client:
                client.connect()
                body = {"name": "S", "subjects": ["s"]}
                assert "error" not in ask(client, "STREAM.CREATE.S", body)
                answers.append([ask(client, *request).get("error") for request in REQUESTS])
        finally:
            server.stop()
        assert {path.name for path in (store / "jetstream" / "$G" / "streams").iterdir()} == {"S"}
        assert {path.name for path in tmp_path.iterdir()} <= {"store", "store1"}
    assert answers[0] == answers[1]
    assert all(answers[1]), answers[1]


def ask(client: RawClient, subject: str, body: object) -> dict[str, object]:
    data = msgspec.json.encode(body)
    number = os.urandom(8).hex()
    inbox = f"_INBOX.{number}"
    client.send(f"SUB {inbox} {number}\r\nUNSUB {number} 1\r\n")
    client.send(f"PUB $JS.API.{subject} {inbox} {len(data)}\r\n")
    client.send(data + b"\r\n")
    answer: dict[str, object] = msgspec.json.decode(client.read_message()[2])
    return answer
