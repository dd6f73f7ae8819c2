"""Tracing: one trace around two runs, a custom span in a tool, and a trace processor.

    python examples/18_tracing.py

A processor sees what happens in this process. The logs contain what the runs did on all machines:
`sandstream runs` lists the runs, and `sandstream show RUN` draws one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from offline import model_or_script

from sandstream import Agent, Runner, function_tool
from sandstream.testing import script_for, text, tool_call
from sandstream.tracing import (
    Span,
    Trace,
    TracingProcessor,
    custom_span,
    set_trace_processors,
    trace,
)

SCRIPTS = [
    script_for("How is the weather", [tool_call("forecast", {"city": "Oslo"}), text("Snow.")]),
    script_for("What do I wear", [text("Boots.")]),
]


class Outline(TracingProcessor):
    """Prints the names of spans, each below its parent."""

    def __init__(self) -> None:
        self.spans: list[Span[Any]] = []

    def on_trace_start(self, trace: Trace) -> None:
        print(f"trace {trace.name}")

    def on_trace_end(self, trace: Trace) -> None:
        self._print_below(None, "  ")

    def on_span_start(self, span: Span[Any]) -> None:
        self.spans.append(span)

    def on_span_end(self, span: Span[Any]) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def force_flush(self) -> None:
        pass

    def _print_below(self, parent: str | None, indent: str) -> None:
        for span in self.spans:
            if span.parent_id == parent:
                name = getattr(span.span_data, "name", "")
                print(f"{indent}{span.span_data.type} {name}".rstrip())
                self._print_below(span.span_id, indent + "  ")


@function_tool
async def forecast(city: str) -> str:
    """The weather of tomorrow."""
    with custom_span("look into the almanac", {"city": city}):
        return f"Snow in {city}."


async def main() -> None:
    set_trace_processors([Outline()])
    guide = Agent(name="Guide", instructions="Answer in one word.", tools=[forecast])
    with trace("A trip to Oslo", group_id="trip-1"):
        weather = await Runner.run(guide, "How is the weather tomorrow?")
        clothes = await Runner.run(guide, f"What do I wear? {weather.final_output}")
    print(weather.final_output, clothes.final_output)


if __name__ == "__main__":
    with model_or_script(conversations=SCRIPTS):
        asyncio.run(main())
