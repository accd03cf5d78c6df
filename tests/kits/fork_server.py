"""Starts servers by forking a process that has imported them already.

A start of `tradewind-server` spends nearly all of its time on imports, and the tests start
thousands of servers. This program imports the server once and then forks a child for each request.
The child runs the ordinary `main` with its own arguments, environment, folder and output, so it is
a real process that can be signalled and killed like any other. `server_forks` is the other side.

Never used for tests about the process itself: see `ServerProcess`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys

# What a server with JetStream has imported when it is ready.
MODULES = (
    "tradewind.server.lifecycle.process_signals",
    "tradewind.server.lifecycle.command",
    "tradewind.server.lifecycle.server_process",
    "tradewind.server.jetstream.jetstream_service",
    "tradewind.server.lifecycle.garbage",
    "tradewind.monitor.jsz",
    "uvloop",
    "encodings.idna",
)
REQUEST_BYTES_MAX = 1 << 20


def serve(requests: socket.socket) -> list[str] | None:
    """Answer requests until the other side is gone; in a child, its command line."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 1)
        if not data:
            return None
        request = json.loads(data)
        if "reap" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                requests.close()
                become(request, descriptors[0])
                command: list[str] = request["command"]
                return command
            os.close(descriptors[0])
        requests.send(json.dumps(answer).encode())


def become(request: dict[str, dict[str, str]], output: int) -> None:
    """Take over what a process is given by those who start it."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(str(request["folder"]))


def run() -> int:
    # As the entry point does, before it imports anything else.
    from tradewind.server.server_main import main

    gc.disable()
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()
    command = serve(socket.socket(fileno=int(sys.argv[1])))
    if command is None:
        return 0
    sys.argv = command
    return main()


if __name__ == "__main__":
    sys.exit(run())
