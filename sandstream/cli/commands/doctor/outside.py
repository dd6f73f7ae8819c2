"""What ``doctor`` checks for an outside user, who may send requests and read, but not administer.

It tries each permission, because a server does not list permissions. A request of such a trial
expects a stream that does not exist: the server refuses to store it, so it has no effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sandstream_bus.bus import Bus
from sandstream_bus.errors import NoResponders, PermissionDenied, SandstreamError
from sandstream_bus.setup.installation import check_format
from sandstream_bus.wire.subjects import session_of_user

from sandstream._wire.asks import CONSUMER
from sandstream.cli.commands.doctor.checks import Check, ok, problem, warning

_TIMEOUT_S = 3.0
_HARNESS = "harness-main"
_PROBE = "doctor"
_STORED_NOWHERE = {"Nats-Expected-Stream": "none-it-is-a-probe"}


async def check_outside(bus: Bus, user: str) -> AsyncIterator[Check]:
    """What the user may do, and whether actors serve its requests."""
    try:
        may, may_not = await _requests(bus, user)
    except (SandstreamError, TimeoutError) as error:
        yield problem(
            "requests",
            str(error) or f"no answer within {_TIMEOUT_S:g} s",
            "look at the server: requests are not stored; an administrator's doctor says more",
        )
        return
    reading = await _reading(bus)
    if reading.state == "ok":
        may.insert(0, "follow")
    yield _permissions(user, may, may_not)
    yield reading
    if reading.state == "ok":
        async for check in _company(bus):
            yield check


async def _requests(bus: Bus, user: str) -> tuple[list[str], dict[str, str]]:
    """The roles that the user has, and the subjects that it lacks, by role."""
    ask = bus.subjects
    subjects = {
        "submit": ask.ask_task(user, _PROBE),
        "approve": ask.ask_run(user, _PROBE, "approval"),
        "cancel": ask.ask_run(user, _PROBE, "cancel"),
        "retry": ask.ask_run(user, _PROBE, "retry"),
        "input": ask.ask_run(user, _PROBE, "input"),
        "consolidate": ask.ask_merge(user, _PROBE),
        "session": ask.ask_session(user, session_of_user(user, _PROBE), "send"),
    }
    allowed = await asyncio.gather(*(_may_publish(bus, it) for it in subjects.values()))
    pairs = list(zip(subjects.items(), allowed, strict=True))
    return [role for (role, _), may in pairs if may], {
        role: subject for (role, subject), may in pairs if not may
    }


async def _may_publish(bus: Bus, subject: str) -> bool:
    try:
        await bus.connection.request(
            subject, b"{}", headers=dict(_STORED_NOWHERE), timeout_s=_TIMEOUT_S
        )
    except PermissionDenied:
        return False
    return True


def _permissions(user: str, may: list[str], may_not: dict[str, str]) -> Check:
    denied = "".join(f"; not {role} ({subject})" for role, subject in may_not.items())
    if "submit" not in may and len(may) <= 1:
        return problem(
            "permissions",
            f"{user} may send no requests{denied}",
            f"is SANDSTREAM_USER the name in its permissions? sandstream setup --grant {user}=ROLE",
        )
    return ok("permissions", f"{user} may {', '.join(may)}{denied}")


async def _reading(bus: Bus) -> Check:
    """Commands follow what they ask for in the log."""
    log = bus.topology.log
    try:
        info = await bus.topology.ask(bus.connection, f"STREAM.INFO.{log}", {}, missing_ok=True)
        if info is None:
            return problem("log", f"there is no stream {log}", "an administrator: sandstream setup")
        check_format(bus.topology, info["config"])
    except PermissionDenied as error:
        return problem("log", str(error), "runs cannot be followed without the role follow")
    except (SandstreamError, TimeoutError) as error:
        return problem("log", str(error) or "no answer", "an administrator's doctor says more")
    return ok("log", f"{log} can be read")


async def _company(bus: Bus) -> AsyncIterator[Check]:
    try:
        missing = [it for it in (_HARNESS, CONSUMER) if not await bus.presence.is_served(it)]
    except PermissionDenied as error:
        yield warning("harness", f"unknown: {error}", "the role follow has that permission")
    else:
        if missing:
            yield warning("harness", "none is live", "tasks wait for one; tell an administrator")
        else:
            yield ok("harness", "live")
    try:
        names = await bus.agents.names()
    except (PermissionDenied, NoResponders) as error:
        yield warning("agents", f"unknown: {error}", "the role follow has that permission")
        return
    if names:
        yield ok("agents", ", ".join(names))
    else:
        yield warning("agents", "none is registered", "an administrator: sandstream worker app.py")
