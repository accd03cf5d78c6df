"""Our client manages streams and consumers, on both servers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from helpers_client import SECONDS, connected, fill, jetstream

from harness import ServerProcess, StartServer
from tradewind.api.consumer_types import AckPolicy, ConsumerConfig
from tradewind.api.stream_types import StorageType, StreamConfig
from tradewind.client.api_errors import (
    ConsumerAlreadyExistsError,
    ConsumerDoesNotExistError,
    ConsumerNotFoundError,
    JetStreamApiError,
    NoMessageFoundError,
    StreamNameExistsError,
    StreamNotFoundError,
    StreamSubjectOverlapError,
)
from tradewind.client.errors import JetStreamUnavailableError, OptionsError


async def test_a_stream_is_made_from_a_config_and_from_keywords(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        streams = js.manager.streams
        config = StreamConfig(name="A", subjects=["a"], storage=StorageType.MEMORY)
        made = await streams.add(config, max_age=timedelta(minutes=2), max_msgs=7)
        assert made.config.storage is StorageType.MEMORY
        assert (made.config.max_age, made.config.max_msgs) == (120_000_000_000, 7)
        again = await streams.add(config, max_age=timedelta(minutes=2), max_msgs=7)
        assert again.created == made.created
        with pytest.raises(StreamNameExistsError):
            await streams.add(config, max_msgs=8)
        with pytest.raises(StreamSubjectOverlapError):
            await streams.add(name="B", subjects=["a"], storage="memory")


async def test_what_cannot_be_asked_for_is_named_before_it_is_sent(
    js_server: ServerProcess,
) -> None:
    async with jetstream(js_server) as js:
        streams, consumers = js.manager.streams, js.manager.consumers
        with pytest.raises(OptionsError, match="no setting 'max_mgs'; did you mean 'max_msgs'"):
            await streams.add(name="A", max_mgs=1, storage="memory")  # type: ignore[call-arg]
        with pytest.raises(OptionsError, match=r"max_msgs"):
            await streams.add(
                name="A",
                max_msgs="many",  # type: ignore[arg-type]
                storage="memory",
            )
        with pytest.raises(OptionsError, match="a name is needed"):
            await streams.add(subjects=["a"])
        with pytest.raises(OptionsError, match=r"stream name 'a\.b': no blanks"):
            await streams.info("a.b")
        with pytest.raises(OptionsError, match="specify seq, last_by_subject or next_by_subject"):
            await streams.get_message("A")
        with pytest.raises(OptionsError, match="keep or seq, not both"):
            await streams.purge("A", keep=1, seq=1)
        with pytest.raises(OptionsError, match="must have a time zone"):
            await consumers.pause("A", "c", datetime(2030, 1, 1))  # noqa: DTZ001 - the point
        for arguments in ({"domain": "a b"}, {"api_prefix": "x.>"}):
            with pytest.raises(OptionsError, match="tokens without wildcards"):
                js.connection.jetstream_manager(**arguments)
        with pytest.raises(OptionsError, match="only one of them"):
            js.connection.jetstream(domain="d", api_prefix="p")


async def test_numbers_for_durations_are_seconds_in_settings(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        streams, consumers = js.manager.streams, js.manager.consumers
        made = await streams.add(
            name="A",
            subjects=["a"],
            storage="memory",
            max_age=3600,
            duplicate_window="1m",
            consumer_limits={"inactive_threshold": timedelta(minutes=5)},
        )
        config = made.config
        assert (config.max_age, config.duplicate_window) == (3600 * 10**9, 60 * 10**9)
        assert config.consumer_limits.inactive_threshold == 300 * 10**9
        changed = await streams.update("A", max_age="1d12h")
        assert changed.config.max_age == 36 * 3600 * 10**9

        consumer = await consumers.add(
            "A", durable_name="c", ack_policy="explicit", ack_wait=30, backoff=[0.5, "2s", 30]
        )
        assert consumer.config.backoff == [500_000_000, 2 * 10**9, 30 * 10**9]
        updated = await consumers.update("A", "c", inactive_threshold=90.5)
        assert updated.config.inactive_threshold == 90_500_000_000
        assert updated.config.backoff == consumer.config.backoff


async def test_a_whole_configuration_has_nanoseconds(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        document = {"name": "A", "subjects": ["a"], "storage": "memory", "max_age": 60 * 10**9}
        made = await js.manager.streams.add(document, duplicate_window=30)
        assert (made.config.max_age, made.config.duplicate_window) == (60 * 10**9, 30 * 10**9)
        assert (
            await js.manager.streams.update(made.config, max_msgs=5)
        ).config.max_age == 60 * 10**9
        consumer = ConsumerConfig(name="c", inactive_threshold=600 * 10**9)
        info = await js.manager.consumers.add("A", consumer, ack_wait=10, ack_policy="explicit")
        assert (info.config.inactive_threshold, info.config.ack_wait) == (600 * 10**9, 10 * 10**9)


async def test_an_update_changes_only_what_it_names(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        streams = js.manager.streams
        await streams.add(
            name="A", subjects=["a"], description="first", max_msgs=5, storage="memory"
        )
        changed = await streams.update("A", max_msgs=9)
        assert (changed.config.max_msgs, changed.config.description) == (9, "first")
        whole = await streams.update(
            StreamConfig(name="A", subjects=["a", "b"], storage=StorageType.MEMORY)
        )
        assert (whole.config.description, whole.config.subjects) == ("", ["a", "b"])
        with pytest.raises(StreamNotFoundError):
            await streams.update("B", max_msgs=1)


async def test_streams_are_listed_by_subject_and_found(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        streams = js.manager.streams
        for name in ("A", "B", "C"):
            await streams.add(name=name, subjects=[f"{name}.*"], storage="memory")
        assert sorted(await streams.names().all()) == ["A", "B", "C"]
        assert await streams.names("B.x").all() == ["B"]
        assert [info.config.name async for info in streams.list("C.>")] == ["C"]
        assert await streams.find("A.1") == "A"
        with pytest.raises(StreamNotFoundError, match=r"no stream stores subject 'D\.1'"):
            await streams.find("D.1")


async def test_lists_are_read_page_by_page(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 1)
        consumers = js.manager.consumers
        names = [f"c{number:03d}" for number in range(300)]
        for name in names:
            await consumers.add(
                "S",
                name=name,
                ack_policy="none",
                mem_storage=True,
                inactive_threshold=timedelta(hours=1),
            )
        pages = consumers.list("S")
        sizes = []
        while page := await pages.next_page():
            sizes.append(len(page))
        assert sizes == [256, 44]
        assert sorted([info.name async for info in consumers.list("S")]) == names
        assert sorted(await consumers.names("S").all()) == names


async def test_an_iteration_over_pages_can_go_on_as_pages(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        for name in ("A", "B", "C"):
            await js.manager.streams.add(name=name, storage="memory")
        pages = js.manager.streams.names()
        first = await anext(pages)
        rest = await pages.next_page()
        assert sorted([first, *rest]) == ["A", "B", "C"]
        assert await pages.next_page() == []


async def test_info_has_deleted_messages_and_all_subjects(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 4)
        streams = js.manager.streams
        await streams.delete_message("S", 2, erase=False)
        info = await streams.info("S")
        assert (info.state.deleted, info.state.subjects) == ([], {})
        info = await streams.info("S", deleted_details=True, subjects_filter=">")
        assert info.state.deleted == [2]
        assert info.state.subjects == {"S.1": 1, "S.3": 1, "S.4": 1}
        assert info.state.num_deleted == 1


@pytest.mark.parametrize("direct", [False, True], ids=["api", "direct"])
async def test_messages_are_read_without_a_consumer(js_server: ServerProcess, direct: bool) -> None:
    async with jetstream(js_server) as js:
        streams = js.manager.streams
        await streams.add(name="S", subjects=["s.*"], allow_direct=True, storage="memory")
        before = datetime.now(UTC)
        await js.publish("s.a", b"1", headers={"Tag": "x"})
        await js.publish("s.b", b"2")
        await js.publish("s.a", b"3")
        first = await streams.get_message("S", seq=1, direct=direct)
        assert (first.stream, first.subject, first.data) == ("S", "s.a", b"1")
        assert first.headers["Tag"] == "x"
        assert abs(first.time - before) < timedelta(minutes=1)
        last = await streams.get_message("S", last_by_subject="s.a", direct=direct)
        assert (last.seq, last.data) == (3, b"3")
        following = await streams.get_message("S", seq=2, next_by_subject="s.*", direct=direct)
        assert following.seq == 2
        with pytest.raises(NoMessageFoundError):
            await streams.get_message("S", seq=9, direct=direct)
        with pytest.raises(NoMessageFoundError):
            await streams.get_message("S", last_by_subject="s.c", direct=direct)


async def test_consumers_are_made_changed_paused_and_removed(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 3)
        consumers = js.manager.consumers
        config = ConsumerConfig(durable_name="d", ack_policy=AckPolicy.EXPLICIT)
        made = await consumers.add("S", config, filter_subject="S.2")
        assert (made.name, made.num_pending) == ("d", 1)
        assert (await consumers.add("S", config, filter_subject="S.2")).created == made.created
        with pytest.raises(ConsumerAlreadyExistsError):
            await consumers.add("S", config, filter_subject="S.2", max_ack_pending=5)
        changed = await consumers.update("S", "d", max_ack_pending=5)
        assert (changed.config.max_ack_pending, changed.config.filter_subject) == (5, "S.2")
        with pytest.raises(ConsumerNotFoundError):
            await consumers.update("S", "e", max_ack_pending=5)

        paused = await consumers.pause("S", "d", timedelta(minutes=5))
        assert paused.paused
        assert 0 < paused.pause_remaining <= 300_000_000_000
        assert (await consumers.info("S", "d")).paused
        assert not (await consumers.resume("S", "d")).paused

        several = await consumers.add("S", name="f", filter_subjects=["S.1", "S.3"])
        assert several.num_pending == 2
        unnamed = await consumers.add("S", ack_policy="none")
        assert unnamed.name
        assert await consumers.delete("S", "d")
        with pytest.raises(ConsumerNotFoundError):
            await consumers.delete("S", "d")
        assert ConsumerDoesNotExistError.hint


async def test_account_info_counts_streams_and_consumers(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        await fill(js, "S", 1)
        await js.manager.consumers.add("S", durable_name="d", ack_policy="explicit")
        info = await js.manager.account_info()
        assert (info.streams, info.consumers) == (1, 1)
        assert info.limits.max_streams == -1


async def test_a_server_without_jetstream_is_named(start: StartServer) -> None:
    async with connected(start().url) as connection:
        manager = connection.jetstream_manager()
        with pytest.raises((JetStreamUnavailableError, JetStreamApiError), match="JetStream"):
            await manager.account_info()
        with pytest.raises(JetStreamUnavailableError, match="no stream stores subject 'a'"):
            await connection.jetstream().publish("a")


async def test_a_domain_is_reached_through_its_prefix(
    start: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("domain")
    server = start(f'jetstream {{ domain: "hub", store_dir: "{folder}" }}')
    async with connected(server.url, timeout=SECONDS) as connection:
        manager = connection.jetstream_manager(domain="hub")
        await manager.streams.add(name="A", subjects=["a"], storage="memory")
        assert (await manager.streams.info("A")).domain == "hub"
        prefixed = connection.jetstream_manager(api_prefix="$JS.hub.API")
        assert await prefixed.streams.names().all() == ["A"]
        ack = await connection.jetstream(domain="hub").publish("a", b"1")
        assert (ack.stream, ack.domain) == ("A", "hub")
        await manager.consumers.add("A", durable_name="d", ack_policy="explicit")
        consumer = await connection.jetstream(domain="hub").consumers.get("A", "d")
        message = await consumer.next()
        assert message is not None
        await message.ack_sync()
        with pytest.raises(JetStreamUnavailableError, match="no response on"):
            await connection.jetstream_manager(domain="spoke").account_info()
    async with connected(server.url, jetstream_domain="hub", timeout=SECONDS) as connection:
        assert await connection.jetstream_manager().streams.names().all() == ["A"]
