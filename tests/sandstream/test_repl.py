"""Helpers for a first look at an agent: a conversation in the terminal, and all that is logged."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest
from support.model_requests import input_of

from sandstream import enable_verbose_stdout_logging
from sandstream.testing import ScriptedModel, text

SCRIPT = """
import asyncio
from sandstream import Agent, run_demo_loop

asyncio.run(run_demo_loop(Agent(name="A", model="gpt-4.1"), stream={stream}))
"""


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("end", ["quit\n", ""])
def test_a_conversation_in_the_terminal(home: Path, stream: bool, end: str) -> None:
    """Also where the lines end without a word."""

    async def main() -> tuple[str, int | None]:
        async with ScriptedModel([text("Hello."), text("Again.")]) as model:
            script = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                SCRIPT.format(stream=stream),
                env={**os.environ, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k"},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await script.communicate(f"hi\n\nand again\n{end}".encode())
            sizes = [len(input_of(request)) for request in model.requests]
            assert sizes == [1, 3]  # the second answer knows the first
            return output.decode(), script.returncode

    output, code = asyncio.run(main())
    assert code == 0
    assert output.count(" > ") == 4
    assert output.index("Hello.") < output.index("Again.")
    assert ("[Agent updated: A]" in output) == stream


def test_all_that_is_logged_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    loggers = [logging.getLogger(name) for name in ("sandstream", "sandstream_bus")]
    before = [(list(logger.handlers), logger.level) for logger in loggers]
    try:
        enable_verbose_stdout_logging()
        enable_verbose_stdout_logging()
        logging.getLogger("sandstream.runner").debug("a detail")
        logging.getLogger("sandstream_bus.logs.runs").debug("another")
        assert capsys.readouterr().out == "a detail\nanother\n"
    finally:
        for logger, (handlers, level) in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
            logger.setLevel(level)
