"""What a server makes up by chance: no two starts make up the same, and nobody can foresee it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import nats
import pytest
from nats.js.api import StorageType, StreamConfig

import tradewind
from tradewind.broker.accounts import Account
from tradewind.broker.router import Router
from tradewind.jetstream.name_source import NameSource
from tradewind.route.permission_rules import PermissionRules
from tradewind.route.permissions import Permissions
from tradewind.route.sublist import Sublist
from tradewind.store.table.message_store import MessageStore
from tradewind.stream.message_ids import MessageIds

# Not the imported package: a build in another folder has no .pyx files.
SOURCE = Path(__file__).parents[3] / "src" / "tradewind"
# Each module whose tables are keyed by what a peer chooses, with where `table_seeds` looks.
TABLES = {
    "consumer/ordered_keys.pyx": "consumers",  # set_order gives each a random seed
    "route/sublist.pyx": "accounts",
    "route/subject_trie.pyx": "accounts",  # children of its nodes, with the seed of the sublist
    "route/members.pxd": "accounts",  # queue groups of a sublist, with its seed
    "broker/subscriber.pyx": "sessions",
    "store/table/subject_index.pyx": "subjects",
    "store/table/pattern_set.pyx": "subjects",  # filters, with the seed of the subjects
    "store/format/timing_wheel.pyx": "timers",
    "stream/message_ids.pyx": "ids",
    "stream/staging.pyx": "ids",  # what is in a batch, with the seed of the ids
    "route/interest.pyx": "accounts",  # what an account asks for, with the seed of its sublist
    "broker/leaf_session.pyx": "sessions",  # what a server was told, with the seed of its session
    "broker/bridges.pyx": "accounts",  # answers that are waited for, with the seed of the account
}


async def started(folder: Path) -> tuple[dict[str, list[int]], list[str]]:
    """The seeds of all tables of a server that has something in each, and ids that it made up."""
    async with tradewind.Server(jetstream=folder) as server:
        client = await nats.connect(server.url)
        await client.subscribe("somewhere")
        await client.flush()
        js = client.jetstream()
        for name, storage in (("F", StorageType.FILE), ("M", StorageType.MEMORY)):
            config = StreamConfig(name=name, subjects=[f"{name}.>"], storage=storage)
            await js.add_stream(config)
            await js.publish(f"{name}.a", b"", headers={"Nats-Msg-Id": "1"})
        assert server.jetstream is not None
        engine = server.jetstream.engine
        broker = server.broker
        streams = [hosted.stream for hosted in engine.hosted_streams()]
        assert [stream.name for stream in streams] == ["F", "M"]
        assert [len(list(broker.sessions)), broker.accounts["$G"].subscription_count > 0] == [1, 1]
        seeds = {
            "accounts": [account.sublist.seed for account in broker.accounts.values()],
            "sessions": [session.seed for session in broker.sessions.values()],
            "permissions": [broker.hash_seed],
            "subjects": [stream.store.index.seed for stream in streams],
            "timers": [stream.store.timers.seed for stream in streams],
            "ids": [stream.ids.seed for stream in streams],
        }
        names = [engine.names.event_id(), engine.names.consumer()]
        await client.close()
    return seeds, names


async def reopened(folder: Path) -> list[int]:
    """The seeds of the stream that is on disk, opened again."""
    async with tradewind.Server(jetstream=folder) as server:
        assert server.jetstream is not None
        (hosted,) = server.jetstream.engine.hosted_streams()
        store = hosted.stream.store
        return [store.index.seed, store.timers.seed, hosted.stream.ids.seed]


async def test_every_table_of_a_started_server_is_seeded_and_no_two_starts_agree(
    tmp_path: Path,
) -> None:
    seeds, names = await started(tmp_path / "one")
    other_seeds, other_names = await started(tmp_path / "other")
    for table, numbers in seeds.items():
        assert numbers, table
        assert set(numbers).isdisjoint(other_seeds[table]), table
        # A seed that chance has made is not small.
        assert all(number > 2**32 for number in numbers), table
    assert set(names).isdisjoint(other_names)
    again = await reopened(tmp_path / "one")
    assert set(again).isdisjoint([seeds["subjects"][0], seeds["timers"][0], seeds["ids"][0]])
    assert all(number > 2**32 for number in again)


@pytest.mark.slow
def test_no_table_is_left_out_above() -> None:
    makes_a_table = re.compile(
        r"\b(table_init|growing_init|timers_init|hash_bytes|fold_multiply)\("
    )
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.p[yx]*")
        if path.suffix in (".pyx", ".pxd", ".py") and makes_a_table.search(path.read_text())
    }
    declarations = {
        "containers/table.pxd",
        "containers/growing_table.pxd",
        "store/format/timing_wheel.pxd",
    }
    assert found - declarations == set(TABLES)


@pytest.mark.slow
def test_no_seed_has_a_number_as_default() -> None:
    default = re.compile(r"\bseed(: int)? ?= ?\d")
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.p[yx]*")
        if path.suffix in (".py", ".pyx", ".pyi", ".pxd")
        and not path.is_relative_to(SOURCE / "testing")
        for line in path.read_text().splitlines()
        if default.search(line)
    ]
    assert not found


@pytest.mark.parametrize(
    "make",
    [
        Sublist,
        Router,
        lambda: Account("A", Router(1)),
        lambda: Permissions(PermissionRules()),
        lambda: MessageIds(1),
        NameSource,
    ],
)
def test_what_needs_chance_cannot_be_made_without(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        make()


def test_stores_that_are_given_no_seed_differ() -> None:
    one, other = MessageStore("S"), MessageStore("S")
    assert one.index.seed != other.index.seed
    assert one.timers.seed != other.timers.seed
    assert MessageStore("S", seed=5).index.seed == 5


def test_names_use_the_whole_alphabet_and_repeat_only_for_a_test_with_a_seed() -> None:
    chance = random.SystemRandom()
    names = NameSource(chance)
    made = [names.event_id() for _ in range(500)]
    assert len(set(made)) == 500
    assert {len(name) for name in made} == {22}
    assert len(set("".join(made))) == 62
    assert len(names.consumer()) == 8
    again = [NameSource(random.Random(7)).event_id() for _ in range(2)]
    assert again[0] == again[1]
