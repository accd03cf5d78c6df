"""A service with two endpoints, found and asked through the server.

python examples/services.py                             talks to nats://127.0.0.1:4222
python examples/services.py nats://127.0.0.1:4333       or to any other address
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import sys

import tradewind
from tradewind import Request
from tradewind.errors import ServiceError


async def largest(request: Request) -> None:
    """Answer with the largest of the numbers in the request."""
    await request.respond(str(max(map(int, request.data.split()))))


async def average(request: Request) -> None:
    """Answer with the average; no numbers are an error that the asker gets."""
    numbers = [int(word) for word in request.data.split()]
    if not numbers:
        raise ServiceError(400, "numbers, please")
    await request.respond(str(sum(numbers) / len(numbers)))


async def main(url: str) -> None:
    """Run two instances, ask them, and look at what they did."""
    async with tradewind.connect(url, name="services example") as connection:
        services = connection.services
        instances = [await services.add("numbers", "1.0.0") for _ in range(2)]
        for instance in instances:
            group = instance.add_group("numbers")
            await group.add_endpoint("max", largest)
            await group.add_endpoint("average", average)

        print("largest:", (await services.request("numbers.max", "3 14 1")).data.decode())
        try:
            await services.request("numbers.average")
        except ServiceError as error:
            print("refused:", error)

        found = [instance async for instance in services.ping("numbers")]
        print(f"found {len(found)} instances of version {found[0].version}")
        requests = errors = 0
        async for stats in services.stats("numbers"):
            for endpoint in stats.endpoints or []:
                requests += endpoint.num_requests
                errors += endpoint.num_errors
        print(f"{requests} requests, {errors} error")
        for instance in instances:
            await instance.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
