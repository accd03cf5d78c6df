"""CONNECT: what it accepts, what it changes, what it refuses and with which bytes."""

from __future__ import annotations

import pytest

from harness import Connect

MALFORMED = {
    "no-arguments": "CONNECT\r\n",
    "only-a-space": "CONNECT \r\n",
    "unclosed-object": "CONNECT {\r\n",
    "array": "CONNECT []\r\n",
    "number": "CONNECT 5\r\n",
    "string": 'CONNECT ""\r\n',
    "trailing-comma": 'CONNECT {"verbose":false,}\r\n',
    "single-quotes": "CONNECT {'verbose':false}\r\n",
    "text-after-object": 'CONNECT {"verbose":false} x\r\n',
    "two-objects": 'CONNECT {"verbose":false}{}\r\n',
    "letter-before-object": 'CONNECTX{"verbose":false}\r\n',
    "protocol-string": 'CONNECT {"protocol":"1"}\r\n',
    "protocol-fraction": 'CONNECT {"protocol":1.5}\r\n',
    "protocol-huge": 'CONNECT {"protocol":99999999999999999999}\r\n',
}
BOOLEANS = [
    "verbose",
    "pedantic",
    "tls_required",
    "echo",
    "headers",
    "no_responders",
    "new_account",
]
STRINGS = [
    "account",
    "auth_token",
    "jwt",
    "lang",
    "name",
    "nkey",
    "pass",
    "proxy_sig",
    "sig",
    "user",
    "version",
]
TOLERATED: dict[str, str | bytes] = {
    "unknown-fields": 'CONNECT {"verbose":false,"colour":{"a":[1,null]}}\r\n',
    "no-space": 'CONNECT{"verbose":false}\r\n',
    "tabs-and-spaces": 'CONNECT \t {"verbose":\tfalse} \t\r\n',
    "lower-case-verb": 'connect {"verbose":false}\r\n',
    "mixed-case-verb": 'cOnNeCt {"verbose":false}\r\n',
    "line-feed-only": 'CONNECT {"verbose":false}\n',
    "key-in-capitals": 'CONNECT {"VERBOSE":false}\r\n',
    "last-duplicate-wins": 'CONNECT {"verbose":true,"verbose":false}\r\n',
    "null-is-absent": 'CONNECT {"verbose":false,"echo":null,"name":null,"protocol":null}\r\n',
    "not-utf-8": b'CONNECT {"verbose":false,"name":"\xff"}\r\n',
    "empty-account": 'CONNECT {"verbose":false,"account":""}\r\n',
    "unneeded-credentials": 'CONNECT {"verbose":false,"user":"a","pass":"b","auth_token":"t"}\r\n',
    "unneeded-keys": 'CONNECT {"verbose":false,"nkey":"n","sig":"s","jwt":"j"}\r\n',
    "tls-required": 'CONNECT {"verbose":false,"tls_required":true}\r\n',
    "client-facts": 'CONNECT {"verbose":false,"name":"n","lang":"python","version":"3"}\r\n',
}


@pytest.mark.parametrize("line", MALFORMED.values(), ids=MALFORMED)
def test_malformed_connect_closes_without_a_word(raw: Connect, line: str) -> None:
    client = raw()
    client.send(line)
    client.expect_closed()


@pytest.mark.parametrize("field", BOOLEANS)
@pytest.mark.parametrize("value", ['"true"', "1"], ids=["string", "number"])
def test_boolean_field_of_wrong_type_closes_without_a_word(
    raw: Connect, field: str, value: str
) -> None:
    client = raw()
    client.send(f'CONNECT {{"{field}":{value}}}\r\n')
    client.expect_closed()


@pytest.mark.parametrize("field", STRINGS)
@pytest.mark.parametrize("value", ["5", "true"], ids=["number", "boolean"])
def test_string_field_of_wrong_type_closes_without_a_word(
    raw: Connect, field: str, value: str
) -> None:
    client = raw()
    client.send(f'CONNECT {{"{field}":{value}}}\r\n')
    client.expect_closed()


@pytest.mark.parametrize("line", TOLERATED.values(), ids=TOLERATED)
def test_connect_is_tolerant(raw: Connect, line: str | bytes) -> None:
    client = raw()
    client.send(line)
    client.send("PING\r\n")
    client.expect_bytes("PONG\r\n")


@pytest.mark.parametrize("line", ["CONNECT {}\r\n", "CONNECT null\r\n"])
def test_empty_connect_keeps_verbose_and_pedantic_on(raw: Connect, line: str) -> None:
    client = raw()
    client.send(line + "PUB a..b 0\r\n\r\nPING\r\n")
    client.expect_bytes("+OK\r\n-ERR 'Invalid Publish Subject'\r\n+OK\r\nPONG\r\n")


@pytest.mark.parametrize("protocol", [2, -1, 100])
def test_unknown_protocol_number_is_refused(raw: Connect, protocol: int) -> None:
    client = raw()
    client.send(f'CONNECT {{"protocol":{protocol}}}\r\n')
    client.expect_closed("-ERR 'invalid client protocol'\r\n")


@pytest.mark.parametrize(
    "fields",
    ['"account":"x"', '"account":"$G"', '"new_account":true', '"account":"x","protocol":2'],
)
def test_choosing_an_account_is_an_authorization_violation(raw: Connect, fields: str) -> None:
    client = raw()
    client.send(f"CONNECT {{{fields}}}\r\n")
    client.expect_closed("-ERR 'Authorization Violation'\r\n")


