"""Leaf nodes of either kind whose login a service decides about, at hubs of either kind."""

from __future__ import annotations

import select
from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance.helpers_callout import SUBJECT, Question, Service, callout_configuration
from harness import wait_for
from leaf_kit import PAIRINGS, Node, hub_config, leaf_config

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.parametrize("kinds", PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS]),
]


def let_in(service: Service, hub: Node, question: Question) -> None:
    """Say yes until the remote is in: there is another question if an answer was too late."""

    def say_yes(to: Question) -> None:
        service.answer(to, to.response(to.user(account="OTHER")))

    def is_in() -> bool:
        while select.select([service.socket], [], [], 0)[0] and service._fill():
            pass
        if SUBJECT.encode() in service.buffer:
            say_yes(service.question())
        return len(hub.leafs()) == 1

    say_yes(question)
    wait_for(is_in, lambda: hub.process.log)


def test_remote_comes_until_a_service_lets_it_in(kinds: tuple[str, str], tmp_path: Path) -> None:
    """Without a service, with one that says nothing, and with one that says no it does not enter;
    the service that says yes puts it into the account that it names.
    """
    with ExitStack() as stack:
        config = callout_configuration(hub_config(), timeout=1)
        hub = Node(kinds[0], tmp_path, "hub", config)
        stack.callback(hub.stop)
        leaf = Node(kinds[1], tmp_path, "leaf", leaf_config(hub.leaf_port, login="site:secret@"))
        stack.callback(leaf.stop)
        leaf.process.wait_for_log("Authorization Violation")
        with Service(hub.process) as service:
            service.question()  # and no answer
            refused = service.question()
            assert refused.fields.connect_opts["user"] == "site"
            assert refused.fields.connect_opts["pass"] == "secret"
            assert refused.fields.client_info["name"] == "leaf"
            service.answer(refused, refused.response(error="come again"))
            question = service.question()
            assert not hub.leafs()
            let_in(service, hub, question)
            leaf.wait_linked()
            assert [one["account"] for one in hub.leafs()] == ["OTHER"]
