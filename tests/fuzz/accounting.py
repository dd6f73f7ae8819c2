"""What became of each message: every one is accounted for."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from fuzz.installation import Installation
from fuzz.shots import Shot, is_readable
from fuzz.wire import Ack

_OBSERVERS = ("tracing-",)


class _Stored(NamedTuple):
    family: str
    kind: str
    subject: str
    is_readable: bool


class _Reader(NamedTuple):
    """A durable consumer, and what it reads."""

    name: str
    filters: list[list[str]]
    first: int

    def reads(self, sequence: int, subject: list[str]) -> bool:
        return sequence >= self.first and any(_matches(it, subject) for it in self.filters)

    def must_say(self, subject: list[str]) -> bool:
        """Is a message that it cannot read its business? Observers look on."""
        return not self.name.startswith(_OBSERVERS) and not (
            self.name == "memory" and subject[1] == "run"
        )


class Accounts:
    """Takes note of each shot, and asks the installation about it at the end."""

    def __init__(self) -> None:
        self.fates: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._stored: dict[str, dict[int, _Stored]] = {}
        self._last_of: dict[str, int] = {}

    @property
    def acknowledged(self) -> int:
        others = self.fates["known to the server"] + self.fates["replaced by the next one"]
        return sum(len(it) for it in self._stored.values()) + others

    @property
    def per_family(self) -> Counter[str]:
        return Counter(it.family for some in self._stored.values() for it in some.values())

    def sent_without_answer(self, shot: Shot) -> None:
        self.fates["core only" if shot.is_core else "answered elsewhere"] += 1

    def answered(self, shot: Shot, ack: Ack) -> None:
        if ack.error:
            self.fates["refused by the server"] += 1
            self.refused[ack.error] += 1
        elif ack.duplicate:
            self.fates["known to the server"] += 1
        else:
            subject = shot.subject.decode(errors="replace")
            readable = is_readable(shot.data, shot.family)
            stored = _Stored(shot.family, shot.kind, subject, readable)
            self._stored.setdefault(ack.stream, {})[ack.sequence] = stored
            if ack.stream.endswith("_TIMERS"):  # which keeps the last one of a subject
                self._replaced(ack.stream, ack.sequence, subject)

    def _replaced(self, stream: str, sequence: int, subject: str) -> None:
        before = self._last_of.get(subject)
        if before is not None and self._stored[stream].pop(before, None) is not None:
            self.fates["replaced by the next one"] += 1
        self._last_of[subject] = sequence

    async def close(self, installation: Installation) -> list[str]:
        """Look up every message that was stored; the problems."""
        bus = installation.client.bus
        parked = set(
            await bus.topology.subjects_of(
                bus.connection, bus.topology.parked, f"{bus.subjects.prefix}.parked.>"
            )
        )
        dropped = installation.dropped()
        problems: list[str] = []
        for stream, messages in self._stored.items():
            readers = await _readers(installation, stream)
            for sequence, it in messages.items():
                subject = it.subject.split(".")
                reading = [reader for reader in readers if reader.reads(sequence, subject)]
                fates = {
                    _fate(
                        bus.subjects.parked(reader.name, sequence) in parked,
                        dropped,
                        reader,
                        sequence,
                    )
                    for reader in reading
                }
                silent = any(reader.must_say(subject) for reader in reading)
                is_unsaid = silent and not it.is_readable and fates <= {"handled"}
                if is_unsaid and _may_be_lost(stream, subject):
                    self.fates["not delivered"] += 1
                    continue
                self.fates[_worst(fates)] += 1
                if is_unsaid:
                    where = f"{stream} {sequence} {it.subject[:100]} ({it.kind})"
                    problems.append(f"neither parked nor dropped with a reason: {where}")
        return problems


def _fate(is_parked: bool, dropped: Counter[tuple[str, int]], reader: _Reader, at: int) -> str:
    if is_parked:
        return "parked"
    return "dropped" if dropped[reader.name, at] else "handled"


def _may_be_lost(stream: str, subject: list[str]) -> bool:
    """Headers of a message may remove others from the stream of timers, which is why only actors
    write it. And a server does not give everything to a filter whose subject has wildcards itself.
    """
    return stream.endswith("_TIMERS") or "*" in subject or ">" in subject


def _worst(fates: set[str]) -> str:
    return next((it for it in ("parked", "dropped", "handled") if it in fates), "read by nobody")


async def _readers(installation: Installation, stream: str) -> list[_Reader]:
    return [
        _Reader(
            info["name"],
            [
                it.split(".")
                for it in info["config"].get("filter_subjects")
                or [info["config"].get("filter_subject", ">")]
            ],
            info["config"].get("opt_start_seq", 0),
        )
        for info in await consumers_of(installation, stream)
    ]


async def consumers_of(installation: Installation, stream: str) -> list[dict[str, Any]]:
    """What the server says of each consumer of a stream."""
    bus = installation.client.bus
    page = await bus.topology.ask(bus.connection, f"CONSUMER.LIST.{stream}", {})
    found: list[dict[str, Any]] = (page or {}).get("consumers") or []
    return found


def _matches(pattern: list[str], subject: list[str]) -> bool:
    for index, token in enumerate(pattern):
        if token == ">":
            return len(subject) > index
        if index >= len(subject) or token not in ("*", subject[index]):
            return False
    return len(pattern) == len(subject)
