"""``sandstream sandboxes reap``: what is left over on this machine and at the vendors that it has a
key for, and what becomes of it.

The sandbox actor does the same every minute; this is for machines where none runs, and to look.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Container
from contextlib import AsyncExitStack

import msgspec
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.actor import OWN_NODE, installation_of
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.owners import owner_of
from sandstream_actors.sandbox.reaper import GRACE_S, Reaper
from sandstream_bus.bus import Bus
from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER
from sandstream_bus.wire.subjects import RunId
from sandstream_providers import registry
from sandstream_providers.interface import BoxInfo, Provider, ProviderError, ProviderUnavailable
from sandstream_workspaces.store import WorkspaceStore

from sandstream._inspect.summaries import started_in
from sandstream._run.sandbox_host import SHARED_NODE, make_provider, node_name
from sandstream.cli.commands.sandboxes.vendors import has_key, not_asked
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.services.launch import chosen_isolation
from sandstream.cli.session import connected, put_json, say
from sandstream.cli.terminal.render import Cell, Column, duration, out, table
from sandstream.settings import Settings

_STYLES = {"remove": "red", "close": "yellow", "keep": "dim"}
_COLUMNS = [
    Column("BOX", drops=1),
    Column("SANDBOX", shrinks=24),
    Column("STATE"),
    Column("AGE", ">"),
    Column("DO"),
    Column("WHY", shrinks=16),
]


class Finding(msgspec.Struct, kw_only=True):
    """One box as ``--json`` prints it."""

    box: str
    provider: str
    sandbox: str
    state: str
    """Of the box."""
    age_s: float
    box_id: str = ""
    """The vendor's own id of the box."""
    do: str
    """``remove``, ``close`` (after a checkpoint) or ``keep``."""
    why: str


async def reap(arguments: argparse.Namespace) -> int:
    settings = Settings.from_env()
    isolation = chosen_isolation()
    async with connected() as client, AsyncExitStack() as stack:
        providers = await _working(stack, settings, isolation)
        findings = []
        for provider in list(providers):
            try:
                findings += await _findings(client.bus, provider, arguments.grace)
            except ProviderError as error:
                not_asked(provider.name, error)
                providers.remove(provider)
        findings.sort(key=lambda one: (one.do == "keep", -one.age_s))
        _print(findings, as_json=arguments.json, is_done=arguments.yes)
        if arguments.yes:
            name = await asyncio.to_thread(node_name, settings.home)
            for provider in providers:
                await _sweep(client.bus, provider, _nodes(name, isolation), arguments.grace)
    return Exit.OK


async def _working(stack: AsyncExitStack, settings: Settings, isolation: str) -> list[Provider]:
    """The providers that work here. Only the default must: an engine may be away."""
    found: list[Provider] = []
    for name in registry.names():
        if name != DEFAULT_PROVIDER and not (_was_used(settings, name) or has_key(name)):
            continue
        try:
            provider = make_provider(name, settings.home, isolation)
            stack.push_async_callback(provider.close)
            await provider.check()
        except ProviderUnavailable as error:
            if name == DEFAULT_PROVIDER:
                raise CliError(Exit.FAILED, str(error)) from None
            not_asked(name, error)
            continue
        except ProviderError as error:
            not_asked(name, error)
            continue
        found.append(provider)
    return found


def _was_used(settings: Settings, provider: str) -> bool:
    """Did a process of this machine make boxes of the provider? A vendor's keeps nothing here."""
    folder = "sandboxes" if provider == DEFAULT_PROVIDER else provider
    found = settings.home / folder
    return found.is_dir() and any(not it.name.startswith(".") for it in found.iterdir())


