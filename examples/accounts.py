"""Accounts: separate subject spaces on one server, permissions, and the system account.

    python examples/accounts.py                          starts a server of its own
    python examples/accounts.py nats://127.0.0.1:4222    uses one that runs accounts.conf

The users are in accounts.conf, next to this file.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import json
import sys
from pathlib import Path

import nats

import tradewind

CONFIG = Path(__file__).with_name("accounts.conf")


async def show(url: str) -> None:
    """Three users, three views of one server."""
    errors: asyncio.Queue[str] = asyncio.Queue()

    async def note(error: Exception) -> None:
        errors.put_nowait(str(error))

    clerk = await nats.connect(url, user="clerk", password="clerk")  # noqa: S106
    robot = await nats.connect(url, user="robot", password="robot", error_cb=note)  # noqa: S106
    guard = await nats.connect(url, user="guard", password="guard")  # noqa: S106

    # The same subject in two accounts is two subjects.
    in_factory = await robot.subscribe("order.1")
    await robot.flush()
    await clerk.publish("order.1", b"two apples")
    await clerk.flush()
    try:
        await in_factory.next_msg(timeout=0.3)
    except nats.errors.TimeoutError:
        print("FACTORY does not see what SHOP publishes")

    # A user may only do what its permissions allow; otherwise the server sends an error.
    await robot.publish("order.2", b"I order myself a day off")
    print(f"robot: {await asyncio.wait_for(errors.get(), 2)}")

    # The system account may ask the server about all connections.
    reply = await guard.request("$SYS.REQ.SERVER.PING.CONNZ", b'{"auth": true}', timeout=2)
    connections = json.loads(reply.data)["data"]["connections"]
    names = sorted(f"{c['account']}/{c['authorized_user']}" for c in connections)
    print(f"connected: {', '.join(names)}")

    for client in (clerk, robot, guard):
        await client.close()


def main() -> None:
    """Use the server that is named, or start one."""
    if len(sys.argv) > 1:
        asyncio.run(show(sys.argv[1]))
        return
    # Keyword arguments override the file: any free port, no monitoring.
    with tradewind.serve(str(CONFIG), port=0, http_port=0) as server:
        asyncio.run(show(server.url))


if __name__ == "__main__":
    main()
