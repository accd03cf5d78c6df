"""A reload goes in steps, and is still one change for whoever logs in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from tls_link_kit import until

from tradewind import Server
from tradewind.api.stream_types import StreamConfig
from tradewind.broker.accounts import AccountLimits
from tradewind.broker.identity import Gate
from tradewind.broker.surplus import close_account_surplus
from tradewind.errors import ConfigError
from tradewind.jetstream.stream_catalog import create_stream
from tradewind.monitor import stepping
from tradewind.monitor.stepping import Stepped
from tradewind.options import AccountOptions, ServerOptions
from tradewind.server.lifecycle.app import ReloadPlan
from tradewind.testing import InProcessServer
from tradewind.testing.gates import OpenGate


def config(accounts: int, payload: int) -> str:
    users = "".join(
        f"  A{number} {{ users: [{{user: u{number}, password: p{payload}}}] }}\n"
        for number in range(accounts)
    )
    return f"listen: '127.0.0.1:-1'\nmax_payload: {payload}\naccounts {{\n{users}}}\n"


def test_gate_and_options_change_in_one_step_after_the_accounts_are_there() -> None:
    server = InProcessServer(accounts=["A"])
    broker = server.broker
    for _ in range(3):
        server.connect(b"CONNECT {}\r\n")
    old_gates = broker.admission.gates
    gates: dict[str, Gate] = {"STANDARD": OpenGate()}
    names = [f"B{number}" for number in range(5)]
    options = replace(broker.options, accounts={name: AccountOptions(name) for name in names})
    limits = {name: AccountLimits() for name in names}
    seen = []
    for _ in broker.reload_steps(options, gates, limits, identities_changed=True):
        is_new = broker.options is options
        seen.append(is_new)
        assert broker.admission.gates is (gates if is_new else old_gates)
        assert not is_new or all(name in broker.accounts for name in names)
    assert seen == sorted(seen)
    assert seen.count(False) == len(names)
    assert seen.count(True) >= len(names) + len(broker.sessions)


def test_others_have_turns_while_thousands_of_accounts_are_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(config(1, 1000))

    async def run() -> int:
        turns = 0
        async with Server(str(path)) as server:
            path.write_text(config(1000, 2000))
            reload = asyncio.create_task(server.reload())
            while not reload.done():
                await asyncio.sleep(0)
                turns += len(server.broker.accounts) > 10  # while they are taken over
            await reload
            assert len(server.broker.accounts) >= 1000
        return turns

    monkeypatch.setattr(stepping, "STEP_NS", 0)
    assert asyncio.run(run()) > 1000


def test_a_second_reload_waits_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(config(1, 1000))
    order: list[str] = []

    async def run() -> None:
        async with Server(str(path)) as server:
            plan, take_over = server._plan_reload, server._take_over

            def noted_plan(read: Callable[[], ServerOptions]) -> ReloadPlan:
                order.append("read")
                return plan(read)

            def noted_steps(plan: ReloadPlan) -> Stepped[None]:
                yield from take_over(plan)
                order.append("done")

            monkeypatch.setattr(server, "_plan_reload", noted_plan)
            monkeypatch.setattr(server, "_take_over", noted_steps)
            path.write_text(config(300, 2000))
            await asyncio.gather(server.reload(), server.reload())
            assert server.broker.options.max_payload_bytes == 2000

    asyncio.run(run())
    assert order == ["read", "done"] * 2


def shrink(server: InProcessServer, limits: dict[str, int]) -> list[int]:
    """Lower limits; gives the number of connections after each step."""
    broker = server.broker
    options = replace(broker.options, max_connections=limits.get("server", 100))
    accounts = {"A": AccountLimits(limits.get("account", -1))}
    gates = broker.admission.gates
    steps = broker.reload_steps(options, gates, accounts, identities_changed=False)
    return [len(broker.sessions) for _ in steps]


@pytest.mark.parametrize("kind", ["server", "account"])
def test_newest_connections_above_a_lowered_limit_are_closed_one_per_step(kind: str) -> None:
    server = InProcessServer(gate=OpenGate("A"), accounts=["A"])
    peers = [server.connect(b'CONNECT {"verbose":false}\r\n') for _ in range(40)]
    counts = shrink(server, {kind: 10})
    server.run_until_idle()
    assert [peer.is_open for peer in peers] == [True] * 10 + [False] * 30
    assert all(before - after <= 1 for before, after in pairwise(counts))
    assert counts[-1] == 10
    assert all(b"connections exceeded" in peer.take() for peer in peers[10:])


def test_those_who_leave_meanwhile_are_not_replaced_by_others() -> None:
    server = InProcessServer(gate=OpenGate("A"), accounts=["A"])
    peers = [server.connect(b'CONNECT {"verbose":false}\r\n') for _ in range(6)]
    surplus = close_account_surplus(server.broker, server.broker.accounts["A"])
    server.broker.accounts["A"].limits = AccountLimits(2)
    next(surplus)
    for peer in peers[:3]:
        peer.close()
    assert list(surplus) == []
    server.run_until_idle()
    assert [peer.is_open for peer in peers] == [False] * 3 + [True] * 2 + [False]


def test_limit_that_is_raised_meanwhile_keeps_the_others() -> None:
    server = InProcessServer(gate=OpenGate("A"), accounts=["A"])
    peers = [server.connect(b'CONNECT {"verbose":false}\r\n') for _ in range(6)]
    account = server.broker.accounts["A"]
    account.limits = AccountLimits(1)
    surplus = close_account_surplus(server.broker, account)
    next(surplus)
    account.limits = AccountLimits(-1)
    assert list(surplus) == []
    server.run_until_idle()
    assert [peer.is_open for peer in peers] == [True] * 5 + [False]


def test_a_reload_ends_with_the_server_and_opens_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.conf"
    store = f'jetstream {{ store_dir: "{tmp_path}/js" }}\n'
    path.write_text(config(50, 1000).replace("{ users", "{ jetstream: true, users") + store)

    async def run() -> None:
        async with Server(str(path)) as server:
            assert server.jetstream is not None
            engine = server.jetstream.engine
            tenant = engine.accounts["A49"]
            wanted = StreamConfig(name="S", subjects=["S"])
            for work in create_stream(engine, tenant, wanted, pedantic=False):
                if callable(work):
                    work()
            path.write_text(path.read_text().replace("1000", "2000"))
            reload = asyncio.create_task(server.reload())
            await until(lambda: server.options.max_payload_bytes == 2000)
            stop = asyncio.create_task(server.stop())
            with pytest.raises(ConfigError, match="stopping"):
                await reload
            await stop
            assert not list(engine.hosted_streams())

    monkeypatch.setattr(stepping, "STEP_NS", 0)
    asyncio.run(run())
