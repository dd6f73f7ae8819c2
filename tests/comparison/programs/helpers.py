"""Helpers for a first look at an agent."""

import builtins
import contextlib
import io
import logging
from collections.abc import Iterator
from typing import Any

from comparison.program import MODEL, Probe, program


@contextlib.contextmanager
def typed(probe: Probe, *lines: str) -> Iterator[None]:
    """What a person types, and a note of what is shown of the answers."""
    left = iter(lines)

    def ask(prompt: object = "", /) -> str:
        probe.note("prompt", prompt)
        line = next(left, None)
        if line is None:
            raise EOFError
        return line

    real, builtins.input = builtins.input, ask
    try:
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            yield
    finally:
        builtins.input = real
    probe.note(shown.getvalue())


def answers(m: Any) -> list[Any]:
    calls = [m.tool_call("f", {"x": 1}), m.text("One."), m.tool_call("transfer_to_other")]
    return [*calls, m.text("Two."), m.text("Three.")]


@program(answers)
async def demo_loop(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return f"f {x}"

    other = sdk.Agent(name="Other", model=MODEL)
    agent = sdk.Agent(name="A", model=MODEL, tools=[f], handoffs=[other])
    with typed(probe, probe.input, "", "More.", "And more.", " Quit "):
        await sdk.run_demo_loop(agent, max_turns=3)


@program(lambda m: [m.text("One."), m.text("Two.")])
async def demo_loop_without_a_stream(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="A", model=MODEL)
    with typed(probe, probe.input, "More."):
        await sdk.run_demo_loop(agent, stream=False, context="ctx")


@program(lambda m: [])
async def verbose_logging(sdk: Any, probe: Probe) -> Any:
    name = "openai.agents" if sdk.__name__ == "agents" else sdk.__name__
    logger = logging.getLogger(name)
    before = len(logger.handlers)
    sdk.enable_verbose_stdout_logging()
    probe.note(logging.getLevelName(logger.level), len(logger.handlers) - before)
