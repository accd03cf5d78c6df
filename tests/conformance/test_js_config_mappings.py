"""Subject transforms of streams. The cases are in tests/cases/mappings.jsonl."""

from __future__ import annotations

import pytest
from helpers_js import ApiClient

from js_cases import MappingCase, mapping_cases


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
