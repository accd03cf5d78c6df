"""The program that Spark starts in place of Python: has a warm process do the work.

Owns one request to `launcher_parent`, and waiting for its end. Java sees this process as the one
that it started: it lives as long as the other one, and has its exit code. If anything is wrong,
it becomes the Python that it stands for.

`python_launcher` writes this file to a private folder, behind a line that starts Python without
its site packages. Importing is most of what such a start costs, so nothing of Tradewind is
imported here, and of Python only what is compiled.

    request: length (4) arguments, folder and variables (NUL between them), with three descriptors
    answer:  S pid (4), later X exit code (4); or R and four zeros, which is a refusal

Numbers begin with their high byte.
"""

from __future__ import annotations

import _socket
import os
import select
import sys

# The parent imports all that this process would have to import, and has begun before.
ANSWER_SECONDS = 30.0
STARTED, REFUSED, ENDED = b"S", b"R", b"X"
ANSWER_SIZE = 5
LOST_CODE = 1


def launch(address: str, python: str, archives: tuple[str, ...]) -> None:
    """Hand over what this process was started for, or become `python`, without `archives`."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["-m"] and arguments[1].startswith("pyspark."):
        code = hand_over(address, arguments)
        if code is not None:
            os._exit(code)
    places = os.environ.get("PYTHONPATH", "").split(":")
    if any(place in archives for place in places):
        os.environ["PYTHONPATH"] = ":".join(place for place in places if place not in archives)
    os.execv(python, [python, *arguments])  # noqa: S606 - the Python of the driver


def hand_over(address: str, arguments: list[str]) -> int | None:
    """The exit code of the process that did it; None if there is none to do it."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(address)
        send_request(connection, arguments)
        answer = receive(connection, ANSWER_SIZE)
        if answer[:1] != STARTED:
            return None
        connection.settimeout(None)
    except OSError:
        # The process that has the request already ends with this connection.
        connection.close()
        return None
    for number in range(3):
        os.close(number)
    return await_end(connection, int.from_bytes(answer[1:]))


def send_request(connection: _socket.socket, arguments: list[str]) -> None:
    """Send what a process needs to be this one."""
    parts = [str(len(arguments)).encode(), *map(os.fsencode, arguments)]
    parts.append(os.getcwdb())  # noqa: PTH109 - no import for the sake of a path
    parts += [name + b"=" + value for name, value in os.environb.items()]
    body = b"\0".join(parts)
    numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    head = len(body).to_bytes(4)
    connection.sendmsg([head], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    while body:
        body = body[connection.send(body) :]


def await_end(connection: _socket.socket, pid: int) -> int:
    """The exit code of the process, once it has ended."""
    try:
        answer = receive(connection, ANSWER_SIZE)
    except OSError:
        answer = b""
    if answer[:1] == ENDED:
        return int.from_bytes(answer[1:])
    # The parent was killed. The process continues, and so does what stands for it.
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return LOST_CODE
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    waiting.poll()
    return LOST_CODE


def receive(connection: _socket.socket, size: int) -> bytes:
    """Exactly this many bytes, or what came before the end."""
    found = b""
    while len(found) < size and (more := connection.recv(size - len(found))):
        found += more
    return found
