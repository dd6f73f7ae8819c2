"""The entry point: parse, import the one command that is asked for, turn errors into exit codes.

Must stay light: ``--help`` and ``--version`` import nothing but the standard library.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from sandstream_bus.environment import set_variable, variable

from sandstream.cli.exits import CliError, Exit, without_long_words
from sandstream.cli.grammar import without_late
from sandstream.cli.parser import build_parser

_FLAGS = {
    "nats_url": "NATS_URL",
    "home": "SANDSTREAM_HOME",
    "prefix": "SANDSTREAM_PREFIX",
    "sync": "SANDSTREAM_SYNC",
    "user": "SANDSTREAM_USER",
    "monitor": "NATS_MONITOR_URL",
}

_LONGEST_NAME = 200
"""Of a file, in an error."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    try:
        try:
            return _run(argv)
        finally:  # here, where a broken pipe can still be met in silence
            sys.stdout.flush()
    except BrokenPipeError:
        _close_stdout()
        return Exit.OK
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    given = sys.argv[1:] if argv is None else argv
    parser = build_parser(given)
    parser.check_first_flags(given)
    arguments, unknown = parser.parse_known_args(argv)
    unknown = without_late(arguments, unknown)
    if unknown:  # by the command itself, which knows its options
        getattr(arguments, "parser", parser).refuse(unknown)
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return Exit.USAGE
    debug = bool(variable("SANDSTREAM_DEBUG").strip("0"))
    debug = debug or getattr(arguments, "debug", False)
    try:
        return _dispatch(arguments, debug)
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            raise
        return _explain(error)


def _dispatch(arguments: argparse.Namespace, debug: bool) -> int:
    # The environment is where settings come from, here, in Runner and in child processes.
    for flag, name in _FLAGS.items():
        value = getattr(arguments, flag, None)
        if value is not None:
            set_variable(name, value)
    arguments.debug = debug
    command = importlib.import_module(f"sandstream.cli.{arguments.module}")
    code: int = command.main(arguments)
    return code


def _explain(error: Exception) -> int:
    """One line on stderr; the exit code."""
    code, text = _verdict(error)
    if text:
        from sandstream.cli.terminal.render import clean

        sys.stderr.write(f"sandstream: {clean(without_long_words(text))}\n")
    return code


def _verdict(error: Exception) -> tuple[Exit, str]:
    if isinstance(error, CliError):
        return error.exit_code, str(error)
    from sandstream_bus.embedded.errors import EmbeddedServerError, SyncInvalid
    from sandstream_bus.errors import BusUnavailable, InvalidSubject, SandstreamError
    from sandstream_bus.nats.retention import InvalidRetention
    from sandstream_bus.setup.roles import InvalidRole
    from sandstream_bus.wire.error_text import error_text

    from sandstream.exceptions import AgentsException, UserError

    text = error_text(error)
    code = getattr(error, "code", "")
    if code in ("run_not_found", "approval_not_found", "session_not_found"):
        return Exit.NOT_FOUND, text
    if code in ("already_decided", "ask_refused", "not_your_name", "retry_refused"):
        return Exit.FAILED, text
    if code in ("ask_unanswered", "session_unanswered"):
        return Exit.TIMEOUT, text
    if isinstance(error, UserError | InvalidSubject | InvalidRetention | InvalidRole | SyncInvalid):
        return Exit.USAGE, text
    if isinstance(error, BusUnavailable | EmbeddedServerError):
        return Exit.UNREACHABLE, text
    if isinstance(error, SandstreamError | AgentsException):
        return Exit.FAILED, text
    if isinstance(getattr(error, "error_code", None), str):  # a SandboxError, not imported for this
        return Exit.FAILED, text
    if isinstance(error, OSError) and isinstance(error.filename, str) and error.strerror:
        name = error.filename  # a user's: ours are caught where they are used
        shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
        return Exit.USAGE, f"{shown!r}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return Exit.USAGE, text
    hint = "this is a bug in sandstream; SANDSTREAM_DEBUG=1 shows where"
    return Exit.FAILED, f"{type(error).__name__}: {text} ({hint})"


def _close_stdout() -> None:
    """The reader is gone: let the interpreter's last flush go nowhere, without a word."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
