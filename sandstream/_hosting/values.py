"""Return values of the user's code: awaited if necessary, and encoded as JSON for the bus."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from msgspec import Raw

from sandstream._surface.json_values import plain_part
from sandstream._wire.compile import output_schema_of
from sandstream.agent import Agent


async def resolved(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def as_json(value: Any) -> Raw:
    """Any return value as JSON; parts that JSON cannot represent become text."""
    dump = getattr(value, "model_dump_json", None)
    if callable(dump):
        return Raw(str(dump()).encode())
    return Raw(msgspec.json.encode(value, enc_hook=plain_part))


def final_value(agent: Agent[Any], value: Any) -> Any:
    """The final output if a tool's return value ends the run: text, unless the agent is typed."""
    if output_schema_of(agent) is not None or isinstance(value, str):
        return value
    return str(value)
