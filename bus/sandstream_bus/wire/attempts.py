"""Attempts, takeovers and retries: definitions, and the headers that carry them.

- A *step* is the work on one message: a turn, a tool call, a sandbox command.
- An *attempt* is one try at a step by one process. A step without trouble has one attempt.
- A *takeover* is an attempt by another process, because the one before died, stopped or lost its
  lease. If a process returns a message and gets it again, that is a new attempt but no takeover.
- A *retry* is a request that the model client repeats within its attempt, or after a rate limit.
  It is neither an attempt nor a takeover, because no process was lost.

A message that follows from a delivery carries these as headers (``attempt_headers``), so the log
names the process that did the work. Logs of older versions lack only the worker.
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
"""A limit for numbers in headers: any user can write headers, and sums over them must stay small.
"""
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
    """The name of this process in every message that it writes: ``host:pid:instance``.

    The instance distinguishes processes with the same host and pid, such as restarted containers.
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
    """The writer of a message and its attempt. The usual first attempt costs one header."""
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
    """The attempt that a stored message states. Any user can write headers, so invalid values count
    as absent.
    """
    number = max(1, min(_number(headers.get(DELIVERIES)), _MOST))
    given_back = _number(headers.get(GIVEN_BACK))
    takeovers = max(0, number - 1 - given_back)
    worker = headers.get(WORKER, "")[:WORKER_LENGTH]
    return Attempt(_number(headers.get(CAUSE)), number, takeovers, worker)


class Takeovers:
    """Counts the takeovers of one run. Several messages may report a takeover; it counts once."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._workers: dict[int, str] = {}
        self.count = 0

    def note(self, attempt: Attempt) -> int:
        """The number of takeovers that this attempt is the first to report."""
        cause, worker = attempt.cause, attempt.worker
        before = self._workers.get(cause, "")
        self._workers[cause] = worker
        new = attempt.takeovers - self._known.get(cause, 0)
        if new <= 0:
            return 0
        self._known[cause] = attempt.takeovers
        # after a lost acknowledgement, a process gets back a message that it had already handled
        new -= bool(worker) and worker == before
        self.count += new
        return new

    def move(self) -> int:
        """Another program continues the whole run."""
        self.count += 1
        return 1


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0
