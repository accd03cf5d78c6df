"""The process of one question to DuckDB; see `duck_caller`.

Owns its end: the answer is sent, the caller has hung up, or the time is over. It ends at once then,
whatever the engine still does.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import Final

from tradewind.pipelines.sql.query_session import PendingAnswer, question_of
from tradewind.pipelines.sql.rendering import RenderStyle
from tradewind.pipelines.sql.service import send_answer
from tradewind.pipelines.sql.wire import Ask, Cancel, Channel, StatementFailure, WireError

SECONDS_MAX: Final = 300.0
# How long a query that was cancelled is waited for.
CANCEL_SECONDS: Final = 2.0


def answer_one(channel: Channel, seconds_max: float = SECONDS_MAX) -> None:
    """Answer one question; WireError if the caller is gone."""
    ask = channel.from_caller()
    if not isinstance(ask, Ask):
        raise WireError("a caller without a question")
    from tradewind.pipelines.sql.duck_runner import DuckRunner  # not before pandas is left out

    ended = threading.Event()
    asked = PendingAnswer(DuckRunner(), question_of(ask), ended.set)

    def listen() -> None:
        try:
            while not isinstance(channel.from_caller(), Cancel):
                pass
        except WireError:
            pass  # the caller has gone, and its answer is not needed
        asked.cancel()
        asked.wait(CANCEL_SECONDS)
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    is_late = not ended.wait(seconds_max)
    if is_late:
        asked.cancel()
        channel.send(
            StatementFailure(f"the query took longer than {seconds_max:g} s, and was ended")
        )
    elif asked.wait(0):
        send_answer(channel, asked, RenderStyle(ask.format, ask.width))
    else:
        channel.send(StatementFailure("the query was cancelled"))


def main() -> None:
    """Answer the question that comes on the standard input, which is a socket."""
    status = 1
    # Arrow would import it, which takes as long as the rest of the start.
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
    try:
        answer_one(Channel(socket.socket(fileno=os.dup(0))))
        status = 0
    finally:
        os._exit(status)  # threads of the engine may still run


if __name__ == "__main__":
    main()
