"""What a move of a workspace to another provider would leave behind."""

from __future__ import annotations

from typing import Literal

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.errors import PermissionDenied
from sandstream_bus.wire.sessions import SessionState

from sandstream.exceptions import UserError


class SwitchLoss(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that does not carry over."""

    kind: Literal["processes", "packages", "ports", "options"]
    """What kind of thing it is."""
    text: str
    """What happens to it, for people."""


class SwitchPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a move to another provider keeps and what it loses. Files, modes, links and the
    conversation always carry over, and are checked by their digest.
    """

    session: str
    """The session."""
    source: str
    """The provider that the workspace is at."""
    target: str
    """The provider to move to."""
    is_served: bool | None
    """Whether an actor of the target is running; ``None``: this user may not ask."""
    waits_for_turn: int = 0
    """The turn at work, whose end the move waits for; 0: none."""
    losses: list[SwitchLoss] = []
    """What does not carry over."""


async def preview_switch(bus: Bus, state: SessionState, target: str) -> SwitchPreview:
    """Tell what a move would lose. Nothing is changed."""
    workspace = state.workspace
    if workspace is None:
        raise UserError(f"session {state.session} has no workspace: its agent has no sandbox")
    losses: list[SwitchLoss] = []
    if workspace.box != "asleep":
        losses.append(
            SwitchLoss(
                kind="processes",
                text=f"processes that still run in the {workspace.provider} box end",
            )
        )
    losses.append(
        SwitchLoss(
            kind="packages",
            text="packages and files outside of the workspace stay behind; the new box begins with "
            f"what {target} offers",
        )
    )
    ports = await _ports(bus, state.agent)
    if ports:
        named = f"{numbered(len(ports), 'port')} ({', '.join(map(str, ports))})"
        losses.append(
            SwitchLoss(kind="ports", text=f"{named} of the workspace get other addresses")
        )
    if workspace.options:
        names = ", ".join(sorted(workspace.options))
        losses.append(
            SwitchLoss(kind="options", text=f"options of {workspace.provider} end: {names}")
        )
    return SwitchPreview(
        session=state.session,
        source=workspace.provider,
        target=target,
        is_served=await _is_served(bus, target),
        waits_for_turn=state.active.number if state.active else 0,
        losses=losses,
    )


async def _ports(bus: Bus, agent: str) -> list[int]:
    """The ports that the agent's sandboxes offer."""
    try:
        registered = await bus.agents.find(agent)
    except PermissionDenied:
        return []
    uses = [] if registered is None else registered.graph.agents.values()
    return sorted({port for one in uses if one.sandbox for port in one.sandbox.spec.ports})


async def _is_served(bus: Bus, provider: str) -> bool | None:
    try:
        return await bus.presence.is_served(f"sandbox-{provider}")
    except PermissionDenied:
        return None
