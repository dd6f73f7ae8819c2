"""The table "One turn, file by file" of docs/architecture.md: a real run calls these functions."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import FrameType

import pytest
from support.nats_server import NatsServer

from sandstream import Agent, Runner, function_tool
from sandstream.testing import ScriptedModel, text, tool_call

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
ROW = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.M)


@function_tool
def add(a: int, b: int) -> int:
    return a + b


def test_one_turn_calls_the_functions_of_the_page(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nats_server.set_up()
    monkeypatch.setenv("NATS_URL", nats_server.url)
    section = PAGE.read_text().partition("## One turn, file by file\n")[2].partition("\n## ")[0]
    named = [(str(ROOT / file), function) for file, function in ROW.findall(section)]
    called: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.setdefault((frame.f_code.co_filename, frame.f_code.co_qualname))

    async def run() -> None:
        agent = Agent(name="adder", model="gpt-4.1", tools=[add])
        sys.setprofile(note)
        try:
            result = await Runner.run(agent, "1 + 2?")
        finally:
            sys.setprofile(None)
        assert result.final_output == "3"

    with ScriptedModel([tool_call("add", {"a": 1, "b": 2}), text("3")]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        asyncio.run(run())
    assert named and [it for it in called if it in named] == named
