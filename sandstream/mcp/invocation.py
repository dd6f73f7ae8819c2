"""One call of a server's tool: from the model's JSON to the output for the model."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from sandstream_bus.wire.error_text import error_text

from sandstream.exceptions import AgentsException, ModelBehaviorError, UserError
from sandstream.mcp import package
from sandstream.mcp.contexts import (
    MCPToolCustomDataContext,
    MCPToolMetaContext,
    ToolOutput,
    ToolOutputItem,
)
from sandstream.mcp.errors import MCPToolCancellationError
from sandstream.mcp.server import MCPServer
from sandstream.run_context import RunContextWrapper
from sandstream.tool_output import ToolOutputImageDict, ToolOutputTextDict

logger = logging.getLogger(__name__)


async def invoke(
    server: MCPServer,
    tool: Any,
    context: RunContextWrapper[Any],
    input_json: str,
    *,
    meta: dict[str, Any] | None,
    shown_name: str,
) -> tuple[ToolOutput, dict[str, Any] | None]:
    """Call the tool; return its output for the model and the custom data for the application.

    Raises:
        ModelBehaviorError: if the arguments are not a JSON object.
        MCPToolCancellationError: if the call was cancelled, but not by the caller.
        AgentsException: if the call failed; an error that the server answered is not wrapped.
    """
    arguments = _parsed(input_json, shown_name)
    try:
        sent_meta = await _meta(server, tool.name, context, arguments, meta)
        result = await _call(server, tool.name, arguments, sent_meta)
    except (UserError, MCPToolCancellationError):
        raise
    except Exception as error:
        if package.is_protocol_error(error):
            raise
        raise AgentsException(
            f"Error invoking MCP tool {shown_name} on server '{server.safe_name}': "
            f"{error_text(error)}"
        ) from error
    output = tool_output(result, structured=server.use_structured_content)
    data = await _custom_data(server, tool.name, shown_name, context, arguments, result, output)
    return output, data


def _parsed(input_json: str, shown_name: str) -> dict[str, Any]:
    what = f"Invalid JSON input for tool {shown_name}"
    try:
        decoded = msgspec.json.decode(input_json) if input_json else {}
    except (msgspec.DecodeError, RecursionError):
        raise ModelBehaviorError(what) from None
    if not isinstance(decoded, dict):
        raise ModelBehaviorError(f"{what}: expected a JSON object")
    return decoded


async def _call(
    server: MCPServer, tool_name: str, arguments: dict[str, Any], meta: dict[str, Any] | None
) -> Any:
    try:
        if meta is None:  # the user's own server class may not have the parameter
            return await server.call_tool(tool_name, arguments)
        return await server.call_tool(tool_name, arguments, meta=meta)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise MCPToolCancellationError(
            f"Failed to call tool '{tool_name}' on MCP server '{server.safe_name}': tool "
            "execution was cancelled."
        ) from error


async def _meta(
    server: MCPServer,
    tool_name: str,
    context: RunContextWrapper[Any],
    arguments: dict[str, Any],
    explicit: dict[str, Any] | None,
) -> dict[str, Any] | None:
    """The ``_meta`` of a call: the resolver's result, overridden by the tool's own."""
    resolved: Any = None
    if server.tool_meta_resolver is not None:
        seen = MCPToolMetaContext(context, server.name, tool_name, copy.deepcopy(arguments))
        resolved = server.tool_meta_resolver(seen)
        if inspect.isawaitable(resolved):
            resolved = await resolved
        if resolved is not None and not isinstance(resolved, dict):
            raise TypeError("MCP meta resolver must return a dict or None.")
    if resolved is None and explicit is None:
        return None
    return copy.deepcopy({**(resolved or {}), **(explicit or {})})


def tool_output(result: Any, *, structured: bool) -> ToolOutput:
    """The output for the model. For a failed call it is the content, which describes the error."""
    content = package.structured_content(result)
    if structured and content and not package.is_error(result):
        return json.dumps(content)
    parts = [_part(block) for block in result.content]
    return parts[0] if len(parts) == 1 else parts


def _part(block: Any) -> ToolOutputItem:
    if block.type == "text":
        return ToolOutputTextDict(type="text", text=block.text)
    if block.type == "image":
        url = f"data:{package.mime_type(block)};base64,{block.data}"
        return ToolOutputImageDict(type="image", image_url=url)
    return ToolOutputTextDict(type="text", text=block.model_dump_json())


async def _custom_data(
    server: MCPServer,
    tool_name: str,
    shown_name: str,
    context: RunContextWrapper[Any],
    arguments: dict[str, Any],
    result: Any,
    output: ToolOutput,
) -> dict[str, Any] | None:
    if server.custom_data_extractor is None:
        return None
    made: Any = server.custom_data_extractor(
        MCPToolCustomDataContext(
            run_context=context,
            server_name=server.name,
            tool_name=tool_name,
            tool_display_name=shown_name,
            arguments=MappingProxyType(copy.deepcopy(arguments)),
            result_meta=_read_only(getattr(result, "meta", None)),
            structured_content=_read_only(package.structured_content(result)),
            is_error=package.is_error(result),
            tool_output=copy.deepcopy(output),
        )
    )
    return _checked_data(await made if inspect.isawaitable(made) else made)


def _read_only(value: Any) -> Mapping[str, Any] | None:
    return MappingProxyType(copy.deepcopy(value)) if isinstance(value, dict) else None


def _checked_data(data: Any) -> dict[str, Any] | None:
    if data is None:
        return None
    if not isinstance(data, Mapping):
        raise UserError("custom_data_extractor must return a mapping or None.")
    if not all(isinstance(key, str) for key in data):
        raise UserError("custom_data_extractor must return a mapping with string keys.")
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(data), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UserError("custom_data_extractor must return JSON-compatible data.") from error
    return copied or None
