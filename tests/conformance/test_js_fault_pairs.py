"""Requests with two or three faults at once, random ones, on both servers at once.

A server names the first fault that it finds, so the answers show the order of its checks. A
thorough run takes other faults, and many more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from helpers_faults import (
    FaultCase,
    Scene,
    limited_servers,
    publish_case,
    random_changes,
    request_case,
    unlike_answers,
)
from helpers_json_faults import json_cases, json_scenes
from helpers_publish_faults import publish_scenes
from helpers_request_faults import request_scenes
from helpers_stream_faults import consumer_scenes, stream_scenes

from harness import ServerProcess
from thoroughness import some

SEED = "1"


def changed_requests(scene: Scene, count: int, seed: str) -> Iterator[FaultCase]:
    return (request_case(scene, changes) for changes in random_changes(scene, count, seed))


def changed_messages(scene: Scene, count: int, seed: str) -> Iterator[FaultCase]:
    return (publish_case(scene, changes) for changes in random_changes(scene, count, seed))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    with limited_servers(tmp_path_factory.mktemp("both")) as servers:
        yield servers


@pytest.mark.parametrize(
    ("scenes", "cases_of", "count"),
    [
        pytest.param(stream_scenes(), changed_requests, some(8, 400), id="streams"),
        pytest.param(consumer_scenes(), changed_requests, some(3, 150), id="consumers"),
        pytest.param(publish_scenes(), changed_messages, some(8, 400), id="messages"),
        pytest.param(request_scenes(), changed_requests, some(2, 50), id="requests"),
        pytest.param(json_scenes(), json_cases, some(5, 200), id="json"),
    ],
)
def test_the_first_fault_of_several_is_the_same(
    both: list[ServerProcess],
    scenes: list[Scene],
    cases_of: Callable[[Scene, int, str], Iterator[FaultCase]],
    count: int,
) -> None:
    wanted = [case for scene in scenes for case in cases_of(scene, count, SEED)]
    found = unlike_answers(both, wanted)
    assert not found, "\n".join(found)


def test_faults_are_the_same_where_unknown_members_are_allowed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with limited_servers(tmp_path_factory.mktemp("lenient"), strict=False) as lenient:
        count = some(5, 200)
        wanted = [case for scene in json_scenes() for case in json_cases(scene, count, SEED)]
        found = unlike_answers(lenient, wanted)
    assert not found, "\n".join(found)
