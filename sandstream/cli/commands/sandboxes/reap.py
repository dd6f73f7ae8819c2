"""``sandstream sandboxes reap``: what is left over on this machine, and what becomes of it.

The sandbox actor does the same every minute; this is for machines where none runs, and to look.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import msgspec
from sandstream_actors.run_state import RunState
from sandstream_actors.sandbox.actor import OWN_NODE, installation_of
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.reaper import Reaper, is_abandoned
from sandstream_actors.sandbox.record import SandboxRecord
from sandstream_bus.bus import Bus
from sandstream_bus.subjects import RunId
from sandstream_providers.interface import BoxInfo, Provider, ProviderUnavailable
from sandstream_workspaces.store import WorkspaceStore

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.render import Cell, Column, duration, out, table
from sandstream.cli.services import chosen_isolation
from sandstream.cli.session import connected, put_json, say
from sandstream.sandbox_host import make_provider, node_name
from sandstream.settings import Settings

_STYLES = {"remove": "red", "close": "yellow", "keep": "dim"}
_COLUMNS = [
    Column("BOX"),
    Column("SANDBOX", shrinks=24),
    Column("STATE"),
    Column("AGE", ">"),
    Column("DO"),
    Column("WHY", shrinks=16),
]


class Finding(msgspec.Struct, kw_only=True):
    """One box of this machine as ``--json`` prints it."""

    box: str
    sandbox: str
    state: str
    """Of the box."""
    age_s: float
    do: str
    """``remove``, ``close`` (after a checkpoint) or ``keep``."""
    why: str


async def reap(arguments: argparse.Namespace) -> int:
    settings = Settings.from_env()
    isolation = chosen_isolation()
    async with connected() as client:
        provider = make_provider("local", settings.home, isolation)
        try:
            await provider.check()
        except ProviderUnavailable as error:
            raise CliError(Exit.FAILED, str(error)) from None
        try:
            findings = await _findings(client.bus, provider, arguments.grace)
            _print(findings, as_json=arguments.json, is_done=arguments.yes)
            if arguments.yes:
                name = await asyncio.to_thread(node_name, settings.home)
                await _sweep(client.bus, provider, _nodes(name, isolation), arguments.grace)
        finally:
            await provider.close()
    return Exit.OK


async def _findings(bus: Bus, provider: Provider, grace_s: float) -> list[Finding]:
    """What the reaper will find, without doing anything."""
    findings: list[Finding] = []
    for info in await provider.list_owned(await installation_of(bus)):
        sandbox = info.labels.get("sandbox", "")
        record = SandboxRecord.of(sandbox, await bus.sandboxes.read(sandbox))
        age_s = max(0.0, time.time() - info.created_at)
        do, why = await _verdict(bus, info, record, age_s, grace_s)
        findings.append(
            Finding(
                box=info.key,
                sandbox=sandbox,
                state=info.state,
                age_s=round(age_s, 3),
                do=do,
                why=why,
            )
        )
    return sorted(findings, key=lambda one: (one.do == "keep", -one.age_s))


async def _verdict(
    bus: Bus, info: BoxInfo, record: SandboxRecord, age_s: float, grace_s: float
) -> tuple[str, str]:
    if record.key == info.key and (record.is_live or record.state == "intended"):
        ended = await _end_of_run(bus, record) if record.is_live else ""
        if ended:
            return "close", ended
        return "keep", f"sandbox is {record.state}"
    if record.state == "unknown":
        why = "the log does not know it"
    elif record.key == info.key:
        why = f"sandbox is {record.state}"
    else:
        why = f"generation {info.labels.get('generation', '?')} was superseded"
    if age_s <= grace_s:
        return "keep", f"{why}, but it is younger than {duration(grace_s)}"
    return "remove", why


async def _end_of_run(bus: Bus, record: SandboxRecord) -> str:
    """Why nobody needs the sandbox any more; empty if somebody may."""
    if not record.spec.run:
        return ""
    run = RunId(record.spec.run)
    events = await bus.log.read(run, skip_unknown=True)
    state = RunState.of(run, events)
    if state.done is not None or not events:
        return f"its run {run} has ended"
    return f"the caller of its run {run} is gone" if await is_abandoned(bus, state) else ""


async def _sweep(bus: Bus, provider: Provider, nodes: list[str], grace_s: float) -> None:
    owner, store = await installation_of(bus), WorkspaceStore(bus)
    for node in nodes:
        lifecycle = Lifecycle(bus, provider, store, node=node, owner=owner)
        await Reaper(bus, lifecycle, provider, every_s=0.0, grace_s=grace_s).sweep()
        await lifecycle.stop()


def _nodes(name: str, isolation: str) -> list[str]:
    """All names under which this machine has sandboxes."""
    suffix = "-plain" if isolation == "none" else ""
    return [f"{name}{suffix}", f"{OWN_NODE}{name}{suffix}_reap"]


def _print(findings: list[Finding], *, as_json: bool, is_done: bool) -> None:
    todo = sum(one.do != "keep" for one in findings)
    if as_json:
        for finding in findings:
            put_json(finding)
    elif findings:
        screen = out()
        rows = [
            [
                Cell(one.box),
                Cell(one.sandbox),
                Cell(one.state),
                Cell(duration(one.age_s), "dim"),
                Cell(one.do, _STYLES[one.do]),
                Cell(one.why, "dim"),
            ]
            for one in findings
        ]
        for line in table(screen, _COLUMNS, rows):
            screen.line(line)
    if not todo:
        say("nothing to clean up on this machine")
    elif not is_done:
        say(f"{todo} to clean up; --yes does it now")
