"""Arguments of known verbs: wrong counts, wrong sizes, wrong subjects, and what each costs."""

from __future__ import annotations

import pytest

from harness import Connect

TOO_LARGE = "-ERR 'Maximum Payload Violation'\r\n"

WRONG_ARGUMENTS = [
    "PUB \r\n",
    "PUB foo\r\n",
    "PUB foo \r\n",
    "PUB 5\r\n",
    "PUB 0\r\n\r\n",
    "PUB foo bar baz 0\r\n\r\n",
    "PUB foo a b c 0\r\n\r\n",
    "PUB foo -1\r\n",
    "PUB foo +1\r\n",
    "PUB foo x\r\n",
    "PUB foo 1x\r\n",
    "PUB foo 0x1\r\n",
    "PUB foo 1.0\r\n",
    "PUB foo bar -1\r\n",
    "PUB foo 1000000000\r\n",
    "PUB foo 0000000001\r\n",
    "PUB foo 99999999999999999999999\r\n",
    "HPUB \r\n",
    "HPUB foo\r\n",
    "HPUB foo 12\r\n",
    "HPUB foo bar baz 12 12\r\n",
    "HPUB foo 13 12\r\n",
    "HPUB foo 1 0\r\n",
    "HPUB foo -1 2\r\n",
    "HPUB foo 1 -2\r\n",
    "HPUB foo x 2\r\n",
    "HPUB foo 1 x\r\n",
    "HPUB foo 12 1000000000\r\n",
    "HPUB foo 0000000012 12\r\n",
    "SUB \r\n",
    "SUB foo\r\n",
    "SUB foo queue 1 extra\r\n",
    "UNSUB \r\n",
    "UNSUB 1 2 3\r\n",
]


@pytest.mark.parametrize("size", [2**31, 2**32 + 1, 2**63, 2**64 + 1, 10**40])
def test_cve_2019_13126_size_that_overflows_is_no_size(wire: Connect, size: int) -> None:
    for line in (f"PUB foo {size}\r\nx\r\n", f"HPUB foo 12 {size}\r\nx\r\n"):
        client = wire()
        client.send(line)
        client.expect_closed()
    wire().ping()


@pytest.mark.parametrize("line", WRONG_ARGUMENTS, ids=ascii)
def test_wrong_arguments_close_without_a_word(wire: Connect, line: str) -> None:
    client = wire()
    client.send(line)
    client.expect_closed()


@pytest.mark.parametrize("line", ["SUB foo\r\n", "PUB foo x\r\n"])
def test_wrong_arguments_close_a_verbose_client_without_a_word(wire: Connect, line: str) -> None:
    client = wire()
    client.send('CONNECT {"verbose":true}\r\n' + line)
    client.expect_closed("+OK\r\n")


def test_hpub_without_negotiated_headers_closes_without_a_word(wire: Connect) -> None:
    client = wire(headers=False)
    client.send("HPUB foo 12 12\r\nNATS/1.0\r\n\r\n\r\n")
    client.expect_closed()


@pytest.mark.parametrize(
    "line",
    [
        "PUB foo 1048577\r\n",
        "PUB foo reply 1048577\r\n",
        "PUB foo 999999999\r\n",
        "HPUB foo 12 1048577\r\n",
        "HPUB foo 1048577 1048577\r\n",
    ],
)
def test_size_over_the_limit_is_refused_before_the_payload(wire: Connect, line: str) -> None:
    client = wire()
    client.send(line)
    client.expect_closed(TOO_LARGE)


