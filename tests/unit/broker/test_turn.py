"""What a turn hands to the engine."""

from tradewind.broker.turn import Participant, Turn


def test_participant_is_listed_once_until_it_is_taken() -> None:
    turn, one, two = Turn(), Participant(), Participant()
    for participant in (one, two, one):
        turn.mark_dirty(participant)
        turn.wake(participant)
    assert turn.is_busy()
    assert turn.take_dirty() == [one, two]
    assert turn.take_woken() == [one, two]
    assert not turn.is_busy()
    turn.mark_dirty(two)
    assert turn.take_dirty() == [two]
    assert turn.take_woken() == []


def test_deferred_messages_are_taken_in_order_and_in_portions() -> None:
    turn = Turn()
    seen: list[bytes] = []

    def handler(subject: bytes, _reply: bytes, _header: bytes, _payload: bytes) -> None:
        seen.append(subject)

    for number in range(5):
        turn.defer(handler, b"%d" % number, b"", b"", b"")
    for taken, *message in turn.take_deferred(3):
        taken(*message)
    assert seen == [b"0", b"1", b"2"]
    assert turn.is_busy()
    assert [entry[1] for entry in turn.take_deferred()] == [b"3", b"4"]
    assert not turn.is_busy()
