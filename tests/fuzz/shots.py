"""The messages of the fuzzer, by seed. What is aimed at honest runs is always malformed.

An insider who forges a valid event of somebody's run has changed that run: that is what writing the
log means. So valid forgeries go to runs that the fuzzer has started itself, or that nobody has.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Literal, NamedTuple

import msgspec
from fuzz.bodies import Bodies, Body, broken
from fuzz.grammar import Family, families
from fuzz.hostile_headers import hostile
from fuzz.wire import Headers
from sandstream_bus.logs import codec
from sandstream_bus.wire.conversations import ConversationEvent
from sandstream_bus.wire.memories import MemoryEvent, MergeRequested
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    CancelRequested,
    Claim,
    InputStaged,
    RunEvent,
    Task,
)
from sandstream_bus.wire.sandboxes import SandboxEvent, SandboxReply, SandboxRequest
from sandstream_bus.wire.traces import TraceEvent

Aim = Literal["invented", "own", "honest"]
PREFIX = "sandstream"
CORE = ("alive", "live")
"""Families that no stream stores."""
_REPLACING = ("agent", "memory.{scope}.state", "parked", "timer", "due", "open")
"""One message a subject, or part of our books: who may write it has replaced what was there."""
_REMARKS = ("run.{run}.cancel", "run.{run}.input", "run.{run}.approval.decided")
_ODD_TOKENS = (
    *("*", ">", "=", "-", "_", "a" * 128, "a" * 129, "a" * 400, "é", "\udcff", "$JS", "=2A", "%s"),
    *(
        "alice=",
        "=alice",
        "alice=x",
        "ALICE=x",
        "shared=x",
        "child-x",
        "x_t1-0",
        "task-1",
        "\x01",
        "\x0b",
        "a\x0cb",
    ),
)
_FRESH_S = 300.0
"""Replays are of messages that the server still knows as duplicates."""


class Shot(NamedTuple):
    """One message, and why it is sent."""

    number: int
    family: str
    aim: Aim
    kind: str
    subject: bytes
    data: bytes
    headers: Headers
    reply: bytes = b""
    """Where the server's answer is to go; empty: to the fuzzer."""

    @property
    def is_core(self) -> bool:
        return self.family.split(".")[0] in CORE


class Names(NamedTuple):
    """Real names, by the parameter of a subject that they fit."""

    pools: tuple[str, ...] = ("main", "crew", "memory")
    agents: tuple[str, ...] = ("plain", "cashier", "chief", "clerk", "smith")
    providers: tuple[str, ...] = ("local", "docker", "nobody")
    nodes: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    users: tuple[str, ...] = ("shared", "alice", "bob")


