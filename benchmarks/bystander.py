"""`python -m benchmarks.bystander`: what others feel while one client asks for something heavy.

Owns the bystander, a process of its own that sends a PING, waits for the PONG and sends the next,
and the table of its longest waits, ours beside the official server's. For a few kinds it logs in
anew each time, or subscribes and leaves. What is heavy is in `bystander_kinds`, and what is
hostile in `hostile_kinds`. Each kind gets a fresh server. Our server's own count of turns above its
budget is printed below each row that has any: it counts processor time only, so on a shared machine
it says more than the waits.
"""

import argparse
import contextlib
import json
import multiprocessing
import socket
import sys
import time
import urllib.request
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.build import ensure_loadgen
from benchmarks.bystander_kinds import KINDS, LOGIN, SUBSCRIBE, Kind, Stage
from benchmarks.cli import check_command, installed
from benchmarks.hostile_kinds import HOSTILE
from benchmarks.measure import Scale
from benchmarks.procfs import session_usage
from benchmarks.runner import OURS, PEER
from benchmarks.servers import Server, ServerError

PAUSE_S = 0.0005
# What a request sets going may come after its answer: removals, deliveries, rewriting.
AFTER_S = 1.0
# A server that has not answered by then is not waited for any longer.
PONG_S_MAX = 60.0
ALL_KINDS = (*KINDS, *HOSTILE)
# Not that of the others: whoever floods a server does it from elsewhere.
BYSTANDER_ADDRESS = "127.0.0.2"
EXIT_FAILED = 1
EXIT_USAGE = 2


def connect(host: str, port: int, greeting: bytes) -> socket.socket:
    """A connection that has said who it is."""
    peer = socket.create_connection((host, port), PONG_S_MAX, (BYSTANDER_ADDRESS, 0))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(greeting)
    return peer


def round_trip(peer: socket.socket, request: bytes = b"") -> None:
    """Send this and a PING, and wait for the PONG; OSError if the server ends the connection."""
    reply = b""
    peer.sendall(request + b"PING\r\n")
    while b"PONG\r\n" not in reply:
        data = peer.recv(65536)
        if not data:
            raise OSError("the server closed the connection")
        reply = reply[-5:] + data
        if b"PING\r\n" in data:
            peer.sendall(b"PONG\r\n")


def wait_until_told(host: str, port: int, control: Connection, deed: str, greeting: bytes) -> None:
    """The bystander. Tells when it is ready, and at the end its waits in order of time."""
    waits: list[float] = []
    try:
        with connect(host, port, greeting) as peer:
            round_trip(peer)
            control.send("ready")
            while not control.poll():
                began = time.perf_counter()
                if deed == LOGIN:
                    with connect(host, port, greeting) as another:
                        round_trip(another)
                elif deed == SUBSCRIBE:
                    round_trip(peer, b"SUB bystander.> 1\r\nUNSUB 1\r\n")
                else:
                    round_trip(peer)
                waits.append(time.perf_counter() - began)
                time.sleep(PAUSE_S)
    except TimeoutError:
        waits.append(PONG_S_MAX)
    except OSError as error:
        control.send(f"the bystander failed: {error}")
        return
    control.send(waits)


