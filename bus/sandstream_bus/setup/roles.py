"""Roles: which subjects each kind of NATS user may publish and subscribe to.

People and programs that only use an installation are *outside*. They have their own NATS account,
which imports a few subjects of the account with the streams. A server answers to any reply subject
that a request names, without checking permissions: within one account, a user who may publish a
task could have its acknowledgement stored as an agent's registration. Between two accounts the
server replaces the reply subject, so that answers reach only the sender of the request.

Actors, workers and administrators are *inside*, in the account with the streams, and trusted with
all of them: their permissions limit mistakes, but do not stop a malicious one.

``server_accounts.py`` writes the server configuration for this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from sandstream_bus.errors import BusError
from sandstream_bus.nats.topology import Topology
from sandstream_bus.wire.replies import INBOX, OUTSIDE_API, SERVICE_INBOX
from sandstream_bus.wire.subjects import SHARED, check_user, is_token


class InvalidRole(BusError):
    """There is no such role, or it cannot be given this way."""

    code = "bus.invalid_role"


class Grant(NamedTuple):
    """Allowed subjects for a server's permissions. All others are forbidden."""

    publish: list[str]
    subscribe: list[str]

    def __or__(self, other: object) -> Grant:
        if not isinstance(other, Grant):
            return NotImplemented
        return Grant(
            list(dict.fromkeys([*self.publish, *other.publish])),
            list(dict.fromkeys([*self.subscribe, *other.subscribe])),
        )


class Role(NamedTuple):
    """One role."""

    name: str
    meaning: str
    is_outside: bool
    detail: str
    """What may follow the name after a colon; empty: nothing may."""
    grant: Callable[[Topology, str], Grant]


def inbox_of(user: str) -> str:
    """The prefix of the user's reply subjects (``NATS_INBOX_PREFIX``), readable only by them."""
    return f"{INBOX}.{user}"


def grant_of(topology: Topology, user: str, roles: Iterable[str]) -> Grant:
    """The permissions of a user with these roles. ``user`` applies to roles that name no user."""
    found = Grant([], [f"{inbox_of(user)}.>"])
    for text in roles:
        role, detail = parse_role(text)
        found |= role.grant(topology, detail or (user if role.detail == _USER else "*"))
    return found


def parse_role(text: str) -> tuple[Role, str]:
    """A role and its detail; raises :class:`InvalidRole` with the list of roles."""
    name, colon, detail = text.partition(":")
    role = ROLES.get(name)
    if role is None:
        listed = "; ".join(f"{_usage(it)}: {it.meaning}" for it in ROLES.values())
        raise InvalidRole(f"there is no role {name!r}. The roles are: {listed}")
    if colon and not role.detail:
        raise InvalidRole(f"the role {name} takes nothing after a colon")
    if role.detail == _USER and detail not in ("", "*"):
        check_user(detail)
    elif colon and detail != "*" and not is_token(detail):
        raise InvalidRole(f"{text!r}: the {role.detail} must be 1 to 128 of A-Z a-z 0-9 _ - =")
    return role, detail


def is_outside(roles: Iterable[str]) -> bool:
    """Is a user with these roles outside? Raises :class:`InvalidRole` for a mixture."""
    kinds = {text: parse_role(text)[0].is_outside for text in roles}
    if not kinds:
        raise InvalidRole("a user needs a role")
    if len(set(kinds.values())) > 1:
        outside = ", ".join(it for it, is_out in kinds.items() if is_out)
        inside = ", ".join(it for it, is_out in kinds.items() if not is_out)
        raise InvalidRole(
            f"a user is either outside ({outside}) or trusted with the streams ({inside}): make two"
        )
    return next(iter(kinds.values()))


class Gate(NamedTuple):
    """Everything that passes from outside to the account with the streams."""

    requests: list[str]
    """Requests with one answer each."""
    reads: list[str]
    """Requests with any number of answers."""
    live: list[str]
    """Subjects that outside users may subscribe to."""


