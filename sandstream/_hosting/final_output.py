"""A run's final output as an object, in the process that has its agents."""

from __future__ import annotations

from typing import Any

import msgspec
from sandstream_bus.wire.messages import RunDone

from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.run_view import RunView
from sandstream._hosting.values import final_value
from sandstream._wire.compile import output_schema_of


def final_output(hosted: HostedRun, view: RunView, done: RunDone) -> Any:
    """The value of ``RunResult.final_output`` for a completed run."""
    if "final" in hosted.values:
        return hosted.values["final"]
    agent = view.agent
    schema = output_schema_of(agent) if agent is not None else None
    if done.output_from == "model" and schema is not None:
        return schema.validate_json(view.last_text)
    if done.output_from == "tool" and agent is not None:
        item = view.final_tool_output(agent.tool_use_behavior)
        if item is not None:
            return final_value(agent, item.output)
    value = msgspec.json.decode(done.output) if done.output else None
    if schema is None:
        return value if isinstance(value, str) else bytes(done.output).decode()
    return value
