"""Queue groups: exactly one member of each group gets a message."""

from __future__ import annotations

from collections import Counter

from harness import Connect, RawClient, wait_until_nobody_listens


def publish(client: RawClient, subject: str, count: int) -> None:
    """Publish and wait until the server has routed all of it."""
    client.send(f"PUB {subject} 2\r\nhi\r\n" * count)
    client.ping()


def drain(client: RawClient) -> list[str]:
    """The control lines of all messages delivered so far."""
    client.send("PING\r\n")
    lines = []
    while (line := client.next_line()) != b"PONG":
        assert line.startswith(b"MSG "), line
        assert client.read_exact(4) == b"hi\r\n"
        lines.append(line.decode())
    return lines


def count_sids(client: RawClient) -> Counter[str]:
    return Counter(line.split(" ")[2] for line in drain(client))


def test_queue_member_gets_the_subscription_s_own_sid(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB {subject} workers 7\r\nPUB {subject} reply.to 2\r\nhi\r\n")
    client.expect_bytes(f"MSG {subject} 7 reply.to 2\r\nhi\r\n")


def test_exactly_one_member_gets_each_message(wire: Connect, subject: str) -> None:
    members = [wire() for _ in range(4)]
    for member in members:
        member.send(f"SUB {subject} workers 1\r\n")
        member.ping()
    publisher = wire()
    publish(publisher, subject, 400)
    counts = [len(drain(member)) for member in members]
    assert sum(counts) == 400
    # Members are chosen at random: with 400 messages, one that gets below 40 is not by chance.
    assert min(counts) >= 40


def test_members_on_one_connection_share_the_messages(wire: Connect, subject: str) -> None:
    client = wire()
    client.send("".join(f"SUB {subject} workers {sid}\r\n" for sid in range(3)))
    publish_lines = f"PUB {subject} 2\r\nhi\r\n" * 300
    client.send(publish_lines)
    counts = count_sids(client)
    assert counts.total() == 300
    assert set(counts) == {"0", "1", "2"}
    assert min(counts.values()) >= 40


def test_one_member_is_enough_for_all_messages(wire: Connect, subject: str) -> None:
    member, publisher = wire(), wire()
    member.send(f"SUB {subject} workers 1\r\n")
    member.ping()
    publish(publisher, subject, 50)
    assert len(drain(member)) == 50


def test_plain_subscriptions_get_every_message_beside_a_group(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(
        f"SUB {subject} plain1\r\nSUB {subject} plain2\r\n"
        f"SUB {subject} workers queue1\r\nSUB {subject} workers queue2\r\n"
    )
    client.send(f"PUB {subject} 2\r\nhi\r\n" * 100)
    counts = count_sids(client)
    assert counts["plain1"] == counts["plain2"] == 100
    assert counts["queue1"] + counts["queue2"] == 100


def test_each_group_gets_every_message(wire: Connect, subject: str) -> None:
    client = wire()
    groups = ["a", "b", "c"]
    client.send("".join(f"SUB {subject} {name} {name}{n}\r\n" for name in groups for n in (1, 2)))
    client.send(f"PUB {subject} 2\r\nhi\r\n" * 90)
    counts = count_sids(client)
    assert [counts[f"{name}1"] + counts[f"{name}2"] for name in groups] == [90, 90, 90]


def test_group_spans_the_patterns_of_its_members(wire: Connect, subject: str) -> None:
    client = wire()
    patterns = {"literal": f"{subject}.a", "token": f"{subject}.*", "rest": f"{subject}.>"}
    client.send("".join(f"SUB {pattern} workers {sid}\r\n" for sid, pattern in patterns.items()))
    client.send(f"PUB {subject}.a 2\r\nhi\r\n" * 300)
    counts = count_sids(client)
    assert counts.total() == 300
    assert set(counts) == set(patterns)


def test_group_member_with_another_pattern_gets_only_what_it_matches(
    wire: Connect, subject: str
) -> None:
    client = wire()
    client.send(f"SUB {subject}.a workers a\r\nSUB {subject}.b workers b\r\n")
    client.send(f"PUB {subject}.a 2\r\nhi\r\nPUB {subject}.b 2\r\nhi\r\n" * 20)
    assert count_sids(client) == {"a": 20, "b": 20}


def test_queue_name_is_case_sensitive(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB {subject} workers 1\r\nSUB {subject} Workers 2\r\n")
    client.send(f"PUB {subject} 2\r\nhi\r\n" * 10)
    assert count_sids(client) == {"1": 10, "2": 10}


def test_queue_name_is_any_word(wire: Connect, subject: str) -> None:
    client = wire()
    names = ["q*", ">", "a..b", "é", "q" * 300]
    client.send("".join(f"SUB {subject} {name} {sid}\r\n" for sid, name in enumerate(names)))
    client.send(f"PUB {subject} 2\r\nhi\r\n")
    assert count_sids(client) == {str(sid): 1 for sid in range(len(names))}


def test_unsubscribed_member_gets_nothing_more(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB {subject} workers 1\r\nSUB {subject} workers 2\r\nUNSUB 1\r\n")
    client.send(f"PUB {subject} 2\r\nhi\r\n" * 50)
    assert count_sids(client) == {"2": 50}


def test_automatic_unsubscription_of_members(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB {subject} workers 1\r\nUNSUB 1 2\r\nSUB {subject} workers 2\r\nUNSUB 2 3\r\n")
    client.send(f"PUB {subject} 2\r\nhi\r\n" * 8)
    # As long as one member may take a message it is not lost.
    assert count_sids(client) == {"1": 2, "2": 3}


def test_automatic_unsubscription_leaves_the_rest_to_the_others(
    wire: Connect, subject: str
) -> None:
    client = wire()
    client.send(f"SUB {subject} workers 1\r\nUNSUB 1 1\r\nSUB {subject} workers 2\r\n")
    client.send(f"PUB {subject} 2\r\nhi\r\n" * 60)
    assert count_sids(client) == {"1": 1, "2": 59}


def test_closed_member_s_share_goes_to_the_others(wire: Connect, subject: str) -> None:
    leaving, staying, publisher = wire(), wire(), wire(no_responders=True)
    for member in (leaving, staying):
        member.send(f"SUB {subject} workers 1\r\n")
    leaving.send(f"SUB {subject}.leaving 2\r\n")
    leaving.ping()
    staying.ping()
    leaving.close()
    wait_until_nobody_listens(publisher, f"{subject}.leaving")
    publish(publisher, subject, 50)
    assert len(drain(staying)) == 50


def test_echo_false_publisher_leaves_the_message_to_another_member(
    wire: Connect, subject: str
) -> None:
    quiet, other = wire(echo=False), wire()
    for member in (quiet, other):
        member.send(f"SUB {subject} workers 1\r\n")
        member.ping()
    publish(quiet, subject, 40)
    assert len(drain(other)) == 40
    quiet.ping()


def test_echo_false_publisher_that_is_the_only_member_loses_the_message(
    wire: Connect, subject: str
) -> None:
    quiet = wire(echo=False)
    quiet.send(f"SUB {subject} workers 1\r\n")
    publish(quiet, subject, 5)
    quiet.ping()
