"""What ``doctor`` says about actors. An entry of the registry may name a check of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Set
from typing import Any, NamedTuple

from sandstream_actors.registry import find_actors, load
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered

from sandstream.cli.commands.doctor.checks import Check, ok, warning
from sandstream.settings import Settings


class Look(NamedTuple):
    """What the checks of actors look at."""

    bus: Bus
    settings: Settings
    consumers: list[dict[str, Any]]
    served: Set[str]
    """The consumers for which a replica answers."""


async def check_actors(look: Look) -> AsyncIterator[Check]:
    """All actors, in the order of the registry."""
    for entry in find_actors().values():
        if entry.doctor:
            async for check in load(entry.doctor)(look):
                yield check
        elif any(entry.reads(it) for it in look.served):
            yield ok(entry.name, "live")
        else:
            start = f"start one if you need it: `sandstream actor {entry.name}`"
            yield warning(entry.name, "no actor is live", start)


async def check_harnesses(look: Look) -> AsyncIterator[Check]:
    """Which pools have a live harness, and what waits for one."""
    found: list[str] = []
    behind = 0
    for consumer in look.consumers:
        name = str(consumer.get("name", ""))
        kind, _, pool = name.partition("-")
        if kind not in ("harness", "starts", "tasks") or pool.startswith("p-"):
            continue  # p-…: the own pool of a Runner.run
        behind += consumer.get("num_pending", 0)
        if name in look.served:
            found.append(pool)
    if found:
        yield ok("harness", f"live in pool {', '.join(sorted(found))}")
        return
    waiting = f", {numbered(behind, 'message waits', 'messages wait')}" if behind else ""
    yield warning(
        "harness",
        f"none is live{waiting}",
        "tasks wait for one: `sandstream up` or `actor harness`",
    )


async def check_sandbox_actors(look: Look) -> AsyncIterator[Check]:
    """Live ones, and work that waits for one. Those of a single program are left out."""
    shared = re.compile(r"sandbox-[^-]+(-(?!own-).+)?")
    found: list[str] = []
    behind = 0
    for consumer in look.consumers:
        name = str(consumer.get("name", ""))
        if shared.fullmatch(name) is None:
            continue
        if name not in look.served:
            behind += consumer.get("num_pending", 0)
        elif name.count("-") > 1:
            found.append(name.partition("-")[2])
    if behind:
        yield warning(
            "sandbox",
            f"{numbered(behind, 'message waits', 'messages wait')} for an actor",
            "start one where the sandboxes are: `sandstream actor sandbox`",
        )
        return
    text = f"live: {', '.join(sorted(found))}" if found else "no actor is live; nothing waits"
    yield ok("sandbox", text)
