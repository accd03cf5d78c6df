"""Who may have the dashboard run something: the flags, and whose process is at the other end."""

from __future__ import annotations

import os
import socket

import pytest

from tradewind.dashboard.web.running import (
    NEEDS_FLAG,
    OTHER_USER,
    READ_ONLY,
    RunRules,
    peer_user,
    user_in,
)
from tradewind.errors import ConfigError

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"
REST = "00000000:00000000 00:00000000 00000000"


def table(*lines: str) -> list[str]:
    return [HEAD, *(f"   {index}: {line}" for index, line in enumerate(lines))]


def test_the_kernel_tells_whose_socket_is_at_the_other_end() -> None:
    client, server = ("127.0.0.1", 0x1234), ("127.0.0.1", 0x2058)
    lines = table(
        f"0100007F:2058 0100007F:1234 01 {REST}  1000        0 1",  # the dashboard's own end
        f"0100007F:1234 0100007F:2058 01 {REST}  1001        0 2",
    )
    assert user_in(lines, client, server) == 1001
    assert user_in(lines, server, client) == 1000
    assert user_in(lines, ("127.0.0.1", 1), server) is None
    assert user_in(lines, ("not an address", 0x1234), server) is None


def test_a_socket_that_nobody_holds_any_more_is_not_taken_for_one_of_root() -> None:
    # The kernel writes 0 as the user of sockets in TIME_WAIT.
    lines = table(f"0100007F:1234 0100007F:2058 06 {REST}     0        0 0")
    assert user_in(lines, ("127.0.0.1", 0x1234), ("127.0.0.1", 0x2058)) is None


def test_addresses_of_the_sixth_version_and_mapped_ones_are_found() -> None:
    loopback = "00000000000000000000000001000000"
    mapped = "0000000000000000FFFF00000100007F"
    lines = table(
        f"{loopback}:1234 {loopback}:2058 01 {REST}  1001        0 2",
        f"{mapped}:1235 {mapped}:2058 01 {REST}  1002        0 2",
    )
    assert user_in(lines, ("::1", 0x1234), ("::1", 0x2058)) == 1001
    assert user_in(lines, ("127.0.0.1", 0x1235), ("127.0.0.1", 0x2058)) == 1002


def test_the_user_of_a_connection_of_this_process_is_this_user() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        assert peer_user(ours.getsockname(), listener.getsockname()) == os.getuid()
    assert peer_user(None, ("127.0.0.1", 1)) is None


def test_the_flags_decide_who_may_run_something() -> None:
    stranger = ("127.0.0.1", 1), ("127.0.0.1", 2)
    assert RunRules(is_read_only=True).refusal(*stranger) == READ_ONLY
    assert RunRules(asks_login=True).refusal(*stranger) == NEEDS_FLAG
    assert RunRules(asks_login=True, allow_run=True).refusal(*stranger) == ""
    assert RunRules().refusal(*stranger) == OTHER_USER
    assert RunRules(allow_run=True).refusal(None, None) == ""
    with pytest.raises(ConfigError, match="--allow-run"):
        RunRules(is_read_only=True, allow_run=True)
