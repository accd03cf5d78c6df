"""A hub and a leaf node in one program: messages both ways, and a stream that is copied up.

    python examples/leaf_nodes.py

The two servers would be on two machines; each could be a nats-server, the hub a cluster of them.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import tempfile
from pathlib import Path

import tradewind
from tradewind import Msg
from tradewind.errors import NoRespondersError
from tradewind.options import JetStreamOptions, LeafOptions, LeafRemoteOptions, Secret


def streams(folder: Path, domain: str) -> JetStreamOptions:
    """JetStream with a domain of its own, so that others can name it."""
    return JetStreamOptions(enabled=True, store_dir=str(folder / domain), domain=domain)


async def main(folder: Path) -> None:
    """Join two servers and use both."""
    async with tradewind.Server(
        server_name="hub",
        jetstream=streams(folder, "hub"),
        leafnodes=LeafOptions(host="127.0.0.1", port=-1),
    ) as hub:
        remote = LeafRemoteOptions(urls=(Secret(hub.leafnode_url),))
        async with tradewind.Server(
            server_name="site",
            jetstream=streams(folder, "site"),
            leafnodes=LeafOptions(remotes=(remote,)),
        ) as site:
            await talk(hub.url, site.url)


async def talk(hub_url: str, site_url: str) -> None:
    """What clients of both sides do."""
    async with (
        await tradewind.connect(hub_url) as above,
        await tradewind.connect(site_url) as below,
    ):
        await above.subscribe("orders.>", callback=take_order)
        await above.flush()
        while not await reaches(below, "orders.1", b"two apples"):  # noqa: ASYNC110 - being joined
            await asyncio.sleep(0.05)

        # The stream is at the site, its copy at the hub.
        site, hub = below.jetstream(), above.jetstream()
        await site.manager.streams.add(name="READINGS", subjects=["readings.*"])
        for number in range(3):
            await site.publish(f"readings.{number}", b"%d" % number)
        origin = {"name": "READINGS", "external": {"api": "$JS.site.API", "deliver": ""}}
        await hub.manager.streams.add(name="COPY", sources=[origin])
        while (await hub.manager.streams.info("COPY")).state.messages < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        print("the hub has a copy of 3 readings")


async def take_order(message: Msg) -> None:
    """Somebody at the hub who answers orders."""
    print(f"the hub got {message.subject}: {message.data.decode()}")
    await message.respond(b"thank you")


async def reaches(client: tradewind.Connection, subject: str, data: bytes) -> bool:
    """Ask, and say whether anybody was there to answer."""
    try:
        await client.request(subject, data)
    except NoRespondersError:
        return False
    return True


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(Path(place)))
