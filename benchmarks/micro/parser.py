"""How long tradewind.wire.parser takes for one operation."""

import functools

from benchmarks.micro.registry import Operation, micro

OPERATION_COUNT = 256


def _operation(line: bytes) -> Operation:
    from benchmarks.micro.probes import parse

    return functools.partial(parse, line * OPERATION_COUNT)


@micro("parser-pub-128", "PUB with 128 B")
def pub() -> Operation:
    """The most frequent operation of all."""
    return _operation(b"PUB orders.eu.created 128\r\n" + b"x" * 128 + b"\r\n")


@micro("parser-pub-reply", "PUB with a reply subject, 16 B")
def pub_reply() -> Operation:
    """A request."""
    return _operation(b"PUB service.echo _INBOX.x7Fk2LqPzR9c.1234 16\r\n" + b"x" * 16 + b"\r\n")


@micro("parser-hpub", "HPUB with one header, 128 B")
def hpub() -> Operation:
    """A message with headers."""
    head = b"NATS/1.0\r\nNats-Msg-Id: 12345\r\n\r\n"
    sizes = b"%d %d" % (len(head), len(head) + 128)
    return _operation(b"HPUB orders.eu.created " + sizes + b"\r\n" + head + b"x" * 128 + b"\r\n")


@micro("parser-sub", "SUB with a queue group")
def sub() -> Operation:
    """A subscription."""
    return _operation(b"SUB orders.*.created workers 42\r\n")


@micro("parser-ping", "PING")
def ping() -> Operation:
    """The shortest operation."""
    return _operation(b"PING\r\n")
