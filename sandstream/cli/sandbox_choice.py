"""Finds sandboxes by what people type: a sandbox's id, or that of the run that has it."""

from __future__ import annotations

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_bus.bus import Bus
from sandstream_bus.logs.sandboxes import SandboxLogEvent
from sandstream_bus.wire.messages import RunStarted
from sandstream_bus.wire.sandboxes import SandboxCheckpointed
from sandstream_bus.wire.subjects import check_token, sandbox_of

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import near_ids, readable, recent_runs
from sandstream.client import Client


class FoundSandbox:
    """A sandbox that the log knows, and its whole log."""

    def __init__(self, sandbox: str, events: list[SandboxLogEvent]) -> None:
        self.id = sandbox
        self.events = events
        self.record = SandboxRecord.of(sandbox, events)

    @property
    def checkpoints(self) -> list[SandboxCheckpointed]:
        """Oldest first."""
        found = [it.event for it in self.events]
        return [event for event in found if isinstance(event, SandboxCheckpointed)]

    def checkpoint(self, digest: str | None = None) -> str:
        """The last checkpoint, or the one that a digest (or its first digits) names."""
        trees = [it.tree for it in self.checkpoints]
        if not trees and not digest:
            state = self.record.state
            raise CliError(
                Exit.NOT_FOUND,
                f"sandbox {self.id} has no checkpoint yet (it is {state}): one is made at the end "
                'of its run, or after each turn with SandboxRunConfig(checkpoint="turn")',
            )
        if not digest:
            return trees[-1]
        named = sorted({tree for tree in trees if tree.startswith(digest.lower())})
        if len(named) > 1:
            raise CliError(
                Exit.USAGE, f"{digest!r} matches {len(named)} checkpoints: give more digits"
            )
        if not named:
            raise CliError(
                Exit.NOT_FOUND,
                f"sandbox {self.id} has no checkpoint {digest!r}; "
                f"`sandstream sandboxes show {self.id}` lists them",
            )
        return named[0]


async def sandbox_named(client: Client, name: str) -> FoundSandbox:
    """The sandbox of that id, or the one of the run of that id."""
    check_token(name, "the id")
    events = await client.bus.sandboxes.read(name)
    if events:
        return FoundSandbox(name, events)
    run = await client.events(name)
    if not run:
        boxes = await readable(client.bus.sandboxes.names())
        known = {*boxes, *await recent_runs(client)}
        raise CliError(
            Exit.NOT_FOUND,
            f"there is no sandbox and no run {name!r}{near_ids(name, known)}; "
            "see `sandstream sandboxes` and `sandstream runs`",
        )
    started = next((it.event for it in run if isinstance(it.event, RunStarted)), None)
    found = await sandboxes_of(client.bus, name, started) if started is not None else []
    if not found:
        raise CliError(
            Exit.NOT_FOUND, f"run {name} has no sandbox; `sandstream sandboxes` lists all there are"
        )
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise CliError(Exit.USAGE, f"run {name} has several sandboxes; name one of: {ids}")
    return found[0]


async def sandboxes_of(bus: Bus, run: str, started: RunStarted) -> list[FoundSandbox]:
    """The sandboxes that the agents of a run have used."""
    found: dict[str, FoundSandbox] = {}
    for name, agent in started.graph.agents.items():
        if agent.sandbox is None:
            continue
        sandbox = agent.sandbox.id or sandbox_of(run, name)
        events = await bus.sandboxes.read(sandbox)
        if events:
            found[sandbox] = FoundSandbox(sandbox, events)
    return list(found.values())
