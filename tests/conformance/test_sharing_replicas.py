"""Mirrors and sources of streams of another account, through imports of its API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers_ops import fetch, next_message, reload, replies, running
from helpers_sharing import Crowd, asked

from harness import RawClient, wait_for

EXTERNAL = {"api": "js.E", "deliver": "deliver.I"}
CREATE = "$JS.API.CONSUMER.CREATE.>"
FLOW = "$JS.FC.>"
DELIVER = '{stream: {account: E, subject: "deliver.>"}}'


def service(subject: str, to: str = "") -> str:
    target = f', to: "{to}"' if to else ""
    return f'{{service: {{account: E, subject: "{subject}"}}{target}}}'


EVERYTHING = f"{service('$JS.API.>', 'js.E.>')}, {service(FLOW)}, {DELIVER}"
CONSUMERS = f"{service(CREATE, 'js.E.CONSUMER.CREATE.>')}, {service(FLOW)}, {DELIVER}"


def config(imports: str, exports: str = '{service: "$JS.API.>"}') -> str:
    return f"""
server_name: here
jetstream {{ store_dir: "STORE" }}
accounts {{
  E {{
    jetstream: enabled, users: [ {{user: e, password: pw}} ]
    exports: [ {exports}, {{service: "{FLOW}"}}, {{stream: "deliver.>"}} ]
  }}
  I {{ jetstream: enabled, users: [ {{user: i, password: pw}} ], imports: [{imports}] }}
  B {{ jetstream: enabled, users: [ {{user: b, password: pw}} ] }}
}}
"""


@contextmanager
def crowd_of(kind: str, folder: Path, text: str) -> Iterator[Crowd]:
    with running(kind, folder, text, "-m", "-1") as server:
        crowd = Crowd(server)
        yield crowd
        crowd.close()


def created(client: RawClient, name: str, **members: Any) -> None:
    answer = asked(client, f"$JS.API.STREAM.CREATE.{name}", {"name": name, **members})
    assert "error" not in answer, answer


def origin(owner: RawClient, *words: str, **config: Any) -> None:
    """The stream O, with a message on o.<word> for each."""
    created(owner, "O", subjects=["o.>"], **config)
    fill(owner, *words)


def fill(owner: RawClient, *words: str) -> None:
    for word in words:
        assert asked(owner, f"o.{word}", word)["stream"] == "O"


def info(client: RawClient, name: str) -> dict[str, Any]:
    return asked(client, f"$JS.API.STREAM.INFO.{name}")


def copied(client: RawClient, name: str, count: int) -> dict[str, Any]:
    """The information about a stream when it has so many messages."""

    def look() -> dict[str, Any] | None:
        found = info(client, name)
        assert found["state"]["messages"] <= count, found
        return found if found["state"]["messages"] == count else None

    reached: dict[str, Any] = wait_for(look, f"{count} messages in {name}")
    return reached


def subjects(client: RawClient, name: str) -> list[str]:
    state = info(client, name)["state"]
    return [
        asked(client, f"$JS.API.STREAM.MSG.GET.{name}", {"seq": seq})["message"]["subject"]
        for seq in range(state["first_seq"], state["last_seq"] + 1)
    ]


@pytest.mark.parametrize("imports", [EVERYTHING, CONSUMERS], ids=["api", "consumers only"])
def test_mirrors_and_sources_copy_what_is_imported(kind: str, tmp_path: Path, imports: str) -> None:
    with crowd_of(kind, tmp_path, config(imports)) as crowd:
        owner, client = crowd.join("e"), crowd.join("i")
        origin(owner, "a", "b", "a", "c")
        transforms = [{"src": "o.*", "dest": "t.{{wildcard(1)}}"}]
        created(client, "M", mirror={"name": "O", "external": EXTERNAL})
        for name, part in (
            ("F", {"filter_subject": "o.a"}),
            ("T", {"opt_start_seq": 3, "subject_transforms": transforms}),
        ):
            created(client, name, sources=[{"name": "O", "external": EXTERNAL, **part}])
        copied(client, "M", 4)
        copied(client, "F", 2)
        copied(client, "T", 2)
        fill(owner, "a", "d")
        mirror = copied(client, "M", 6)
        assert mirror["state"]["last_seq"] == 6
        assert mirror["config"]["mirror"] == {"name": "O", "external": EXTERNAL}
        shown = mirror["mirror"]
        assert 0 <= shown.pop("active") < 60_000_000_000
        assert shown == {"name": "O", "external": EXTERNAL, "lag": 0}
        source = copied(client, "F", 3)["sources"][0]
        assert (source["external"], source["seq"], source["lag"]) == (EXTERNAL, 5, 0)
        copied(client, "T", 4)
        assert subjects(client, "T") == ["t.a", "t.c", "t.a", "t.d"]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_was_copied_is_removed_from_a_queue(kind: str, tmp_path: Path, retention: str) -> None:
    with crowd_of(kind, tmp_path, config(CONSUMERS)) as crowd:
        owner, client = crowd.join("e"), crowd.join("i")
        origin(owner, retention=retention)
        created(client, "S", sources=[{"name": "O", "external": EXTERNAL}])
        wait_for(lambda: info(owner, "O")["state"]["consumer_count"] == 1)
        fill(owner, "a", "b")
        copied(client, "S", 2)
        wait_for(lambda: info(owner, "O")["state"]["messages"] == 0)


def test_a_consumer_that_was_made_for_a_copy_is_used_through_an_import(
    kind: str, tmp_path: Path
) -> None:
    with crowd_of(kind, tmp_path, config(EVERYTHING)) as crowd:
        owner, client = crowd.join("e"), crowd.join("i")
        origin(owner, "a", "b")
        given = {"name": "given", "deliver_subject": "deliver.I.given"}
        consumer = {**given, "durable_name": "given", "ack_policy": "flow_control"}
        answer = asked(
            owner,
            "$JS.API.CONSUMER.CREATE.O.given",
            {"stream_name": "O", "config": consumer},
        )
        assert "error" not in answer, answer
        created(client, "S", sources=[{"name": "O", "external": EXTERNAL, "consumer": given}])
        copied(client, "S", 2)
        fill(owner, "c")
        copied(client, "S", 3)
        floor = "$JS.API.CONSUMER.INFO.O.given"
        wait_for(lambda: asked(owner, floor)["ack_floor"]["stream_seq"] == 3)


def test_the_consumers_of_copies_are_hidden_in_the_account_of_the_origin(
    kind: str, tmp_path: Path
) -> None:
    with crowd_of(kind, tmp_path, config(CONSUMERS)) as crowd:
        owner, client = crowd.join("e"), crowd.join("i")
        origin(owner, "a")
        audits = crowd.join("e", "$JS.EVENT.ADVISORY.API")
        bystander = crowd.join("b", ">")
        created(client, "M", mirror={"name": "O", "external": EXTERNAL})
        copied(client, "M", 1)
        assert asked(owner, "$JS.API.CONSUMER.NAMES.O")["consumers"] == []
        assert info(owner, "O")["state"]["consumer_count"] == 0

        def details(query: str) -> dict[str, Any]:
            page = fetch(crowd.server, f"/jsz?acc=E&consumers=1{query}").json()
            found: dict[str, Any] = page["account_details"][0]["stream_detail"][0]
            return found

        assert "consumer_detail" not in details("")
        assert "direct_consumer_detail" not in details("")
        (hidden,) = details("&direct-consumers=1")["direct_consumer_detail"]
        assert hidden["name"].startswith("JS_MIRROR_")
        while True:
            event = json.loads(next_message(audits)[2])
            if event["subject"] == "$JS.API.CONSUMER.CREATE.O":
                break
        assert event["client"] == {"acc": "I", "svc": "E", "server": "here"}
        assert replies(bystander, "") == []
        page = fetch(crowd.server, "/jsz?acc=I&streams=1").json()
        shown = page["account_details"][0]["stream_detail"][0]["mirror"]
        assert (shown["name"], shown["external"], shown["lag"]) == ("O", EXTERNAL, 0)


def test_a_copy_gets_no_more_than_the_export_allows(kind: str, tmp_path: Path) -> None:
    only = "$JS.API.CONSUMER.CREATE.O.*.o.a"
    imports = f"{service(only, 'js.E.CONSUMER.CREATE.O.*.o.a')}, {service(FLOW)}, {DELIVER}"
    with crowd_of(kind, tmp_path, config(imports, f'{{service: "{only}"}}')) as crowd:
        owner, client = crowd.join("e"), crowd.join("i")
        origin(owner, "a", "b")
        source = {"name": "O", "external": EXTERNAL}
        created(client, "ALL", sources=[source])
        created(client, "B", sources=[{**source, "filter_subject": "o.b"}])
        created(client, "A", sources=[{**source, "filter_subject": "o.a"}])
        copied(client, "A", 1)
        fill(owner, "b", "a")
        copied(client, "A", 2)
        for name in ("ALL", "B"):
            found = info(client, name)
            assert (found["state"]["messages"], found["sources"][0]["active"]) == (0, -1)
        assert set(subjects(client, "A")) == {"o.a"}


def test_copies_continue_after_a_restart(kind: str, tmp_path: Path) -> None:
    with crowd_of(kind, tmp_path, config(CONSUMERS)) as crowd:
        owner, client = crowd.join("e"), crowd.join("i")
        origin(owner, "a", "b")
        created(client, "M", mirror={"name": "O", "external": EXTERNAL})
        created(client, "S", sources=[{"name": "O", "external": EXTERNAL}])
        copied(client, "M", 2)
        copied(client, "S", 2)
    with crowd_of(kind, tmp_path, config(CONSUMERS)) as crowd:
        owner, client = crowd.join("e"), crowd.join("i")
        fill(owner, "c")
        copied(client, "M", 3)
        copied(client, "S", 3)
        assert subjects(client, "S") == ["o.a", "o.b", "o.c"]


def test_an_import_that_is_removed_ends_the_copy_and_its_return_continues_it(
    kind: str, tmp_path: Path
) -> None:
    with crowd_of(kind, tmp_path, config(CONSUMERS)) as crowd:
        owner, client = crowd.join("e"), crowd.join("i")
        origin(owner, "a")
        created(client, "M", mirror={"name": "O", "external": EXTERNAL})
        copied(client, "M", 1)
        assert "Reloaded" in reload(crowd.server, stored(config(""), tmp_path))
        fill(owner, "b", "c")
        assert info(client, "M")["state"]["messages"] == 1
        assert "Reloaded" in reload(crowd.server, stored(config(CONSUMERS), tmp_path))
        copied(client, "M", 3)
        assert subjects(client, "M") == ["o.a", "o.b", "o.c"]


def test_answers_to_flow_control_that_are_not_imported_are_reported(
    kind: str, tmp_path: Path
) -> None:
    imports = f"{service(CREATE, 'js.E.CONSUMER.CREATE.>')}, {DELIVER}"
    with crowd_of(kind, tmp_path, config(imports)) as crowd:
        owner, client = crowd.join("e"), crowd.join("i")
        created(owner, "O", subjects=["o.>"])
        for _ in range(60):
            asked(owner, "o.a", "x" * 60_000)
        created(client, "M", mirror={"name": "O", "external": EXTERNAL})
        error = wait_for(lambda: info(client, "M")["mirror"].get("error"), "an error", 30)
        assert error == {
            "code": 500,
            "err_code": 10228,
            "description": "stream source consumer stalled on flow control",
        }
        assert 0 < info(client, "M")["state"]["messages"] < 60
        assert "Reloaded" in reload(crowd.server, stored(config(CONSUMERS), tmp_path))
        assert "error" not in copied(client, "M", 60)["mirror"]


def test_the_exports_of_one_stream_suffice(kind: str, tmp_path: Path) -> None:
    create = "CONSUMER.CREATE.O"
    exports = f'{{service: "$JS.API.{create}"}}, {{service: "$JS.API.{create}.>"}}'
    imports = ", ".join(
        [
            service(f"$JS.API.{create}", f"js.E.{create}"),
            service(f"$JS.API.{create}.>", f"js.E.{create}.>"),
            service(FLOW),
            DELIVER,
        ]
    )
    with crowd_of(kind, tmp_path, config(imports, exports)) as crowd:
        owner, client = crowd.join("e"), crowd.join("i")
        origin(owner, "a")
        created(owner, "P", subjects=["p.>"])
        asked(owner, "p.secret", "x")
        part = {"external": EXTERNAL, "filter_subject": "o.a"}
        created(client, "F", sources=[{"name": "O", **part}])
        created(client, "M", mirror={"name": "O", "external": EXTERNAL})
        created(client, "X", mirror={"name": "P", "external": EXTERNAL})
        copied(client, "F", 1)
        copied(client, "M", 1)
        assert info(client, "X")["state"]["messages"] == 0


def test_messages_go_round_in_a_cycle_of_accounts(kind: str, tmp_path: Path) -> None:
    def account(name: str, other: str) -> str:
        user = name.lower()
        return f"""
  {name} {{
    jetstream: enabled, users: [ {{user: {user}, password: pw}} ]
    exports: [ {{service: "$JS.API.>"}}, {{stream: "deliver.{name}.>"}} ]
    imports: [
      {{service: {{account: {other}, subject: "$JS.API.>"}}, to: "js.{other}.>"}}
      {{stream: {{account: {other}, subject: "deliver.{other}.>"}}}}
    ]
  }}
"""

    text = f"""
jetstream {{ store_dir: "STORE" }}
accounts {{ {account("E", "I")} {account("I", "E")} }}
"""
    with crowd_of(kind, tmp_path, text) as crowd:
        clients = {"E": crowd.join("e"), "I": crowd.join("i")}
        for name, other in (("E", "I"), ("I", "E")):
            external = {"api": f"js.{other}", "deliver": f"deliver.{other}"}
            created(
                clients[name],
                "R",
                storage="memory",
                max_msgs=3,
                subjects=[f"{name}.>"],
                sources=[{"name": "R", "external": external}],
            )
        asked(clients["E"], "E.a", "x")
        wait_for(lambda: info(clients["E"], "R")["state"]["last_seq"] >= 5)
        assert info(clients["E"], "R")["state"]["messages"] <= 3
        asked(clients["I"], "$JS.API.STREAM.DELETE.R")


def stored(text: str, folder: Path) -> str:
    """As `running` writes it."""
    return text.replace("STORE", str(folder))
