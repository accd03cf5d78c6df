"""Services of our client: endpoints, groups, errors, statistics, and finding them; with nats-py
on the other side, too.
"""

from __future__ import annotations

import asyncio
import json
import signal

import nats
import nats.micro.request
import nats.micro.service
import pytest
from helpers_client import SECONDS, Events, connected, eventually

import tradewind
import tradewind.sync
from harness import ServerProcess, StartServer
from tradewind.client.errors import (
    BadSubjectError,
    NoRespondersError,
    OptionsError,
    ServiceError,
)
from tradewind.client.events import ErrorEvent, Reconnected
from tradewind.client.services.service_types import EndpointStats
from tradewind.client.services.services import Request


async def answer_upper(request: Request) -> None:
    await request.respond(request.data.upper(), headers={"Seen": request.headers.get("Id", "-")})


async def test_endpoint_answers_requests(server: ServerProcess, subject: str) -> None:
    async with (
        connected(server.url) as connection,
        await connection.services.add(subject, "1.0.0") as service,
    ):
        await service.add_endpoint("upper", answer_upper, subject=f"{subject}.upper")
        message = await connection.services.request(f"{subject}.upper", "text", headers={"Id": "7"})
        assert (message.data, message.headers["Seen"]) == (b"TEXT", "7")
        (stats,) = service.stats().endpoints or []
        assert (stats.num_requests, stats.num_errors, stats.last_error) == (1, 0, "")
        assert stats.processing_time > 0
        assert stats.average_processing_time == stats.processing_time
        assert repr(service) == f"Service({subject!r}, 1.0.0, 1 endpoints)"


async def test_groups_put_their_names_in_front_and_hand_down_queue_groups(
    server: ServerProcess, subject: str
) -> None:
    async with (
        connected(server.url) as connection,
        await connection.services.add(subject, "1.0.0", queue_group="all") as service,
    ):
        outer = service.add_group(subject, queue_group="some")
        inner = outer.add_group("v1")
        await service.add_endpoint("a", answer_upper, subject=f"{subject}.a.*")
        await outer.add_endpoint("b", answer_upper, queue_group="")
        await inner.add_endpoint("c", answer_upper, subject="see.>", metadata={"k": "v"})
        info = [item async for item in connection.services.info(subject, service.id)]
        assert info == [service.info()]
        assert [(e.subject, e.queue_group, e.metadata) for e in info[0].endpoints or []] == [
            (f"{subject}.a.*", "all", {}),
            (f"{subject}.b", "", {}),
            (f"{subject}.v1.see.>", "some", {"k": "v"}),
        ]
        reply = await connection.request(f"{subject}.v1.see.far.away", b"x")
        assert reply.data == b"X"


@pytest.mark.parametrize(
    ("raised", "code", "description"),
    [
        (ServiceError(404, "no such pear"), "404", "no such pear"),
        (ServiceError(404, "one\r\ntwo"), "404", "one two"),
        (ValueError("password is hunter2"), "500", "internal error"),
    ],
    ids=["ServiceError", "lines", "other"],
)
async def test_what_a_handler_raises_is_the_answer(
    server: ServerProcess, subject: str, raised: Exception, code: str, description: str
) -> None:
    def fail(request: Request) -> None:
        raise raised

    async with (
        connected(server.url) as connection,
        await connection.services.add(subject, "1.0.0") as service,
    ):
        await service.add_endpoint("fail", fail, subject=subject)
        with pytest.raises(ServiceError) as caught:
            await connection.services.request(subject)
        assert (caught.value.code, caught.value.description) == (code, description)
        assert str(caught.value) == f"{code}: {description}"
        await connection.publish(subject)  # wants no answer; counted all the same
        await connection.flush()
        await eventually(lambda: service.stats().endpoints[0].num_errors == 2, "second error")
        assert service.stats().endpoints[0].last_error.startswith(f"{code}:")


