"""A server inside an asyncio program: it lives as long as the `async with` block.

    python examples/embedded.py

Without arguments the server takes any free port of 127.0.0.1 and logs nothing. Every setting of
`tradewind.options.ServerOptions` can be given by name.
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio

import nats

import tradewind


async def main() -> None:
    """Start a server, use it, stop it."""
    async with tradewind.Server(server_name="inside", max_payload_bytes=64 * 1024) as server:
        print(f"listening on {server.url}")
        client = await nats.connect(server.url)
        print(f"connected to {client.connected_server_version} as client {client.client_id}")
        subscription = await client.subscribe("greetings")
        await client.publish("greetings", b"hello from the same process")
        message = await subscription.next_msg(timeout=2)
        print(message.data.decode())
        await client.drain()
    print("stopped")


if __name__ == "__main__":
    asyncio.run(main())
