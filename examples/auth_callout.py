"""A service that decides who may connect: staff by password, and visitors who may only look.

    tradewind-server -c examples/auth_callout.conf
    python examples/auth_callout.py                             talks to nats://127.0.0.1:4222
    python examples/auth_callout.py nats://127.0.0.1:4333       or to any other address

It works with Tradewind and with nats-server alike.
"""
# ruff: noqa: T201, S106 - an example talks to the terminal, and its secrets are none

import asyncio
import sys

import tradewind
from tradewind.callout import Allow, Callout, LoginRequest
from tradewind.errors import AuthorizationError

ISSUER = "SAAGK6DBNVYGYZJAN5TCAYLOEBQXK5DIEBRWC3DMN52XIIDJONZXKZJL2E"
XKEY = "SXAGK6DBNVYGYZJAN5TCAYLOEBQXK5DIEBRWC3DMN52XIIDYNNSXSIK2GQ"
PASSWORDS = {"ann": "apples"}


def decide(login: LoginRequest) -> Allow | str:
    """Staff may do everything in the shop; anonymous clients may look at prices."""
    if login.user and PASSWORDS.get(login.user) == login.password:
        return Allow("SHOP", name=f"staff {login.user}")
    if not login.user:
        return Allow("SHOP", name="visitor", publish=[], subscribe=["prices.>"])
    return "unknown user or wrong password"


async def main(url: str) -> None:
    """Run the service, and try it."""
    async with tradewind.connect(url, user="auth", password="pwd") as service:
        await Callout(ISSUER, xkey=XKEY).serve(service, decide)
        await service.flush()

        visitor = await tradewind.connect(url)
        prices = await visitor.subscribe("prices.>")
        await visitor.flush()
        async with tradewind.connect(url, user="ann", password="apples") as staff:
            await staff.publish("prices.apple", "0.40")
        message = await prices.next(timeout=2)
        print(f"visitor: {message.subject} {message.data.decode()}")
        await visitor.close()
        try:
            await tradewind.connect(url, user="ann", password="pears")
        except AuthorizationError as error:
            print(f"ann with a wrong password: {error}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
