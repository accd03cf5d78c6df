"""The programs of guides that need more than a Python: a web server's lifespan, and pytest."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

import tradewind

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parent.parent.parent / "docs" / "how-to"


def python_blocks(page: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


async def test_the_web_application_stores_orders_and_packs_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = python_blocks("FASTAPI.md")
    async with tradewind.Server(jetstream=tmp_path) as server:
        names: dict[str, Any] = {"__name__": "application"}
        exec(compile(code, "FASTAPI.md", "exec"), names)
        names["URL"] = server.url
        application = names["application"]
        transport = httpx.ASGITransport(application)
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            answer = await client.post("/orders", content=b'{"id": 7}')
            assert (answer.status_code, answer.json()) == (202, {"sequence": 1})
            await asyncio.wait_for(names["packed"].wait(), 60)
    assert capsys.readouterr().out == "packed 7\n"


def test_the_tests_of_the_pytest_page_pass(pytester: pytest.Pytester) -> None:
    conftest, tests = python_blocks("PYTEST.md")
    pytester.makeconftest(conftest)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nfilterwarnings = error\n")
    pytester.makepyfile(tests)
    pytester.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=3)
