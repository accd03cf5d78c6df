"""The leaf nodes of a running server: the listener and the outgoing connections.

Owns both from start to stop, and applies reloads to them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tradewind.options import LeafOptions, LeafRemoteOptions
from tradewind.own_addresses import address_text, is_wildcard
from tradewind.server.leafnodes.leaf_listener import LeafListener
from tradewind.server.links.gossip import advertised
from tradewind.server.links.listener import bind

if TYPE_CHECKING:
    from tradewind.server.leafnodes.leaf_dial import Dialler
    from tradewind.server.links.link import Turns
    from tradewind.server.tls.tls import ServerContext


class RunningLeafnodes:
    """The leaf node listener and the outgoing leaf connections of one server."""

    def __init__(self, turns: Turns, options: LeafOptions) -> None:
        self._turns = turns
        self._broker = turns.broker
        self.options = options
        self.listener: LeafListener | None = None
        self._diallers: dict[LeafRemoteOptions, Dialler] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The bound port; 0 without a listener."""
        return 0 if self.listener is None else self.listener.address[1]

    def listen(self) -> None:
        """Start accepting connections, if the configuration asks for a listener."""
        options = self.options
        if not options.port:
            return
        context = leaf_tls(options)
        self.listener = LeafListener(
            self._turns, bind(options.host, options.port), options.tls, context
        )
        self._announce(self.listener)
        self.listener.start()
        place = address_text(options.host or self.listener.address[0], self.port)
        self._broker.log.notice(f"Listening for leafnode connections on {place}")

    def _announce(self, listener: LeafListener) -> None:
        """Advertise in INFO the address at which other servers reach the listener. For a wildcard,
        this is the first address of the machine that is neither loopback nor link-local, as in
        nats-server.
        """
        options = self.options
        host, port = options.host or listener.address[0], listener.address[1]
        if is_wildcard(host) and not options.advertise:
            from tradewind.interfaces import public_ips

            host = next(iter(public_ips(both_families=listener.both_families)), host)
        info = self._broker.info.listener("LEAFNODE")
        info.host, info.port = advertised(options.advertise, host, port)
        is_reachable = not is_wildcard(info.host)
        info.connect_urls = (address_text(info.host, info.port),) if is_reachable else ()

    def dial(self) -> None:
        """Connect to all configured remotes."""
        self._set_remotes(self.options.remotes)

    def _set_remotes(self, remotes: tuple[LeafRemoteOptions, ...]) -> list[Dialler]:
        """Start and keep dialling these remotes; returns the diallers that must be stopped."""
        wanted = {remote for remote in remotes if not remote.disabled}
        gone = [dialler for remote, dialler in self._diallers.items() if remote not in wanted]
        for dialler in gone:
            del self._diallers[dialler.remote]
        for remote in remotes:
            if remote in wanted and remote not in self._diallers:
                from tradewind.server.leafnodes.leaf_dial import Dialler

                self._diallers[remote] = Dialler(remote, self._turns)
                self._diallers[remote].start()
        return gone

    def reload(self, options: LeafOptions) -> None:
        """Apply changed remotes and certificates, including files whose content changed; every
        other change needs a restart.
        """
        self.options = options
        if self.listener is not None:
            self.listener.set_tls(options.tls, leaf_tls(options), allow_non_tls=False)
        for dialler in self._diallers.values():
            dialler.read_files_again()
        for dialler in self._set_remotes(options.remotes):
            task = asyncio.get_running_loop().create_task(dialler.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def close(self) -> None:
        """Stop accepting connections."""
        if self.listener is not None:
            self.listener.close()

    async def stop(self) -> None:
        """Stop accepting and dialling."""
        self.close()
        if self.listener is not None:
            await self.listener.cancel_handshakes()
        await asyncio.gather(*(one.stop() for one in self._diallers.values()))


def leaf_tls(options: LeafOptions) -> ServerContext | None:
    """The TLS context for leaf node connections; None without TLS."""
    if options.tls is None:
        return None
    from tradewind.server.tls.tls import server_context

    return server_context(options.tls)
