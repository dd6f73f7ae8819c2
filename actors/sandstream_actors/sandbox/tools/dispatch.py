"""Runs a tool by its name in the box. A mistake of the model becomes an answer, not a crash.

Only the loss of the box is raised: the actor decides what to do then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from sandstream_providers.interface import Box, BoxGone, OnOutput, ProviderError, ResolveRule

from sandstream_actors.sandbox.tools.arguments import BadArguments
from sandstream_actors.sandbox.tools.patch_apply import apply_patch
from sandstream_actors.sandbox.tools.patch_errors import PatchError
from sandstream_actors.sandbox.tools.patch_parse import parse_patch
from sandstream_actors.sandbox.tools.shell_tool import ToolText, exec_command, write_stdin
from sandstream_actors.sandbox.tools.view_image import ImageError, view_image


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one call."""

    output: str | list[dict[str, str]]
    """A text, or content parts, in the form of a call's output on the wire."""
    error: str | None = None
    """A code: the call failed, and the output says why."""
    full: bytes | None = None
    """The whole output of a command, if the text has only a part of it."""


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    box: Box
    rule: ResolveRule
    root: str
    cwd: str
    env: Mapping[str, str]
    arguments: str
    op: str
    on_output: OnOutput | None


async def run_tool(
    name: str,
    arguments: str,
    box: Box,
    *,
    rule: ResolveRule,
    root: str,
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    op: str,
    on_output: OnOutput | None = None,
) -> ToolOutcome:
    """Make one call. The same ``op`` again has no further effect and gives the same outcome.

    Raises:
        BoxGone: if the box is lost.
    """
    tool = TOOLS.get(name)
    if tool is None:
        known = ", ".join(TOOLS)
        return ToolOutcome(
            output=f"There is no tool '{name}' in a sandbox; there are: {known}.",
            error="unknown_tool",
        )
    call = _Call(
        box=box,
        rule=rule,
        root=root,
        cwd=cwd,
        env={} if env is None else env,
        arguments=arguments,
        op=op,
        on_output=on_output,
    )
    try:
        return await tool(call)
    except BadArguments as error:
        return ToolOutcome(output=str(error), error="invalid_arguments")
    except (PatchError, ImageError) as error:
        return ToolOutcome(output=str(error), error=error.code)
    except BoxGone:
        raise
    except ProviderError as error:
        return ToolOutcome(output=str(error), error=error.code)


async def _exec_command(call: _Call) -> ToolOutcome:
    return _of_text(
        await exec_command(
            call.box,
            call.rule,
            call.root,
            call.cwd,
            call.env,
            call.arguments,
            op=call.op,
            on_output=call.on_output,
        )
    )


async def _write_stdin(call: _Call) -> ToolOutcome:
    return _of_text(
        await write_stdin(call.box, call.arguments, op=call.op, on_output=call.on_output)
    )


async def _apply_patch(call: _Call) -> ToolOutcome:
    operations = parse_patch(call.arguments)
    output = await apply_patch(call.box, call.rule, call.root, call.cwd, operations, op=call.op)
    return ToolOutcome(output=output)


async def _view_image(call: _Call) -> ToolOutcome:
    return ToolOutcome(
        output=await view_image(call.box, call.rule, call.root, call.cwd, call.arguments)
    )


def _of_text(result: ToolText) -> ToolOutcome:
    return ToolOutcome(output=result.text, error=result.error, full=result.full)


TOOLS: Mapping[str, Callable[[_Call], Awaitable[ToolOutcome]]] = {
    "exec_command": _exec_command,
    "write_stdin": _write_stdin,
    "apply_patch": _apply_patch,
    "view_image": _view_image,
}