def gate(topology: Topology) -> Gate:
    """What the account with the streams exports, and the one of outsiders imports."""
    streams = [str(config["name"]) for config in topology.streams()]
    calls = [f"{call}.{it}" for it in streams for call in ("STREAM.INFO", "STREAM.MSG.GET")]
    calls += [*_lists(topology), f"CONSUMER.INFO.{topology.log}.*"]
    reads = [f"$JS.API.DIRECT.GET.{it}{rest}" for it in streams for rest in ("", ".>")]
    names = topology.subjects
    asks = [*names.tasks(), *names.asks(), *names.session_asks(), names.alive("*")]
    return Gate([*asks, *(f"$JS.API.{it}" for it in calls)], reads, [topology.subjects.live_all()])


# --- outside --------------------------------------------------------------------------------------


def _submit(topology: Topology, user: str) -> Grant:
    tasks = [f"ask.{user}.task.*"] if user != SHARED else []
    return _events(topology, *tasks, *(["task.*"] if user in (SHARED, "*") else []))


def _ask(kind: str) -> Callable[[Topology, str], Grant]:
    def grant(topology: Topology, user: str) -> Grant:
        return _events(topology, f"ask.{user}.run.*.{kind}")

    return grant


def _consolidate(topology: Topology, user: str) -> Grant:
    return _events(topology, f"ask.{user}.memory.*.merge")


def _session(topology: Topology, user: str) -> Grant:
    return _events(topology, f"ask.{user}.session.*.*")


def _follow(topology: Topology, _: str) -> Grant:
    readable = (topology.log, topology.open, topology.agents, f"OBJ_{topology.bucket}")
    calls = [
        f"{OUTSIDE_API}.{it}.{name}"
        for name in readable
        for it in ("STREAM.INFO", "STREAM.MSG.GET")
    ]
    return Grant(calls, []) | _events(topology, "alive.*") | _hearing(topology, "live.>")


def _console(topology: Topology, _: str) -> Grant:
    found = Grant([], [])
    for role in (name for name, it in ROLES.items() if it.is_outside and name != "console"):
        found |= ROLES[role].grant(topology, "*")
    passes = gate(topology)
    api = [it for it in (*passes.requests, *passes.reads) if it.startswith("$JS.API.")]
    return found | Grant([outer(it) for it in api], [])


def outer(subject: str) -> str:
    """The outside users' name for an inside subject."""
    return subject.replace("$JS.API.", f"{OUTSIDE_API}.", 1)


def _lists(topology: Topology) -> list[str]:
    """API calls that list all consumers."""
    return [f"CONSUMER.LIST.{it}" for it in (topology.log, topology.requests, topology.timers)]


# --- inside ---------------------------------------------------------------------------------------


def _reading(topology: Topology, *names: str) -> Grant:
    calls = [f"{call}.{it}" for it in names for call in ("STREAM.MSG.GET", "DIRECT.GET")]
    calls += [f"DIRECT.GET.{it}.>" for it in names]
    return Grant([f"$JS.API.{it}" for it in calls], [])


def _serving(topology: Topology, stream: str, consumer: str) -> Grant:
    """Create a consumer, pull from it, park messages that cannot be handled, answer that it is
    served.
    """
    calls = [
        f"$JS.API.{call}.{stream}.{consumer}"
        for call in ("CONSUMER.INFO", "CONSUMER.CREATE", "CONSUMER.MSG.NEXT")
    ]
    return (
        Grant([*calls, f"$JS.ACK.{stream}.{consumer}.>"], [])
        | _events(topology, f"parked.{consumer}.*")
        | _hearing(topology, f"alive.{consumer}")
    )


def _events(topology: Topology, *kinds: str) -> Grant:
    return Grant(topology.subjects.matching(*kinds), [])


def _hearing(topology: Topology, *kinds: str) -> Grant:
    return Grant([], topology.subjects.matching(*kinds))


def _storing(bucket: str) -> Grant:
    return Grant([f"$O.{bucket}.C.*", f"$O.{bucket}.M.*"], [])