async def test_the_text_of_an_exception_stays_in_the_service(
    server: ServerProcess, subject: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(request: Request) -> None:
        raise LookupError("no row for hunter2")

    async with connected(server.url) as connection:
        services = connection.services
        async with await services.add(subject, "1.0.0") as service:
            await service.add_endpoint("fail", fail, subject=subject)
            answer = await connection.request(subject)
            assert answer.headers["Nats-Service-Error"] == "internal error"
            (stats,) = [each async for each in services.stats(subject, service.id)]
            assert "hunter2" not in repr((answer.headers, answer.data, stats))
        assert "hunter2" in caplog.text, "whoever runs the service is told"

        async with await services.add(subject, "1.0.0", show_errors=True) as service:
            await service.add_endpoint("fail", fail, subject=subject)
            with pytest.raises(ServiceError, match="LookupError: no row for hunter2"):
                await services.request(subject)


async def test_respond_error_adds_headers_and_a_payload(
    server: ServerProcess, subject: str
) -> None:
    async def refuse(request: Request) -> None:
        await request.respond_error(403, "not you", b"detail", headers={"Who": "me"})

    async with (
        connected(server.url) as connection,
        await connection.services.add(subject, "1.0.0") as service,
    ):
        await service.add_endpoint("refuse", refuse, subject=subject)
        message = await connection.request(subject)
        assert message.data == b"detail"
        assert message.headers == {
            "Who": "me",
            "Nats-Service-Error": "not you",
            "Nats-Service-Error-Code": "403",
        }
        service.reset()
        assert service.stats().endpoints[0].num_errors == 0


async def test_services_are_found_by_name_and_id(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        services = connection.services
        first = await services.add(subject, "1.0.0", metadata={"rack": "7"}, description="d")
        second = await other.services.add(subject, "1.0.1-rc.1+build")
        third = await services.add(f"{subject}-other", "0.0.1")
        # With time for each of them to answer.
        patient = {"timeout": SECONDS, "stall": 3.0}
        found = [item async for item in services.ping(**patient)]
        assert {item.id for item in found} == {first.id, second.id, third.id}
        named = [item async for item in services.ping(subject, **patient)]
        assert {item.version for item in named} == {"1.0.0", "1.0.1-rc.1+build"}
        assert [item async for item in services.ping(subject, first.id)] == [first.ping()]
        (stats,) = [item async for item in services.stats(subject, second.id)]
        assert stats == second.stats()
        assert [item async for item in services.ping("nobody")] == []
        with pytest.raises(OptionsError, match="name"):
            await anext(aiter(services.ping(service_id="x")))
        for service in (first, second, third):
            await service.stop()
        assert [item async for item in services.ping()] == []


async def test_stats_handler_adds_data(server: ServerProcess, subject: str) -> None:
    def more(stats: EndpointStats) -> dict[str, int]:
        return {"doubled": stats.num_requests * 2}

    async with (
        connected(server.url) as connection,
        await connection.services.add(subject, "1.0.0", stats_handler=more) as service,
    ):
        await service.add_endpoint("a", answer_upper, subject=subject)
        await connection.request(subject)
        (stats,) = [item async for item in connection.services.stats(subject, service.id)]
        assert (stats.endpoints or [])[0].data == {"doubled": 2}


async def test_instances_share_requests_and_stop_finishes_them(
    server: ServerProcess, subject: str
) -> None:
    release = asyncio.Event()
    arrived = asyncio.Event()

    async def slow(request: Request) -> None:
        arrived.set()
        await release.wait()
        await request.respond(b"done")

    async with connected(server.url) as connection:
        service = await connection.services.add(subject, "1.0.0")
        await service.add_endpoint("slow", slow, subject=subject)
        asked = asyncio.create_task(connection.request(subject, timeout=SECONDS))
        await asyncio.wait_for(arrived.wait(), SECONDS)
        stopping = asyncio.create_task(service.stop())
        waiting = asyncio.create_task(service.wait_stopped())
        await connection.flush()
        assert not waiting.done()
        release.set()
        assert (await asked).data == b"done"
        await asyncio.wait_for(asyncio.gather(stopping, waiting), SECONDS)
        assert service.is_stopped
        await service.stop()
        with pytest.raises(NoRespondersError):
            await connection.request(subject)
        with pytest.raises(OptionsError, match="stopped"):
            await service.add_endpoint("late", slow)


async def test_a_closed_connection_ends_wait_stopped(server: ServerProcess, subject: str) -> None:
    async with connected(server.url) as connection:
        service = await connection.services.add(subject, "1.0.0")
        waiting = asyncio.create_task(service.wait_stopped())
        await connection.close()
        await asyncio.wait_for(waiting, SECONDS)
        assert service.is_stopped
        await service.stop()


async def test_service_goes_on_after_a_restart(start: StartServer) -> None:
    first = start()
    events = Events()
    options = {"reconnect_wait": 0.02, "reconnect_wait_max": 0.2, "on_event": events}
    async with (
        connected(first.url, **options) as connection,
        await connection.services.add("words", "1.0.0") as service,
    ):
        await service.add_endpoint("upper", answer_upper)
        first.signal(signal.SIGKILL)
        await asyncio.to_thread(first.wait)
        await asyncio.to_thread(start, "", "-a", "127.0.0.1", "-p", str(first.port))
        await events.wait(Reconnected)
        assert (await connection.services.request("upper", "x")).data == b"X"
        assert [item.id async for item in connection.services.ping("words")] == [service.id]


async def test_an_answer_that_is_no_service_hides_no_other(
    server: ServerProcess, subject: str
) -> None:
    events = Events()
    async with connected(server.url, on_event=events) as connection:
        await connection.subscribe(f"$SRV.PING.{subject}", callback=lambda m: m.respond(b"{}"))
        service = await connection.services.add(subject, "1.0.0")
        assert [item.id async for item in connection.services.ping(subject)] == [service.id]
        (event,) = events.of(ErrorEvent)
        assert "not a ServicePing" in str(event)


async def test_wrong_names_and_versions_are_refused(server: ServerProcess) -> None:
    async with connected(server.url) as connection:
        services = connection.services
        for name, version in (("", "1.0.0"), ("a b", "1.0.0"), ("a", "1.0"), ("a", "01.0.0")):
            with pytest.raises(OptionsError):
                await services.add(name, version)
        async with await services.add("names", "1.0.0") as service:
            with pytest.raises(OptionsError, match="endpoint"):
                await service.add_endpoint("a.b", answer_upper)
            with pytest.raises(BadSubjectError):
                await service.add_endpoint("a", answer_upper, subject="x..y")
            for name in ("a.>", "a.*", "a b"):
                with pytest.raises(BadSubjectError):
                    service.add_group(name)
            assert service.endpoints == []


async def test_nats_py_finds_and_asks_our_service(server: ServerProcess, subject: str) -> None:
    async with (
        connected(server.url) as connection,
        await connection.services.add(subject, "1.0.0", description="words") as service,
    ):
        await service.add_endpoint("upper", answer_upper, subject=subject, metadata={"a": "b"})
        client = await nats.connect(server.url, connect_timeout=round(SECONDS))
        try:
            assert (await client.request(subject, b"x", timeout=SECONDS)).data == b"X"
            micro = nats.micro.service
            for verb, kind in (
                ("PING", micro.ServicePing),
                ("INFO", micro.ServiceInfo),
                ("STATS", micro.ServiceStats),
            ):
                address = f"$SRV.{verb}.{subject}.{service.id}"
                reply = await client.request(address, timeout=SECONDS)
                content = json.loads(reply.data)
                assert content["type"] == f"io.nats.micro.v1.{verb.lower()}_response"
                read = kind.from_dict(content)
                assert (read.name, read.id, read.version) == (subject, service.id, "1.0.0")
        finally:
            await client.close()


async def test_our_client_finds_and_asks_a_service_of_nats_py(
    server: ServerProcess, subject: str
) -> None:
    async def fail(request: nats.micro.request.Request) -> None:
        raise nats.micro.request.ServiceError("418", "a teapot")

    client = await nats.connect(server.url, connect_timeout=round(SECONDS))
    try:
        theirs = await nats.micro.add_service(client, name=subject, version="2.0.0")
        await theirs.add_endpoint(name="fail", subject=subject, handler=fail)
        await client.flush(round(SECONDS))
        async with connected(server.url) as connection:
            services = connection.services
            with pytest.raises(ServiceError, match="418: a teapot"):
                await services.request(subject)
            assert [item.id async for item in services.ping(subject)] == [theirs.id]
            (info,) = [item async for item in services.info(subject, theirs.id)]
            assert [item.subject for item in info.endpoints or []] == [subject]
            (stats,) = [item async for item in services.stats(subject, theirs.id)]
            assert [item.num_errors for item in stats.endpoints or []] == [1]
        await theirs.stop()
    finally:
        await client.close()


def test_services_without_an_event_loop(server: ServerProcess, subject: str) -> None:
    def shout(request: Request) -> None:
        # In a worker thread, so it may block.
        request.respond(inner.request(f"{subject}.word").data + b"!")

    with (
        tradewind.sync.connect(server.url) as connection,
        tradewind.sync.connect(server.url) as inner,
        connection.services.add(subject, "1.0.0") as service,
    ):
        inner.subscribe(f"{subject}.word", callback=lambda message: message.respond(b"hey"))
        service.add_group(subject).add_endpoint("shout", shout)
        assert connection.services.request(f"{subject}.shout").data == b"hey!"
        assert [item.id for item in connection.services.ping(subject)] == [service.id]
        assert service.stats().endpoints[0].num_requests == 1
