"""How many calls each operation costs at a vendor, as ``docs/sandboxes.md`` says."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from providers.hosted.accounts import Account, new_op, perform, said
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.interface import Box, BoxSpec, FileWrite, ResolveRule

PAGE = Path(__file__).parents[3] / "docs" / "sandboxes.md"
COLUMNS = ("daytona", "e2b")
HOMES = {"daytona": "/home/daytona/work", "e2b": "/home/user/work"}
FILES = 200

Act = Callable[[AgentProvider, BoxSpec, Box], Awaitable[object]]


async def _write(_: AgentProvider, __: BoxSpec, box: Box) -> None:
    change = FileWrite(path=f"{box.root}/one.txt", data=b"one\n")
    await box.change(new_op(), [change], ResolveRule(roots=[box.root]))


async def _fill(_: AgentProvider, __: BoxSpec, box: Box) -> None:
    files = [FileWrite(path=f"{box.root}/f{it}", data=b"%d\n" % it) for it in range(FILES)]
    await box.fill(new_op(), files, ResolveRule(roots=[box.root]))


async def _scan(_: AgentProvider, __: BoxSpec, box: Box) -> None:
    found = [item async for item in box.scan([], full=True)]
    assert len(found) > FILES


STEPS: dict[str, Act] = {
    "a command": lambda _, __, box: said(box, "echo hello"),
    "a file is written": _write,
    "200 files of a manifest": _fill,
    "a checkpoint of these files": _scan,
    "a pause": lambda provider, spec, _: provider.pause(spec.key),
    "a box is woken": lambda provider, spec, _: provider.get(spec.key),
    "a list of all boxes": lambda provider, spec, _: provider.list_owned(spec.labels["owner"]),
    "a removal": lambda provider, spec, _: provider.delete(spec.key),
}


def table() -> dict[str, dict[str, int]]:
    """By operation and vendor, from the page."""
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.M)
    return {row[0]: dict(zip(COLUMNS, map(int, row[1:]), strict=True)) for row in rows}


def test_calls_of_each_operation(account: Account) -> None:
    counted: dict[str, int] = {}

    async def story(account: Account) -> None:
        spec = account.spec(root=HOMES[account.name])
        async with account.provider() as provider:
            await provider.check()
            seen = account.arrivals()
            box = await provider.create(spec)
            counted["a box is made"] = len(seen.calls())
            seen = account.arrivals()
            await provider.create(account.spec())  # in /workspace
            more = {"daytona": 0, "e2b": 2}[account.name]
            assert len(seen.calls()) == counted["a box is made"] + more
            for name, act in STEPS.items():
                seen = account.arrivals()
                await act(provider, spec, box)
                counted[name] = len(seen.calls())
        async with account.provider(agents=False) as provider:
            spec = account.spec(root=HOMES[account.name])
            box = await provider.create(spec)
            seen = account.arrivals()
            await said(box, "echo hello")
            counted["a command in a box without Python"] = len(seen.calls())

    perform(account, story)
    said_there = {name: row[account.name] for name, row in table().items()}
    assert counted == said_there
    assert counted["a command"] <= 1 and counted["a command in a box without Python"] <= 2
