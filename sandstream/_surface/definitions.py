"""Tools and output types as models get them."""

from __future__ import annotations

import msgspec
from msgspec import Raw
from sandstream_bus.wire.specs import OutputSpec

from sandstream.agent import Tool
from sandstream.agent_output import AgentOutputSchemaBase
from sandstream.custom_tool import CustomTool


def tool_definition(tool: Tool) -> Raw:
    """The definition of a tool for the model."""
    if isinstance(tool, CustomTool):
        return Raw(msgspec.json.encode(tool.tool_config))
    definition = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.params_json_schema,
        "strict": tool.strict_json_schema,
    }
    return Raw(msgspec.json.encode(definition))


def output_spec(schema: AgentOutputSchemaBase) -> OutputSpec:
    """The output schema for the model."""
    return OutputSpec(
        name="final_output",
        schema=Raw(msgspec.json.encode(schema.json_schema())),
        strict=schema.is_strict_json_schema(),
    )
