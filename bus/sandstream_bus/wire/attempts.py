"""Attempts, takeovers, retries: what each word means, and how a message tells them.

- A *step* is the work on one message: a turn, a tool call, a sandbox command.
- An *attempt* is one try at a step by one process. A step without trouble has one attempt.
- A *takeover* is an attempt by another process, because the one before died, stopped or lost its
  lease. A process that gives a message back and gets it again begins a new attempt, and takes
  nothing over.
- A *retry* is a request that the model client repeats within its attempt, or after a rate limit.
  It is no attempt and no takeover: the process that works is the same, or none has died.

A message that follows from a delivery carries these as headers (``attempt_headers``), so the log
itself tells who worked. Logs of older versions name no worker; the rest is read the same way.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Mapping
from typing import Final, NamedTuple

from sandstream_bus.wire.headers import CAUSE, DELIVERIES, GIVEN_BACK, TRACEPARENT, WORKER

_MOST: Final = 1_000_000
"""Headers come from anybody: no sum over them may grow without a limit."""
WORKER_LENGTH: Final = 100
"""Longer names of workers are cut."""
_HOST_LENGTH: Final = 40
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_names: dict[int, str] = {}


class Attempt(NamedTuple):
    """The try that a message came of."""

    cause: int
    """The sequence of the message that was worked on; 0: a task, or unknown."""
    number: int = 1
    """1 for the first try."""
    takeovers: int = 0
    """How many of the tries before belonged to other processes."""
    worker: str = ""
    """``host:pid:instance`` of the process; empty: the log is older than this header."""


def process_name() -> str:
    """This process in every message that it writes: ``host:pid:instance``.

    The instance tells processes apart that have the same host and pid, as containers do that were
    started again.
    """
    pid = os.getpid()  # a fork is another process
    name = _names.get(pid)
    if name is None:
        host = _ODD.sub("-", socket.gethostname())[:_HOST_LENGTH] or "-"
        name = _names[pid] = f"{host}:{pid}:{secrets.token_hex(2)}"
    return name


def short_name(worker: str) -> str:
    """A worker for people: ``host:pid``."""
    return worker.rpartition(":")[0] if worker.count(":") > 1 else worker


def attempt_headers(deliveries: int = 1, given_back: int = 0) -> dict[str, str]:
    """Who writes a message, and in which try. The usual first try costs one header."""
    headers = {WORKER: process_name()}
    if deliveries > 1:
        headers[DELIVERIES] = str(deliveries)
    if given_back > 0:
        headers[GIVEN_BACK] = str(given_back)
    return headers


def caused_by(
    sequence: int, traceparent: str | None, deliveries: int = 1, given_back: int = 0
) -> dict[str, str]:
    """Headers of a message that follows from the event at ``sequence``."""
    headers = {CAUSE: str(sequence)} | attempt_headers(deliveries, given_back)
    if traceparent:
        headers[TRACEPARENT] = traceparent
    return headers


def attempt_of(headers: Mapping[str, str]) -> Attempt:
    """What a stored message says. Anybody can write headers, so odd values count as absent."""
    number = max(1, min(_number(headers.get(DELIVERIES)), _MOST))
    given_back = _number(headers.get(GIVEN_BACK))
    takeovers = max(0, number - 1 - given_back)
    worker = headers.get(WORKER, "")[:WORKER_LENGTH]
    return Attempt(_number(headers.get(CAUSE)), number, takeovers, worker)


class Takeovers:
    """Counts the takeovers of one run: each once, though many messages may tell of it."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._workers: dict[int, str] = {}
        self.count = 0

    def note(self, attempt: Attempt) -> int:
        """How many takeovers this attempt is the first to tell of."""
        cause, worker = attempt.cause, attempt.worker
        before = self._workers.get(cause, "")
        self._workers[cause] = worker
        new = attempt.takeovers - self._known.get(cause, 0)
        if new <= 0:
            return 0
        self._known[cause] = attempt.takeovers
        # after its acknowledgement was lost, a process gets back what it had done itself
        new -= bool(worker) and worker == before
        self.count += new
        return new

    def move(self) -> int:
        """Another program goes on with the whole run."""
        self.count += 1
        return 1


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0
