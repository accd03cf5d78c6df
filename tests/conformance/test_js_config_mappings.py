"""Subject transforms of streams. The cases are in tests/cases/mappings.jsonl."""

from __future__ import annotations

import pytest
from helpers_js import ApiClient

from cpu_clock import process_seconds
from js_cases import MappingCase, mapping_cases

# Far above what a server takes for all of these, and far below what it took for one of them.
CPU_SECONDS_MAX = 2.0
LENGTH = 100_000


@pytest.mark.parametrize("case", mapping_cases(), ids=str)
def test_transform(js: ApiClient, case: MappingCase) -> None:
    transform = {"src": case.source, "dest": case.destination}
    config = {
        "name": "S",
        "subjects": ["a", "a.>", "zz.>"],
        "subject_transform": transform,
        # On disk the official server may find messages of the stream that was there just before.
        "storage": "memory",
    }
    answer = js.request("STREAM.CREATE.S", config)
    if case.error:
        assert list(answer["error"].values()) == [400, 10156, f"stream transform: {case.error}"]
        return
    js.raw.send(f"PUB {case.subject} answers 0\r\n\r\n")
    assert b'"seq":1' in js.raw.read_message()[2]
    message = js.done("STREAM.MSG.GET.S", {"seq": 1})["message"]
    assert message["subject"] == (case.subject if case.result is None else case.result)


@pytest.mark.parametrize(
    "item", ["{{wildcard(", "{{", "{{partition(1,", "{{ wildcard ( ", "}}", ")"]
)
def test_hostile_destination_is_refused_without_much_work(js: ApiClient, item: str) -> None:
    """A function that is opened thousands of times is searched for once."""
    destination = "{{" + item * (LENGTH // len(item)) + "}}"
    transform = {"src": "a.*", "dest": destination}
    before = process_seconds(js.server.process.pid)
    answer = js.request("STREAM.CREATE.S", {"name": "S", "subject_transform": transform})
    assert process_seconds(js.server.process.pid) - before < CPU_SECONDS_MAX
    assert list(answer["error"].values())[:2] == [400, 10156]
    assert answer["error"]["description"].startswith(
        "stream transform: invalid mapping destination: unknown function in {{"
    )