class Gun:
    """Makes shots. ``own`` and ``honest`` are the ids of runs, as they come and go."""

    def __init__(self, seed: int, names: Names) -> None:
        self._rng = Random(seed)
        self._names = names
        self._families = families()
        self._bodies = Bodies()
        self._count = 0
        self._ids: deque[bytes] = deque(maxlen=200)
        self._past: deque[tuple[float, bytes, bytes, Headers]] = deque(maxlen=500)
        self._last: Shot | None = None
        self.own: deque[str] = deque(maxlen=24)
        self.honest: deque[str] = deque(maxlen=12)

    def record(self, subject: str, data: bytes, headers: dict[str, str]) -> None:
        """A real message that was stored, to be sent again."""
        if "Nats-Msg-Id" in headers:
            kept = [(name.encode(), value.encode()) for name, value in headers.items()]
            self._past.append((time.monotonic(), subject.encode(), data, kept))

    def next(self) -> Shot:
        self._count += 1
        roll = self._rng.random()
        if roll < 0.03 and self._last is not None:
            shot = self._last._replace(number=self._count, kind="again: " + self._last.kind)
        elif roll < 0.06 and self._past:
            shot = self._replay()
        else:
            shot = self._last = self._fresh()
        for name, value in shot.headers:
            if name == b"Nats-Msg-Id":
                self._ids.append(value)
        return shot

    def _replay(self) -> Shot:
        at, subject, data, headers = self._rng.choice(self._past)
        if time.monotonic() - at > _FRESH_S:
            self._past.clear()
        return Shot(self._count, "replay", "honest", "replay", subject, data, headers)

    def _fresh(self) -> Shot:
        rng = self._rng
        family = rng.choice(self._families)
        aim: Aim = rng.choices(("invented", "own", "honest"), (5, 3, 2))[0]
        if not getattr(self, aim, True) or (
            aim == "honest" and family.shape.startswith(_REPLACING)
        ):
            aim = "invented"
        body = self._malformed(family) if aim == "honest" else self._any(family)
        headers = hostile(rng, earlier_ids=list(self._ids))
        if aim == "honest" and family.shape not in _REMARKS:
            # with an id it would pass for an actor's, and end the run with the reason
            headers = [it for it in headers if it[0] != b"Nats-Msg-Id"]
        subject = self._subject(family, aim)
        reply = b""
        if rng.random() < 0.02:  # the server, or an actor, is to write there
            target = rng.choice([it for it in self._families if it.shape.startswith("run.")])
            reply = self._subject(target, aim)
        return Shot(self._count, family.shape, aim, body.kind, subject, body.data, headers, reply)

    # --- subjects ------------------------------------------------------------------------------

    def _subject(self, family: Family, aim: Aim) -> bytes:
        text = family.shape
        for parameter in family.parameters:
            text = text.replace(f"{{{parameter}}}", self._token(family.shape, parameter, aim), 1)
        return f"{PREFIX}.{text}".encode("utf-8", "surrogateescape")

    def _token(self, shape: str, parameter: str, aim: Aim) -> str:
        rng, names = self._rng, self._names
        if aim != "honest" and rng.random() < 0.05:
            return rng.choice(_ODD_TOKENS)
        if shape.startswith("agent."):  # a registration replaces the one before
            return self._invented()
        known: dict[str, Callable[[], tuple[str, ...]]] = {
            "pool": lambda: names.pools,
            "agent": lambda: names.agents,
            "provider": lambda: names.providers,
            "node": lambda: names.nodes,
            "consumer": lambda: names.consumers,
            "user": lambda: names.users,
            "kind": lambda: ("cancel", "done", "model", "delta", "approval.decided"),
            "event": lambda: ("cancel", "done", "model", "delta", "result.main"),
            "call": lambda: ("t1-0", "t2-0"),
            "sequence": lambda: ("1", "0", "x"),
        }
        if parameter in ("run", "owner", "sandbox", "target") and aim != "invented":
            run = rng.choice(getattr(self, aim))
            return f"run.{run}.turn.main" if parameter == "target" else run
        if parameter == "target":
            return f"run.{self._invented()}.turn.main"
        if parameter in known and known[parameter]() and rng.random() < 0.8:
            return rng.choice(known[parameter]())
        return self._invented()

    def _invented(self) -> str:
        return f"z{self._rng.randrange(1 << 40):x}"

    # --- bodies --------------------------------------------------------------------------------

    def _any(self, family: Family) -> Body:
        rng, bodies = self._rng, self._bodies
        roll = rng.random()
        fitting = bodies.of(family.messages)
        if roll < 0.35:
            return broken(rng)
        if roll < 0.50:
            name = rng.choice(bodies.names)
            return Body("out of place", bodies.golden(name))
        if roll < 0.60:
            return Body("flipped", bodies.flipped(rng, rng.choice(fitting)))
        if roll < 0.90:
            return Body("changed", bodies.changed(rng, rng.choice(fitting)))
        return Body("golden", bodies.golden(rng.choice(fitting)))

    def _malformed(self, family: Family) -> Body:
        while True:
            body = self._any(family)
            if body.kind in ("golden", "out of place", "no type") or is_readable(
                body.data, family.shape
            ):
                continue
            return body


def is_readable(data: bytes, family: str = "") -> bool:
    """Would anybody of ours take it for a message? Claims are: of something that is missing."""
    asked = [_ASKED[it] for it in family.split(".") if family.startswith("ask.") and it in _ASKED]
    for decoder in (*_DECODERS, *asked):
        try:
            message = decoder.decode(data)
        except codec.NOT_JSON:
            continue
        if not isinstance(message, Claim):
            return True
    return False


_DECODERS: tuple[msgspec.json.Decoder[Any], ...] = (
    msgspec.json.Decoder(RunEvent | Claim),
    msgspec.json.Decoder(Task),
    msgspec.json.Decoder(SandboxEvent | Claim),
    msgspec.json.Decoder(SandboxRequest | Claim),
    msgspec.json.Decoder(SandboxReply | Claim),
    msgspec.json.Decoder(TraceEvent | Claim),
    msgspec.json.Decoder(MemoryEvent | Claim),
    msgspec.json.Decoder(ConversationEvent | Claim),
)
_ASKED: dict[str, msgspec.json.Decoder[Any]] = {
    "cancel": msgspec.json.Decoder(CancelRequested),
    "input": msgspec.json.Decoder(InputStaged),
    "approval": msgspec.json.Decoder(ApprovalDecided),
    "merge": msgspec.json.Decoder(MergeRequested),
}
"""What users send may leave out its type."""
