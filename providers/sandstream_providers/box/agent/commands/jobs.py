"""Records of commands, in a directory that commands cannot see.

A journal, because making a file for each command takes longer than the command. One line each when
an operation is claimed (from then on it is not started again), when its process is known, and when
it has ended. A claim without an end that no living agent knows is a lost command. Short output is
in the last line, longer output in files beside the journal. Beside that, a line for each call that
was asked for says which request asked first.
"""

from __future__ import annotations

import json
import os
import re

from sandstream_providers.box.agent import wire

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
KEPT = 1000
KEPT_REQUESTS = 10000
JOURNAL = "=journal"
ENDS = (".out", ".err")
APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def file_name(op: str) -> str:
    """For any operation id; never the journal's."""
    if PLAIN.fullmatch(op):
        return op
    import hashlib

    return "=" + hashlib.sha256(wire.to_bytes(op)).hexdigest()


class Jobs:
    """The journal, and what it says."""

    def __init__(self, folder: int, most_bytes: int) -> None:
        """``most_bytes``: how much output of commands that have ended is kept in files."""
        self.folder = folder
        self._most_bytes = most_bytes
        self._sizes: dict[str, int] = {}
        """The output files of operations that have ended, oldest first."""
        self._lines: dict[str, list[bytes]] = {}
        """Of each operation, oldest first."""
        self._requests: dict[str, str] = {}
        """Of each call, the request that asked for it first."""
        self._written = 0
        self._fd = os.open(JOURNAL, APPEND, 0o600, dir_fd=folder)
        self._load()

    def _load(self) -> None:
        with os.fdopen(os.dup(self._fd), "rb") as file:
            for line in file:
                facts = _parse(line)
                if not facts:
                    continue  # an empty line, or one that was cut off by a full disk
                op = facts["op"]
                if facts["what"] == "asked":
                    self._requests.setdefault(op, facts["request"])
                elif facts["what"] == "unclaim":
                    self._lines.pop(op, None)
                else:
                    self._lines.setdefault(op, []).append(line)
                self._written += 1
        for op in self._lines:
            self._measure(op)

    def _measure(self, op: str) -> None:
        size = sum(self.size(file_name(op) + end) for end in ENDS)
        if size:
            self._sizes[op] = size

    def known(self, op: str) -> bool:
        return op in self._lines

    def facts(self, op: str) -> dict[str, Any]:
        """All that was recorded; ``state`` only if it ended."""
        together: dict[str, Any] = {}
        for line in self._lines[op]:
            together.update(_parse(line))
        return together

    def unfinished(self) -> list[str]:
        return [op for op in self._lines if "state" not in self.facts(op)]

    def first_request(self, call: str, request: str) -> str:
        """The request that asked for this call first; this one, if none did."""
        first = self._requests.get(call)
        if first is not None:
            return first
        self._write({"op": call, "what": "asked", "request": request})
        self._requests[call] = request
        while len(self._requests) > KEPT_REQUESTS:
            del self._requests[next(iter(self._requests))]
        return request

    def claim(self, op: str) -> None:
        self._append(op, "claim", {})

    def unclaim(self, op: str) -> None:
        """Nothing was started."""
        self._lines.pop(op, None)
        self._append(op, "unclaim", {})
        self._lines.pop(op, None)

    def started(self, op: str, facts: dict[str, Any]) -> None:
        self._append(op, "start", facts)

    def ended(self, op: str, facts: dict[str, Any]) -> None:
        try:
            self._append(op, "end", facts)
        finally:
            self._measure(op)

    def size(self, name: str) -> int:
        try:
            return os.stat(name, dir_fd=self.folder).st_size
        except FileNotFoundError:
            return 0

    def prune(self, in_use: set[str]) -> list[str]:
        """Forget the oldest operations beyond the number that is kept, and the oldest output beyond
        the size: that such a command ran is still known.
        """
        total = sum(self._sizes.values())
        for op in [op for op in self._sizes if op not in in_use]:
            if total <= self._most_bytes:
                break
            total -= self._sizes[op]
            self._remove_output(op)
        excess = len(self._lines) - KEPT
        if excess <= 0:
            return []
        old = [op for op in self._lines if op not in in_use][:excess]
        for op in old:
            del self._lines[op]
            self._remove_output(op)
        if self._written > 6 * KEPT + 2 * len(self._requests):
            self._rewrite()
        return old

    def _remove_output(self, op: str) -> None:
        self._sizes.pop(op, None)
        for end in ENDS:
            try:
                os.unlink(file_name(op) + end, dir_fd=self.folder)
            except FileNotFoundError:
                pass  # its output was short

    def _append(self, op: str, what: str, facts: dict[str, Any]) -> None:
        line = self._write(dict(facts, op=op, what=what))
        self._lines.setdefault(op, []).append(line)

    def _write(self, facts: dict[str, Any]) -> bytes:
        line = json.dumps(facts).encode("ascii") + b"\n"
        # the line before may have been cut off by a full disk
        if os.write(self._fd, b"\n" + line) <= len(line):
            raise OSError(28, "No space left on device")
        self._written += 1
        return line

    def _rewrite(self) -> None:
        """Keep only the operations that are still known."""
        temporary = JOURNAL + ".new"
        fd = os.open(temporary, APPEND | os.O_TRUNC, 0o600, dir_fd=self.folder)
        lines = [
            json.dumps({"op": call, "what": "asked", "request": request}).encode("ascii") + b"\n"
            for call, request in self._requests.items()
        ]
        lines += [line for lines in self._lines.values() for line in lines]
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.writelines(lines)
            os.rename(temporary, JOURNAL, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except OSError:
            os.close(fd)
            return  # a full disk: the long journal stays
        os.close(self._fd)
        self._fd = fd
        self._written = len(lines)


def _parse(line: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(line)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) and "op" in facts else {}