def test_nine_digits_with_leading_zeros_are_a_size(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(
        f"SUB {subject} 1\r\nPUB {subject} 000000001\r\na\r\n"
        f"HPUB {subject} 000000012 000000013\r\nNATS/1.0\r\n\r\nb\r\n"
    )
    assert client.read_message()[1:] == (b"", b"a")
    assert client.read_message()[1:] == (b"NATS/1.0\r\n\r\n", b"b")


INVALID_SUBSCRIPTIONS = [
    "foo..bar",
    ".foo",
    "foo.",
    ".",
    "..",
    ">.foo",
    "foo.>.bar",
    ">.>",
    "*..*",
    "foo.*.",
]


@pytest.mark.parametrize("pattern", INVALID_SUBSCRIPTIONS)
def test_invalid_subscription_subject_is_refused_and_keeps_the_connection(
    wire: Connect, pattern: str
) -> None:
    client = wire()
    client.send(f"SUB {pattern} 1\r\nSUB {pattern} queue 2\r\nPING\r\n")
    client.expect_bytes("-ERR 'Invalid Subject'\r\n-ERR 'Invalid Subject'\r\nPONG\r\n")


@pytest.mark.parametrize(
    "pattern", ["foo*", "*foo", "f*o", "a>b", "foo.>x", "**", ">>", "*>", ">*"]
)
def test_wildcard_inside_a_token_is_a_valid_literal(wire: Connect, pattern: str) -> None:
    client = wire()
    client.send(f"SUB {pattern} 1\r\nPUB {pattern} 0\r\n\r\nPING\r\n")
    client.expect_bytes(f"MSG {pattern} 1 0\r\n\r\nPONG\r\n")


def test_refused_subscription_leaves_its_sid_free(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB a..b 1\r\nSUB {subject} 1\r\nPUB {subject} 0\r\n\r\n")
    client.expect_bytes(f"-ERR 'Invalid Subject'\r\nMSG {subject} 1 0\r\n\r\n")


INVALID_PUBLISHES = ["foo.", ".foo", "foo..bar", ".", "foo.*", "*", ">", "foo.>", ">.foo", "a.*.b"]


@pytest.mark.parametrize("target", INVALID_PUBLISHES)
def test_pedantic_client_is_told_of_an_invalid_publish_subject(wire: Connect, target: str) -> None:
    client = wire(pedantic=True, verbose=False)
    client.send(f"PUB {target} 0\r\n\r\nHPUB {target} 12 12\r\nNATS/1.0\r\n\r\n\r\nPING\r\n")
    client.expect_bytes("-ERR 'Invalid Publish Subject'\r\n" * 2 + "PONG\r\n")


@pytest.mark.parametrize("target", INVALID_PUBLISHES)
def test_other_clients_are_not_told_of_an_invalid_publish_subject(
    wire: Connect, target: str
) -> None:
    client = wire()
    client.send(f"PUB {target} 0\r\n\r\nPING\r\n")
    client.expect_bytes("PONG\r\n")


@pytest.mark.parametrize("target", ["foo*", "a>b", "f*.o>"])
def test_pedantic_accepts_wildcard_letters_inside_a_token(wire: Connect, target: str) -> None:
    client = wire(pedantic=True)
    client.send(f"PUB {target} 0\r\n\r\nPING\r\n")
    client.expect_bytes("PONG\r\n")


def test_pedantic_message_to_a_wildcard_subject_is_still_delivered(
    wire: Connect, subject: str
) -> None:
    client = wire(pedantic=True)
    client.send(f"SUB {subject}.> 1\r\nPUB {subject}.* 2\r\nhi\r\nPING\r\n")
    client.expect_bytes(f"-ERR 'Invalid Publish Subject'\r\nMSG {subject}.* 1 2\r\nhi\r\nPONG\r\n")


@pytest.mark.parametrize("reply", ["a..b", ".a", "a.", "a.*", ">"])
def test_reply_subject_is_never_checked(wire: Connect, subject: str, reply: str) -> None:
    client = wire(pedantic=True)
    client.send(f"SUB {subject} 1\r\nPUB {subject} {reply} 0\r\n\r\nPING\r\n")
    client.expect_bytes(f"MSG {subject} 1 {reply} 0\r\n\r\nPONG\r\n")


@pytest.mark.parametrize("reply", ["$JS.ACK.x", "$JS.ACK.a.b.c", "_R_.x", "_GR_.x", "$GR.x"])
@pytest.mark.parametrize("verbose", [False, True])
def test_reserved_reply_is_refused_and_the_message_dropped(
    wire: Connect, subject: str, reply: str, verbose: bool
) -> None:
    client = wire()
    client.send(f"SUB {subject} 1\r\n")
    client.ping()
    client.send(f'CONNECT {{"verbose":{str(verbose).lower()}}}\r\nSUB {subject} 1\r\n')
    client.expect_bytes("+OK\r\n+OK\r\n" if verbose else "")
    client.send(f"PUB {subject} {reply} 2\r\nhi\r\nPING\r\n")
    client.expect_bytes(
        f"-ERR 'Permissions Violation for Publish with Reply of \"{reply}\"'\r\nPONG\r\n"
    )


@pytest.mark.parametrize("reply", ["$JS.ACK", "_R_", "_GR_", "$JS.ACKS.x", "_R_x.y", "$SYS.x"])
def test_reply_that_only_resembles_a_reserved_one_is_fine(
    wire: Connect, subject: str, reply: str
) -> None:
    client = wire()
    client.send(f"SUB {subject} 1\r\nPUB {subject} {reply} 0\r\n\r\nPING\r\n")
    client.expect_bytes(f"MSG {subject} 1 {reply} 0\r\n\r\nPONG\r\n")


@pytest.mark.parametrize("target", ["$NRG.x", "_GR_.x"])
def test_reserved_publish_subject_is_refused(wire: Connect, target: str) -> None:
    client = wire()
    client.send(f"SUB {target} 1\r\nPUB {target} 2\r\nhi\r\nPING\r\n")
    client.expect_bytes(f"-ERR 'Permissions Violation for Publish to \"{target}\"'\r\nPONG\r\n")


@pytest.mark.parametrize("target", ["_R_.x", "$SYS.x", "$JS.ACK.a", "$GNR.x", "_INBOX.x", "$G"])
def test_other_dollar_and_underscore_subjects_are_ordinary(wire: Connect, target: str) -> None:
    client = wire()
    client.send(f"SUB {target} 1\r\nPUB {target} 2\r\nhi\r\nPING\r\n")
    client.expect_bytes(f"MSG {target} 1 2\r\nhi\r\nPONG\r\n")


def test_system_queue_name_is_refused(wire: Connect) -> None:
    client = wire()
    client.send("SUB foo _sys_ 1\r\nPUB foo 0\r\n\r\nPING\r\n")
    client.expect_bytes(
        '-ERR \'Permissions Violation for Subscription to "foo" using queue "_sys_"\'\r\nPONG\r\n'
    )