def _member(topology: Topology) -> Grant:
    """Common to all inside processes: look at the streams, read the log, store big payloads, ask
    for presence, and answer presence requests.
    """
    streams = [str(config["name"]) for config in topology.streams()]
    return (
        Grant([f"$JS.API.STREAM.INFO.{it}" for it in streams], [])
        | Grant(["$JS.API.STREAM.NAMES", f"{INBOX}.>", f"{SERVICE_INBOX}.>"], [])
        | _reading(topology, topology.log, f"OBJ_{topology.bucket}")
        | _storing(topology.bucket)
        | _events(topology, "alive.*")
    )


def _ending(topology: Topology, provider: str = "*") -> Grant:
    """End a run one of whose messages was parked, with all consequences: in the index, in its
    conversation, in the tree of its runs and in its sandboxes.
    """
    kinds = ("done", "result.*", "cancel", "turn.*", f"sandbox.{provider}", f"sandbox.{provider}.>")
    run = [f"run.*.{it}" for it in kinds]
    return _reading(topology, topology.open) | _events(
        topology, *run, "open.*", "session.*.log", "session.*.snapshot"
    )


def _harness(topology: Topology, pool: str) -> Grant:
    # It re-reads requests whose runs are retried before they have begun.
    streams = (topology.agents, topology.open, topology.requests)
    found = _member(topology) | _reading(topology, *streams)
    names = [f"{kind}-{pool}" for kind in ("harness", "starts")] if pool != "*" else ["*"]
    for name in names:
        found |= _serving(topology, topology.log, name)
    names = [f"tasks-{pool}", "asks"] if pool != "*" else ["*"]
    for name in names:
        found |= _serving(topology, topology.requests, name)
    return (
        found
        | _serving(topology, topology.timers, "timers")
        # A harness makes all decisions about runs, and calls agents of other pools.
        | _events(topology, "run.>", "open.*", "timer.>", "live.*.delta", "memory.*.merge")
        | _events(topology, "session.*.log", "session.*.snapshot")
        | _hearing(topology, "live.*.cancel")
    )


def _worker(topology: Topology, pool: str) -> Grant:
    consumer = f"tools-{pool}" if pool != "*" else "*"
    return (
        _member(topology)
        | _serving(topology, topology.log, consumer)
        | _reading(topology, topology.agents, *_memory_streams(topology))
        | _ending(topology)
        | _events(topology, "agent.*", "run.*.started.*")
        # Tools may use sandboxes, and wait until a sandbox's memories are updated.
        | _events(topology, "live.*.delta", "trace.*.spans", "sandbox.*.op.>", "memory.*.merge")
        | Grant([f"$JS.API.CONSUMER.INFO.{topology.log}.memory"], [])
        | _hearing(topology, "live.*.cancel", "sandbox.*.reply.*")
    )


def _sandbox(topology: Topology, provider: str) -> Grant:
    """Any consumer: each node has one, and takes over those of dead nodes."""
    return (
        _member(topology)
        | _serving(topology, topology.log, "*")
        | Grant([f"$JS.API.CONSUMER.LIST.{topology.log}"], [])
        | _memories(topology)
        | _ending(topology, provider)
        | _events(topology, "sandbox.>", "memory.*.edit", "live.*.output")
        | _hearing(topology, "live.*.cancel", "sandbox.*.state")
    )


def _memories(topology: Topology) -> Grant:
    buckets = _storing(topology.memory_bucket)
    purge = [f"$JS.API.STREAM.PURGE.{it}" for it in _memory_streams(topology)]
    return (
        _reading(topology, *_memory_streams(topology))
        | buckets
        | _events(topology, "memory.*.state", "memory.*.event")
        | Grant(purge, [])
    )


def _memory_streams(topology: Topology) -> tuple[str, str]:
    return topology.memory, f"OBJ_{topology.memory_bucket}"


def _memory(topology: Topology, _: str) -> Grant:
    """It has its own harness, for the turns of its phases."""
    return (
        _harness(topology, "memory")
        | _serving(topology, topology.log, "memory")
        | _serving(topology, topology.timers, "timers-memory")
        | _memories(topology)
        | _events(topology, "memory.>", "sandbox.>")
    )