async def _findings(bus: Bus, provider: Provider, grace_s: float) -> list[Finding]:
    """What the reaper will find, without doing anything."""
    findings: list[Finding] = []
    owns_boxes = registry.find(provider.name).owns_boxes
    for info in await provider.list_owned(await installation_of(bus)):
        sandbox = info.labels.get("sandbox", "")
        record = SandboxRecord.of(sandbox, await bus.sandboxes.read(sandbox))
        age_s = max(0.0, time.time() - info.created_at)
        do, why = await _verdict(bus, info, record, age_s, grace_s, owns_boxes=owns_boxes)
        findings.append(
            Finding(
                box=info.key,
                provider=provider.name,
                sandbox=sandbox,
                state=info.state,
                box_id=info.vendor_id,
                age_s=round(age_s, 3),
                do=do,
                why=why,
            )
        )
    return findings


async def _verdict(
    bus: Bus,
    info: BoxInfo,
    record: SandboxRecord,
    age_s: float,
    grace_s: float,
    *,
    owns_boxes: bool,
) -> tuple[str, str]:
    if record.key == info.key and record.may_have_box:
        ends_soon = info.state == "running" and owns_boxes
        owner = await owner_of(bus, record, ends_soon=ends_soon)
        return "close" if owner.is_gone else "keep", owner.why
    if record.state == "unknown":
        why = "the log does not know it"
    elif record.key == info.key:
        why = f"sandbox is {record.state}"
    else:
        why = f"generation {info.labels.get('generation', '?')} was superseded"
    if age_s <= grace_s:
        return "keep", f"{why}, but it is younger than {duration(grace_s)}"
    return "remove", why


async def _sweep(
    bus: Bus,
    provider: Provider,
    nodes: list[str],
    grace_s: float,
    only: Container[str] | None = None,
) -> None:
    owner, store = await installation_of(bus), WorkspaceStore(bus)
    owns_boxes = registry.find(provider.name).owns_boxes
    for node in nodes if owns_boxes else [f"{OWN_NODE}{SHARED_NODE}_reap"]:
        lifecycle = Lifecycle(bus, provider, store, node=node, owner=owner, owns_boxes=owns_boxes)
        reaper = Reaper(bus, lifecycle, provider, every_s=0.0, grace_s=grace_s, is_patient=False)
        await reaper.sweep(only)
        await lifecycle.stop()


async def close_left_by(bus: Bus, run: str) -> None:
    """Close the boxes that an ended run or its child runs left on this machine.

    A live actor closes its own boxes. The process that created these may have been killed; without
    this call they would stay open until the next ``reap``.
    """
    settings = Settings.from_env()
    isolation = chosen_isolation()
    for name in registry.names():
        if not (_was_used(settings, name) or has_key(name)):
            continue
        try:
            provider = make_provider(name, settings.home, isolation)
        except ProviderUnavailable as error:
            not_asked(name, error)
            continue
        try:
            await _close_left(bus, provider, run, settings, isolation)
        except ProviderError as error:
            not_asked(name, error)
        finally:
            await provider.close()


async def _close_left(
    bus: Bus, provider: Provider, run: str, settings: Settings, isolation: str
) -> None:
    left = set()
    for info in await provider.list_owned(await installation_of(bus)):
        sandbox = info.labels.get("sandbox", "")
        record = SandboxRecord.of(sandbox, await bus.sandboxes.read(sandbox))
        is_served = await bus.presence.is_served(f"sandbox-{provider.name}-{record.node}")
        if not is_served and run in await _runs_above(bus, record.spec.run):
            left.add(sandbox)
    if left:
        name = await asyncio.to_thread(node_name, settings.home)
        await _sweep(bus, provider, _nodes(name, isolation), GRACE_S, only=left)


async def _runs_above(bus: Bus, run: str) -> set[str]:
    """The run itself and the one at the top of its tree."""
    if not run:
        return set()
    started = started_in(RunId(run), await bus.log.read(RunId(run), skip_unknown=True))
    parent = started.parent if started is not None else None
    return {run} if parent is None else {run, parent.run, parent.root}


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
        say("nothing to clean up")
    elif not is_done:
        say(f"{todo} to clean up; --yes does it now")
