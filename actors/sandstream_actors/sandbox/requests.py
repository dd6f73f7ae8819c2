"""Operations that session objects ask for."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.wire.sandboxes import (
    Close,
    Exec,
    Executed,
    Interact,
    Open,
    Pause,
    Probe,
    Running,
    RunTool,
    SandboxRequest,
    SyncMemory,
    ToolAnswer,
)

from sandstream_actors.sandbox.attempts import in_box
from sandstream_actors.sandbox.failures import Elsewhere
from sandstream_actors.sandbox.live import Live
from sandstream_actors.sandbox.live_output import live_output
from sandstream_actors.sandbox.operations import OPERATIONS, Tools

INLINE_OUTPUT_BYTES = 4 * 1024 * 1024

LOST = (
    "It is unknown whether this took effect: the sandbox was lost meanwhile. It was not repeated."
)
UNKNOWN: dict[type[Any], Any] = {
    Exec: Executed(state="lost"),
    Interact: Executed(state="lost"),
    RunTool: ToolAnswer(output=Raw(msgspec.json.encode(LOST)), error="outcome_unknown"),
}
"""The outcome of an action that may have run in a lost box and must not run twice."""


class Requests:
    """Does one operation on one sandbox."""

    def __init__(self, bus: Bus, tools: Tools) -> None:
        self._bus = bus
        self._tools = tools

    async def do(self, sandbox: str, request: SandboxRequest, *, sequence: int, fresh: bool) -> Any:
        """The action's result. ``fresh``: no replica can have begun it before."""
        action = request.action
        lifecycle = self._tools.lifecycle
        if isinstance(action, Open):
            return await lifecycle.open(sandbox, action.spec, run=request.run, anew=action.anew)
        if isinstance(action, Close):
            return await lifecycle.close(
                sandbox,
                checkpoint=action.checkpoint,
                delete=action.delete,
                exclude=action.exclude,
                reason="closed by its session",
                asked_at=sequence,
            )
        if isinstance(action, Probe):
            return await self._probe(sandbox)
        if isinstance(action, SyncMemory):
            return await lifecycle.sync_memory(sandbox, action.scope)
        if isinstance(action, Pause):
            await lifecycle.pause(sandbox, "asked for")
            return None
        return await self._operate(sandbox, request, sequence=sequence, fresh=fresh)

    async def _operate(
        self, sandbox: str, request: SandboxRequest, *, sequence: int, fresh: bool
    ) -> Any:
        action = request.action
        on_output = live_output(self._bus, request.run or sandbox, request.op)
        operation = OPERATIONS[type(action)]
        once = type(action) in UNKNOWN

        def unknown(_: Live | None = None) -> Any:
            return UNKNOWN[type(action)]

        result = await in_box(
            self._tools.lifecycle,
            sandbox,
            lambda live: operation(self._tools, live, request.op, action, on_output),
            sequence=sequence,
            fresh=fresh,
            when_lost=unknown if once else None,
            when_closed=unknown if once else None,
        )
        return await self._portable(result)

    async def _portable(self, result: Any) -> Any:
        """Output that is too big for a message goes by reference."""
        if not isinstance(result, Executed):
            return result
        refs: dict[str, Any] = {}
        for stream in ("stdout", "stderr"):
            data: bytes = getattr(result, stream)
            if len(data) > INLINE_OUTPUT_BYTES:
                refs |= {f"{stream}_object": await self._bus.objects.put(data), stream: b""}
        return msgspec.structs.replace(result, **refs) if refs else result

    async def _probe(self, sandbox: str) -> Running:
        record = await self._tools.lifecycle.record(sandbox)
        if not record.is_live or record.is_kept:
            return Running(running=False, state=record.state)
        if record.node != self._tools.lifecycle.node:
            if await self._tools.lifecycle.is_served(record.node):
                raise Elsewhere(record.node)
            return Running(running=False, state=record.state)  # its box is gone with its node
        box = await self._tools.provider.get(record.key)
        return Running(running=box is not None, state=record.state)
