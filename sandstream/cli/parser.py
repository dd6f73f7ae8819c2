"""The grammar of the command line: every command, flag, help text and example. It imports only the
standard library and the registry of actors.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from sandstream_actors.registry import find_actors

from sandstream.cli.commands import (
    actor,
    approvals,
    artifacts,
    cancel,
    conversations,
    doctor,
    memory,
    parked,
    replay,
    retry,
    run,
    runs,
    sandboxes,
    send,
    session,
    setup,
    show,
    stats,
    submit,
    tui,
    up,
    watch,
    worker,
)
from sandstream.cli.exits import MEANINGS
from sandstream.cli.grammar import WIDTH, Help, Parser, add_globals
from sandstream.version import __version__

_DESCRIPTION = """\
Durable AI agents on NATS JetStream. Publish a task, follow its run, start more
actors to go faster.
"""
_EPILOG = """\
examples:
  sandstream run app.py "What is new?"     run an agent of a file, here and now
  sandstream up app.py                     serve the file's agents until Ctrl-C
  sandstream submit assistant "hi" --wait  give a served agent a task
  sandstream watch                         a live table of all runs
  sandstream show RUN                      what took how long, what it cost
  sandstream session new AGENT "hi"        begin a session that lasts for days
  sandstream approvals                     what waits for a person's answer
  sandstream artifacts get RUN report.pdf  a file that a run made in its sandbox
  sandstream setup                         create streams on your NATS server

environment:
  NATS_URL           the NATS server or cluster; else a private one starts
  NATS_MONITOR_URL   where that server's HTTP monitoring answers, for doctor
  SANDSTREAM_HOME    where the private server keeps its store
  SANDSTREAM_PREFIX  the subject prefix of this installation (sandstream)
  SANDSTREAM_USER    who you are: tasks and answers are requests of this user
  SANDSTREAM_SYNC    how often the private server syncs to disk: always, or 1s
  SANDSTREAM_LOCAL_ISOLATION
                     none: sandboxes without isolation, with this user's rights
  SANDSTREAM_DEBUG   1: tracebacks and debug logs
  NO_COLOR           any value: no colour

exit codes:
"""


def build_parser(argv: Sequence[str] = ()) -> Parser:
    """The whole grammar. ``module`` in the result says which module has the command."""
    codes = "".join(_exit_code(code, meaning) for code, meaning in MEANINGS.items())
    parser = Parser(
        prog="sandstream",
        description=_DESCRIPTION,
        epilog=_EPILOG + codes,
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sandstream {__version__}")
    add_globals(parser)
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")
    # Actors of other packages are looked for only by commands that start them: it takes time.
    actors = find_actors(installed=bool({"up", "actor"} & set(argv)))
    up.add_parser(commands, actors)
    actor.add_parser(commands, actors)
    worker.add_parser(commands)
    run.add_parser(commands)
    submit.add_parser(commands)
    cancel.add_parser(commands)
    retry.add_parser(commands)
    approvals.add_parser(commands)
    send.add_parser(commands)
    conversations.add_parser(commands)
    session.add_parser(commands)
    watch.add_parser(commands)
    tui.add_parser(commands)
    runs.add_parser(commands)
    show.add_parser(commands)
    replay.add_parser(commands)
    stats.add_parser(commands)
    sandboxes.add_parser(commands)
    artifacts.add_parser(commands)
    memory.add_parser(commands)
    setup.add_parser(commands)
    parked.add_parser(commands)
    doctor.add_parser(commands)
    return parser


def _exit_code(code: int, meaning: str) -> str:
    return (
        textwrap.fill(meaning, WIDTH, initial_indent=f"  {code:<4d} ", subsequent_indent=" " * 7)
        + "\n"
    )
