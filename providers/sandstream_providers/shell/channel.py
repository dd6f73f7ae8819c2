"""How scripts reach a box that has a shell and no agent."""

from __future__ import annotations

from typing import Protocol

import msgspec

from sandstream_providers.interface import Limits


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a script said."""

    code: int
    """Its exit code."""
    stdout: bytes = b""
    """What it wrote to standard output."""
    stderr: bytes = b""
    """What it wrote to standard error."""


class ShellSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the scripts of a box must know of it. A host can build it again after a restart."""

    records: str
    """A directory of the box, outside of the workspace, for records of commands and changes. It
    exists, commands of the box have no business there, and it outlives a stop of the box."""
    env: dict[str, str] = {}
    """The environment of every command."""
    limits: Limits = Limits()
    """Of these, scripts keep the limits on time and output."""


class Shell(Protocol):
    """Runs short scripts in one box. Closed by the box that uses it.

    A script ends within seconds: long commands are started in the background and polled. Nothing
    is known about a script whose answer was lost, so every script may be sent again.
    """

    async def run(self, script: str, data: bytes = b"", *, timeout_s: float = 30.0) -> Answer:
        """Run a script with ``/bin/sh``.

        Args:
            script: The text of the script.
            data: Its standard input.
            timeout_s: How long it may take, in seconds.

        Returns:
            Its exit code and output. Any exit code is an answer, not an error.

        Raises:
            BoxGone: if the box does not run (any more).
            OSError: if the connection broke; the script may or may not have run.
        """
        ...

    async def close(self) -> None:
        """Release the connection. The box lives on."""
        ...
