"""Values of the user's code: awaited where needed, as JSON where they cross the bus."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from msgspec import Raw

from sandstream.agent import Agent
from sandstream.graph import output_schema_of
from sandstream.json_values import plain_part


async def resolved(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def as_json(value: Any) -> Raw:
    """Any return value as JSON; what JSON cannot say becomes its text."""
    dump = getattr(value, "model_dump_json", None)
    if callable(dump):
        return Raw(str(dump()).encode())
    return Raw(msgspec.json.encode(value, enc_hook=plain_part))


def final_value(agent: Agent[Any], value: Any) -> Any:
    """What a run ends with if a tool's return value ends it: text, unless the agent is typed."""
    if output_schema_of(agent) is not None or isinstance(value, str):
        return value
    return str(value)
