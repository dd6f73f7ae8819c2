"""Faults that a test asks a vendor server for, and the book in which the server keeps them."""

from __future__ import annotations

import dataclasses
import fnmatch
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from vendors.journal import Call

Kind = Literal["lost", "drop", "hang", "status", "slow", "cut"]


@dataclass(frozen=True)
class Fault:
    """What happens to the calls that match.

    ``lost``    the call takes effect; the connection is closed without an answer
    ``drop``    the connection is closed before the call takes effect
    ``hang``    no effect and no answer, until the client gives up
    ``status``  this status is answered instead, without an effect
    ``slow``    the call takes effect and is answered after ``seconds``
    ``cut``     a stream or websocket is closed after the server sent ``messages`` messages on it

    With ``after=True`` a ``hang`` or ``status`` lets the call take effect first, as a gateway does
    that gives up on a slow server.
    """

    match: str
    """The method and route as in ``Call.name``. Wildcards as in file names: ``POST /sandbox/*``."""
    kind: Kind
    times: int | None = 1
    """How many matching calls are hit. ``None`` removes the limit."""
    skip: int = 0
    """How many matching calls pass unharmed first."""
    box: str | None = None
    """Only calls about this box."""
    containing: str = ""
    """Only calls whose body, as the journal shows it, contains this text."""
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    """Headers of the answer, such as ``Retry-After``."""
    message: str = "injected by a test"
    body: dict[str, Any] | None = None
    """The answer's JSON. ``None`` chooses the vendor's usual error with ``message``."""
    seconds: float = 0.0
    messages: int = 0
    after: bool = False

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        return cls(**found)

    def fits(self, call: Call) -> bool:
        if self.box is not None and call.box != self.box:
            return False
        if self.containing and self.containing not in str(call.body):
            return False
        return call.name == self.match or fnmatch.fnmatchcase(call.name, self.match)


class FaultBook:
    """The faults in force. Each one counts the calls that it met."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def add(self, fault: Fault) -> None:
        self._entries.append(_Entry(fault))

    def clear(self) -> None:
        self._entries.clear()

    def hit(self, call: Call) -> Fault | None:
        """The fault that hits this call. The oldest one that is not used up wins."""
        for entry in self._entries:
            fault = entry.fault
            if not fault.fits(call) or (fault.times is not None and entry.hits >= fault.times):
                continue
            entry.met += 1
            if entry.met > fault.skip:
                entry.hits += 1
                return fault
        return None


@dataclass
class _Entry:
    fault: Fault
    met: int = 0
    hits: int = 0