class Bystander:
    """`with Bystander(server) as bystander` has one beside whatever happens; then its waits."""

    def __init__(self, server: Server, deed: str, greeting: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self._control, theirs = context.Pipe()
        self._process = context.Process(
            target=wait_until_told,
            args=(server.host, server.port, theirs, deed, greeting),
            daemon=True,
        )
        self.waits: list[float] = []

    def __enter__(self) -> "Bystander":
        self._process.start()
        if (said := self._control.recv()) != "ready":
            raise ServerError(said)
        return self

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        if exception_type is None:
            with contextlib.suppress(BrokenPipeError):  # it has failed, and said why
                self._control.send("stop")
            waits = self._control.recv()
            if isinstance(waits, str):
                raise ServerError(waits)
            self.waits = waits
        self._process.kill()
        self._process.join()


def turns_over_budget(server: Server) -> dict[str, dict[str, float]]:
    """What our server says of itself, by kind of work; nothing from the official one."""
    url = f"http://{server.host}:{server.http_port}/varz"
    try:
        with urllib.request.urlopen(url, timeout=PONG_S_MAX) as answer:
            document: dict[str, Any] = json.load(answer)
    except TimeoutError:
        return {"nothing was heard of it": {"count": 1, "longest_ms": PONG_S_MAX * 1000}}
    kinds: dict[str, dict[str, float]] = document.get("tradewind_turns", {}).get("kinds", {})
    return kinds


def measure(kind: Kind, template: str, scale: Scale) -> dict[str, Any]:
    """One fresh server, one heavy request: longest wait, how long it took, and its CPU time."""
    with Server(template, kind.config) as server:
        stage = Stage(server, scale, kind.greeting)
        try:
            kind.prepare(stage)
            before = turns_over_budget(server)
            with Bystander(server, kind.deed, kind.greeting) as bystander:
                cpu_s = session_usage(server.session).cpu_s
                began = time.perf_counter()
                kind.act(stage)
                took_s = time.perf_counter() - began
                time.sleep(AFTER_S / 10 if scale.quick else AFTER_S)
                cpu_s = session_usage(server.session).cpu_s - cpu_s
            turns = {
                name: {**one, "count": count}
                for name, one in turns_over_budget(server).items()
                if (count := one["count"] - before.get(name, {"count": 0})["count"])
            }
        finally:
            stage.close()
    return {
        "worst_ms": max(bystander.waits) * 1000,
        "took_ms": took_s * 1000,
        "cpu_ms": cpu_s * 1000,
        "pings": len(bystander.waits),
        "turns": turns,
    }


def parser() -> argparse.ArgumentParser:
    """All flags."""
    flags = argparse.ArgumentParser(
        prog="python -m benchmarks.bystander",
        description="The longest round trip of a bystander's PING beside heavy requests.",
    )
    flags.add_argument("--ours", default=installed("tradewind-server"), metavar="'CMD {conf}'")
    flags.add_argument("--peer", default=installed("nats-server"), metavar="'CMD {conf}'")
    flags.add_argument("--only", metavar="NAME,NAME", help="run these kinds, see --list")
    flags.add_argument("--quick", action="store_true", help="a part of the load: a smoke test")
    flags.add_argument("--ours-only", action="store_true", help="leave out the official server")
    flags.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    flags.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    flags.add_argument("--list", action="store_true", help="name the kinds and end")
    return flags


def choose(only: str | None) -> list[Kind]:
    """The named kinds, or all; ValueError names one that does not exist."""
    if only is None:
        return list(ALL_KINDS)
    names = [name.strip() for name in only.split(",")]
    known = {kind.name: kind for kind in ALL_KINDS}
    for name in names:
        if name not in known:
            raise ValueError(f"no kind named {name!r}; --list names them")
    return [kind for kind in ALL_KINDS if kind.name in names]


def turns_line(figures: dict[str, dict[str, Any]]) -> str:
    """Our server's own count; empty without a turn above the budget."""
    turns = figures.get(OURS, {}).get("turns", {})
    parts = (
        f"{name}: {one['count']:.0f}, up to {one['longest_ms']:.0f} ms"
        for name, one in sorted(turns.items())
    )
    return "; ".join(parts)


def row(kind: Kind, figures: dict[str, dict[str, Any]], *, markdown: bool) -> str:
    """One line of the table: longest wait, duration and CPU time of each server."""
    cells = [kind.name, kind.summary]
    for key in ("worst_ms", "took_ms", "cpu_ms"):
        for name in (OURS, PEER):
            value = figures.get(name, {}).get(key)
            cells.append("n/a" if value is None else f"{value:,.1f}")
    if markdown:
        return "| " + " | ".join([*cells, turns_line(figures)]) + " |"
    return f"{cells[0]:24}" + "".join(f"{cell:>12}" for cell in cells[2:])


def header(*, markdown: bool) -> str:
    """The head of the table."""
    names = [f"{figure} {name}" for figure in ("worst", "took", "CPU") for name in (OURS, PEER)]
    if markdown:
        names = [f"{name}, ms" for name in names]
        rule = "|---|---|" + "---:|" * len(names) + "---|"
        return "| kind | what | " + " | ".join(names) + f" | ours, turns over budget |\n{rule}"
    return f"{'kind (ms)':24}" + "".join(f"{name:>12}" for name in names)


def run(arguments: argparse.Namespace, kinds: list[Kind]) -> bool:
    """All kinds on both servers; whether ours passed all of them."""
    from benchmarks.loadgen.link import LoadError

    templates = {OURS: arguments.ours}
    if not arguments.ours_only:
        templates[PEER] = arguments.peer
    machine.raise_file_limit()
    saved: dict[str, dict[str, dict[str, Any]]] = {}
    passed = True
    print(header(markdown=arguments.markdown), flush=True)
    for kind in kinds:
        figures = saved.setdefault(kind.name, {})
        for name, template in templates.items():
            try:
                figures[name] = measure(kind, template, Scale(arguments.quick))
            except (LoadError, ServerError, OSError) as error:
                passed = passed and name != OURS
                print(f"{kind.name}: {name} failed: {error}", file=sys.stderr)
        print(row(kind, figures, markdown=arguments.markdown), flush=True)
        if not arguments.markdown and (line := turns_line(figures)):
            print(f"    turns over budget: {line}", flush=True)
    if arguments.json:
        document = {"machine": machine.facts(), "quick": arguments.quick, "kinds": saved}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return passed


def main(argv: list[str] | None = None) -> int:
    """Runs the command; 1 if our server failed a kind, 2 for flags that make no sense."""
    arguments = parser().parse_args(argv)
    if arguments.list:
        for kind in ALL_KINDS:
            print(f"{kind.name:24}{kind.summary}")
        return 0
    try:
        kinds = choose(arguments.only)
        check_command("--ours", arguments.ours)
        check_command("--peer", arguments.peer)
    except ValueError as error:
        print(f"benchmarks.bystander: {error}", file=sys.stderr)
        return EXIT_USAGE
    ensure_loadgen()
    return 0 if run(arguments, kinds) else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