@pytest.mark.parametrize("fields", ['"no_responders":true', '"no_responders":true,"headers":false'])
def test_no_responders_without_headers_is_refused(raw: Connect, fields: str) -> None:
    client = raw()
    client.send(f"CONNECT {{{fields}}}\r\n")
    client.expect_closed("-ERR 'no responders requires headers support'\r\n")


def test_telnet_client_without_connect_gets_ok_for_each_operation(
    raw: Connect, subject: str
) -> None:
    client = raw()
    client.send(f"SUB {subject} 1\r\nPUB {subject} 2\r\nhi\r\nUNSUB 1\r\nPING\r\nPONG\r\n")
    client.expect_bytes(f"+OK\r\n+OK\r\nMSG {subject} 1 2\r\nhi\r\n+OK\r\nPONG\r\n")


def test_telnet_client_without_connect_is_pedantic(raw: Connect) -> None:
    client = raw()
    client.send("PUB a. 0\r\n\r\nPING\r\n")
    client.expect_bytes("-ERR 'Invalid Publish Subject'\r\n+OK\r\nPONG\r\n")


def test_headers_need_a_connect_that_asks_for_them(raw: Connect) -> None:
    client = raw()
    client.send("HPUB foo 12 12\r\nNATS/1.0\r\n\r\n\r\n")
    client.expect_closed()


def test_verbose_answers_every_operation_in_order(raw: Connect, subject: str) -> None:
    client = raw()
    client.send(
        'CONNECT {"verbose":true,"headers":true}\r\n'
        f"SUB {subject} 1\r\n"
        f"SUB {subject} 1\r\n"  # the same sid again is ignored, and still answered
        f"SUB {subject}..x 2\r\n"
        "UNSUB 77\r\n"
        "UNSUB 1 5\r\n"
        f"PUB {subject} 1\r\na\r\n"
        f"HPUB {subject} 12 13\r\nNATS/1.0\r\n\r\nb\r\n"
        "PING\r\nPONG\r\n"
        "UNSUB 1\r\n"
        "CONNECT {}\r\n"
        "PING\r\n"
    )
    client.expect_bytes(
        "+OK\r\n+OK\r\n+OK\r\n"
        "-ERR 'Invalid Subject'\r\n"
        "+OK\r\n+OK\r\n"
        f"+OK\r\nMSG {subject} 1 1\r\na\r\n"
        f"+OK\r\nHMSG {subject} 1 12 13\r\nNATS/1.0\r\n\r\nb\r\n"
        "PONG\r\n+OK\r\n+OK\r\nPONG\r\n"
    )


def test_not_verbose_answers_only_errors(raw: Connect, subject: str) -> None:
    client = raw()
    client.send(
        'CONNECT {"verbose":false}\r\n'
        f"SUB {subject} 1\r\nUNSUB 1\r\nPUB {subject} 0\r\n\r\nSUB a..b 2\r\nPING\r\n"
    )
    client.expect_bytes("-ERR 'Invalid Subject'\r\nPONG\r\n")


def test_echo_is_on_by_default(raw: Connect, subject: str) -> None:
    client = raw()
    client.send(f'CONNECT {{"verbose":false}}\r\nSUB {subject} 1\r\nPUB {subject} 0\r\n\r\n')
    client.expect_bytes(f"MSG {subject} 1 0\r\n\r\n")


def test_repeated_connect_drops_subscriptions(raw: Connect, subject: str) -> None:
    client = raw()
    client.send(
        f'CONNECT {{"verbose":false}}\r\nSUB {subject} 1\r\nCONNECT {{"verbose":false}}\r\n'
        f"PUB {subject} 1\r\na\r\nSUB {subject} 1\r\nPUB {subject} 1\r\nb\r\nPING\r\n"
    )
    client.expect_bytes(f"MSG {subject} 1 1\r\nb\r\nPONG\r\n")


def test_subscription_made_before_the_first_connect_survives_it(raw: Connect, subject: str) -> None:
    client = raw()
    client.send(
        f'SUB {subject} 1\r\nCONNECT {{"verbose":false}}\r\nPUB {subject} 0\r\n\r\nPING\r\n'
    )
    client.expect_bytes(f"+OK\r\nMSG {subject} 1 0\r\n\r\nPONG\r\n")


def test_repeated_connect_keeps_settings_it_does_not_name(raw: Connect, subject: str) -> None:
    client = raw()
    client.send(
        'CONNECT {"verbose":false,"headers":true,"echo":false}\r\nCONNECT {"pedantic":false}\r\n'
        f"SUB {subject} 1\r\nHPUB {subject} 12 12\r\nNATS/1.0\r\n\r\n\r\nPING\r\n"
    )
    client.expect_bytes("PONG\r\n")


def test_repeated_connect_can_switch_verbose_on(raw: Connect) -> None:
    client = raw()
    client.send('CONNECT {"verbose":false}\r\nCONNECT {"verbose":true}\r\nUNSUB 1\r\nPING\r\n')
    client.expect_bytes("+OK\r\n+OK\r\nPONG\r\n")


def test_repeated_connect_is_checked_like_the_first(raw: Connect) -> None:
    client = raw()
    client.send('CONNECT {"verbose":false}\r\nCONNECT {"protocol":5}\r\n')
    client.expect_closed("-ERR 'invalid client protocol'\r\n")
