"""The exit codes, and the errors that the command line itself raises. Imports nothing of ours."""

from __future__ import annotations

import re
from enum import IntEnum


class Exit(IntEnum):
    """What a command's exit code says. These never change."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    TIMEOUT = 5
    WAITING = 6
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "ok",
    Exit.FAILED: "the run failed or did not complete; already decided otherwise; doctor: a problem;"
    " setup --check: something would change; the streams are not set up",
    Exit.USAGE: "bad usage or bad input",
    Exit.NOT_FOUND: "no such run, call, agent, session, conversation, sandbox, memory, file, parked"
    " message",
    Exit.UNREACHABLE: "the bus cannot be reached",
    Exit.TIMEOUT: "timeout",
    Exit.WAITING: "the run waits for a person, and no terminal is available to ask",
    Exit.INTERRUPTED: "interrupted",
}


_LONG_WORD = re.compile(r"\S{300,}")


def without_long_words(error: str) -> str:
    """Shorten very long words of an error message that quotes user input."""
    return _LONG_WORD.sub(lambda found: f"{found[0][:100]}…{found[0][-20:]}", error)


class CliError(Exception):
    """Ends the command with one line on stderr and this exit code."""

    def __init__(self, exit_code: Exit, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def exit_of_status(status: str) -> Exit:
    """The exit code of a run that ended so."""
    return Exit.OK if status == "completed" else Exit.FAILED
