"""The command line beside a cluster: what it shows of leaders and copies, and a leader's death."""

from __future__ import annotations

import json

import pytest

from cli_outcome import Outcome
from cluster_kit import LocalCluster, replicated_stream
from harness import wait_for
from tradewind.cli.main import run


def test_commands_show_who_leads_and_wait_for_a_new_leader(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*words: str) -> Outcome:
        capsys.readouterr()
        code = run([*words, "--server", cluster.url, "--timeout", "60s"])
        printed = capsys.readouterr()
        assert code == 0, (words, printed.err)
        return Outcome(code, printed.out, printed.err)

    def leader_in(text: str) -> str:
        return json.loads(text)["cluster"]["leader"]

    with replicated_stream(cluster, "TYPED", "typed.>") as connection:
        call("consumer", "add", "TYPED", "work", "--pull", "--ack", "explicit", "--defaults")
        call("kv", "add", "TYPED", "--replicas", "3")
        call("kv", "put", "TYPED", "colour", "red")
        for number in (1, 2):
            call("pub", "typed.x", f"{number}", "--jetstream")
        leader = cluster.leader_of(connection, "TYPED")
        others = [node.node.name for node in cluster.nodes if node is not leader]

        def are_current() -> bool:
            """Two of three have a message when it is acknowledged; the third has it soon."""
            text = call("stream", "info", "TYPED").out
            assert f"Leader: {leader.node.name}" in text
            return all(f"Replica: {name}, current" in text for name in others)

        wait_for(are_current, lambda: call("stream", "info", "TYPED").out)

        leader.kill()
        # With an id it may be sent again if nobody has answered.
        text = call("pub", "typed.x", "3", "--jetstream", "--header", "Nats-Msg-Id:3").err
        assert "Sequence: 3" in text
        assert leader_in(call("stream", "info", "TYPED", "--json").out) in others
        assert leader_in(call("consumer", "info", "TYPED", "work", "--json").out) in others
        got = call("consumer", "next", "TYPED", "work", "--count", "3", "--raw", "--ack").out
        assert got.split() == ["1", "2", "3"]
        assert call("kv", "get", "TYPED", "colour", "--raw").out.strip() == "red"
        assert "TYPED" in call("stream", "ls").out
        text = call("stream", "info", "TYPED").out
        assert f"Replica: {leader.node.name}" in text
        cluster.start()
        call("kv", "del", "TYPED", "--force")
