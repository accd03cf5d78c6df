"""Somebody changes a payment on the disk of a stopped server, with a valid checksum. The hash chain
of the stream and a checkpoint that was kept elsewhere show which message it was.

    python examples/integrity.py        starts servers of its own, in a temporary folder
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import tempfile
from pathlib import Path

import tradewind
from tradewind import JetStream
from tradewind.chain import Checkpoint, check_proof
from tradewind.store.format.hash import key_for

PAYMENTS = 100


async def fill(folder: str) -> Checkpoint:
    """Store payments, remove one of them, and keep a checkpoint."""
    server = tradewind.Server(jetstream=folder)
    async with server, tradewind.connect(server.url) as connection:
        js = connection.jetstream()
        await js.manager.streams.add(
            name="PAYMENTS", subjects=["payments.*"], metadata={"tradewind.chain": "sha256"}
        )
        for number in range(1, PAYMENTS + 1):
            await js.publish(f"payments.{number % 3}", f"{number} EUR to account {number % 7}")
        await js.manager.streams.delete_message("PAYMENTS", 13)
        kept = await js.chains.checkpoint("PAYMENTS")
        await show(js, kept)
        proof = await js.chains.prove("PAYMENTS", 42)
        check_proof(proof, [kept.key])
        print(f"proved: {proof.payload.decode()!r} is entry {proof.index}")
        return kept


async def look_again(folder: str, kept: Checkpoint) -> None:
    """Start the server again, and hold the stream against the checkpoint."""
    server = tradewind.Server(jetstream=folder)
    async with server, tradewind.connect(server.url) as connection:
        await show(connection.jetstream(), kept)


async def show(js: JetStream, kept: Checkpoint) -> None:
    """Verify everything, and print what is wrong."""
    report = await js.chains.verify("PAYMENTS", checkpoints=[kept], keys=[kept.key])
    for fault in report.faults:
        print(f"{fault.kind}: {fault.text}")
    print(
        f"intact: {report.is_intact}, {report.messages} messages verified, removed: "
        f"{report.removed}, proved up to {report.proved_sequence}"
    )


def tamper(folder: str) -> None:
    """Send payment 42 to another account, as somebody does who knows the format of the files."""
    messages = Path(folder) / "jetstream" / "$G" / "streams" / "PAYMENTS" / "msgs"
    block = messages / "1.blk"
    data = bytearray(block.read_bytes())
    old, new = b"42 EUR to account 0", b"42 EUR to account 6"
    at = data.index(old)
    subject_at = data.rindex(b"payments.", 0, at)
    start = subject_at - 22
    data[at : at + len(old)] = new
    end = at + len(new)
    hashed = [data[start + 4 : start + 20], data[subject_at:at], new]
    checksum = key_for("PAYMENTS-1").hash_parts([bytes(part) for part in hashed])
    data[end : end + 8] = checksum
    block.write_bytes(data)
    (messages / "index.db").unlink(missing_ok=True)


async def main() -> None:
    """Fill, tamper, look again."""
    with tempfile.TemporaryDirectory() as folder:
        kept = await fill(folder)
        tamper(folder)
        await look_again(folder, kept)


if __name__ == "__main__":
    asyncio.run(main())
