"""The page of the lake tables of streams."""

from __future__ import annotations

from tradewind.dashboard.look.elements import tag
from tradewind.dashboard.look.page_layout import card, heading, live, page
from tradewind.dashboard.views.call import Answer, Call, PageAnswer
from tradewind.dashboard.views.table_parts import table_card

NONE = "No stream has a table. The command tradewind table makes streams tables of a lake."


async def show(call: Call) -> Answer:
    """Show the tables of all streams."""
    found = await table_card(call) or card("", tag("p", NONE, class_="empty"))
    top = heading("Tables", note="Streams as tables of a lake: Parquet, Delta or Iceberg")
    return PageAnswer(page(call.visit, "tables", "Tables", top, live("tables", found)))
