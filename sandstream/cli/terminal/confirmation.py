"""Questions at the terminal. Waiting for an answer leaves the loop free, so that Ctrl-C ends it."""

from __future__ import annotations

import asyncio
import os
import sys

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.terminal.render import clean


async def confirm(question: str, *, to_do: str, otherwise: str) -> None:
    """Go on if a person says yes. ``to_do``: what ``--yes`` would do; ``otherwise``: what is said
    if he does not.
    """
    if not sys.stdin.isatty():
        raise CliError(Exit.USAGE, f"no terminal is available to ask: use --yes to {to_do}")
    sys.stderr.write(f"{clean(question)} [y/N] ")
    sys.stderr.flush()
    answer = await typed_line() or ""
    if answer.strip().lower() not in ("y", "yes"):
        raise CliError(Exit.FAILED, otherwise)


async def typed_line() -> str | None:
    """The next line that is typed; None at the end of input."""
    loop = asyncio.get_running_loop()
    fd = sys.stdin.fileno()
    ready: asyncio.Future[None] = loop.create_future()

    def on_input() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, on_input)
    try:
        await ready
        data = os.read(fd, 65_536)  # of a terminal: one line
    finally:
        loop.remove_reader(fd)
    return data.decode(errors="replace") if data else None
