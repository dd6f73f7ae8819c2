"""A script whose session starts a conversation at a vendor is killed around that, and restarted.

The vendor cannot say for whom a conversation was started. So a conversation that was started just
before the kill, and that the log does not know yet, stays behind, empty. Nothing else is left over
or duplicated.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from chaos.script_home import ScriptHome
from comparison.conversations_api import Conversations, conversations_api

from sandstream.testing import ScriptedModel, Step, script_for, text, tool_calls

_WITHIN_S = 60.0
pytestmark = pytest.mark.timeout(180)


async def killed_and_started_again(
    directory: Path, crash_at: str, steps: list[Step]
) -> tuple[str, Conversations]:
    """The output of the second start, and what the vendor has then."""
    async with (
        ScriptedModel(conversations=[script_for("Hello.", steps)], strict=False) as model,
        conversations_api() as (api, url),
    ):
        home = ScriptHome(directory / "chaos", model.base_url)
        try:
            first = await home.script("talk", url, name="talk_script", crash_at=crash_at)
            assert await first.wait(_WITHIN_S) == -9, first.errors()
            second = await home.script("talk", url, name="talk_script")
            said = await second.line(_WITHIN_S)
            assert await second.wait(_WITHIN_S) == 0, second.errors()
            return said, api
        finally:
            await home.close()


@pytest.mark.parametrize(
    ("crash_at", "begun"),
    [
        ("tools.before_invoke:1", 1),
        ("tools.after_invoke:1", 2),  # the log has not heard of the first one
        ("tools.published:1", 1),
        ("tools.after_invoke:2", 1),  # the input is written, the log does not say so
        ("harness.before_model", 1),
        ("tools.after_invoke:3", 1),  # the answer is written
        ("harness.before_done", 1),
    ],
)
def test_one_conversation_has_all_of_it_once(tmp_path: Path, crash_at: str, begun: int) -> None:
    said, api = asyncio.run(killed_and_started_again(tmp_path, crash_at, [text("Hi.")]))
    assert api.begun == begun
    *left, used = api.items
    assert said == f"Hi. {used}"
    assert [item["role"] for item in api.items[used]] == ["user", "assistant"]
    assert [api.items[name] for name in left] == [[]] * len(left)


@pytest.mark.parametrize(
    "crash_at",
    [
        "tools.after_invoke:4",  # the outcomes before the pause are written
        "tools.published:4",
        "harness.before_waiting",
        "harness.after_waiting",
        "runner.after_resume",
        "tools.after_invoke:6",  # so is the one after it
    ],
)
def test_a_turn_that_waited_is_kept_once(tmp_path: Path, crash_at: str) -> None:
    steps: list[Step] = [tool_calls(("look", {}), ("pay", {})), text("Done.")]
    said, api = asyncio.run(killed_and_started_again(tmp_path, crash_at, steps))
    assert (said, api.begun) == ("Done. conv_1", 1)
    kept = api.items["conv_1"]
    outputs = [item["output"] for item in kept if item.get("type") == "function_call_output"]
    assert outputs == ["looked", "paid"]
    assert [item.get("role") or item["type"] for item in kept] == [
        *("user", "function_call", "function_call"),
        *("function_call_output", "function_call_output", "assistant"),
    ]