def _sessions(topology: Topology, _: str) -> Grant:
    """It starts and stops runs, and asks sandbox actors to save and close workspaces."""
    found = _member(topology) | _reading(topology, topology.agents, topology.open)
    return (
        found
        | _reading(topology, topology.requests)
        | _serving(topology, topology.log, "sessions")
        | _serving(topology, topology.requests, "sessions-asks")
        | _serving(topology, topology.timers, "sessions-timers")
        # It ends a run itself if no worker offers the agent any more.
        | _events(topology, *(f"run.*.{it}" for it in ("start.*", "turn.*", "cancel", "done")))
        | _events(topology, "session.>", "open.*", "sandbox.*.op.>", "timer.>", "live.*.session")
        | _hearing(topology, "sandbox.*.reply.*", "live.*.session")
    )


def _tracing(topology: Topology, group: str) -> Grant:
    consumer = f"tracing-{group}" if group != "*" else "*"
    return (
        _member(topology)
        | _serving(topology, topology.log, consumer)
        | _events(topology, f"trace.*.exported.{group}")
        # For metrics: the backlog of each consumer.
        | Grant([f"$JS.API.{it}" for it in _lists(topology)], [])
    )


def _program(topology: Topology, _: str) -> Grant:
    """It is all actors in one, under names of its own."""
    found = _harness(topology, "*") | _worker(topology, "*") | _sandbox(topology, "*")
    return (
        found
        | _memory(topology, "")
        | _sessions(topology, "")
        | _tracing(topology, "*")
        | _reading(topology, topology.parked)
        | _events(topology, "ask.>", "task.*")
        | _hearing(topology, "live.>", "sandbox.*.reply.*")
    )


def _custom(topology: Topology, name: str) -> Grant:
    consumer = f"actor-{name}" if name != "*" else "*"
    return _member(topology) | _serving(topology, topology.log, consumer)


def _admin(topology: Topology, _: str) -> Grant:
    [everything] = topology.subjects.matching(">")
    objects = [f"$O.{it}.>" for it in (topology.bucket, topology.memory_bucket)]
    return Grant(
        [everything, "$JS.API.>", "$JS.ACK.>", *objects, f"{INBOX}.>", f"{SERVICE_INBOX}.>"],
        [everything],
    )


_USER = "user, or * for all users; own name if left out"
_POOL = "pool; all pools if left out"

ROLES = {
    role.name: role
    for role in (
        Role("submit", "give tasks to agents", True, _USER, _submit),
        Role("follow", "read all runs, as they come and later", True, "", _follow),
        Role("approve", "answer questions of own runs", True, _USER, _ask("approval")),
        Role("cancel", "stop own runs", True, _USER, _ask("cancel")),
        Role("retry", "retry own failed runs", True, _USER, _ask("retry")),
        Role("input", "say more to own runs", True, _USER, _ask("input")),
        Role("consolidate", "have a memory consolidated", True, _USER, _consolidate),
        Role("session", "begin and use own sessions", True, _USER, _session),
        Role("console", "read everything, ask as any user", True, "", _console),
        Role("harness", "sandstream actor harness", False, _POOL, _harness),
        Role("worker", "sandstream worker", False, _POOL, _worker),
        Role("program", "a program with Runner.run, or sandstream run", False, "", _program),
        Role("sandbox", "sandstream actor sandbox", False, "provider", _sandbox),
        Role("memory", "sandstream actor memory", False, "", _memory),
        Role("sessions", "sandstream actor sessions", False, "", _sessions),
        Role("tracing", "sandstream actor tracing", False, "group", _tracing),
        Role("actor", "an actor of your own (Actor)", False, "name", _custom),
        Role("admin", "sandstream setup, doctor, parked and all else", False, "", _admin),
    )
}


def _usage(role: Role) -> str:
    if not role.detail:
        return role.name
    return f"{role.name}[:{'USER' if role.detail == _USER else role.detail.split(';')[0].upper()}]"
