"""The grammar of the command line: every command, flag, help text and example. Standard library."""

from __future__ import annotations

import argparse
from typing import Any

from sandstream.cli.exits import MEANINGS
from sandstream.cli.grammar import Help, add_globals, command, port, positive, seconds, whole
from sandstream.cli.parser_memory import add_memory
from sandstream.cli.parser_people import add_people
from sandstream.cli.parser_sandboxes import add_sandboxes
from sandstream.cli.parser_stats import add_stats
from sandstream.version import __version__

_DESCRIPTION = """\
Durable AI agents on NATS JetStream. Publish a task, follow its run, start more actors to go faster.
"""
_EPILOG = """\
examples:
  sandstream run app.py "What is new?"         run an agent of a file, here and now
  sandstream up app.py                         serve the file's agents until Ctrl-C
  sandstream submit assistant "hi" --wait      give a served agent a task
  sandstream watch                             a live table of all runs
  sandstream show RUN                          what took how long, what was said, what it cost
  sandstream approvals                         what waits for a person's answer
  sandstream artifacts get RUN report.pdf      a file that a run made in its sandbox

environment:
  NATS_URL           the NATS server or cluster; without it a private server is started
  SANDSTREAM_HOME    where the private server keeps its store
  SANDSTREAM_PREFIX  the subject prefix of this installation (sandstream)
  SANDSTREAM_SYNC    how often the private server syncs to disk: always, or a duration (1s)
  SANDSTREAM_LOCAL_ISOLATION  none: sandboxes without isolation, with all rights of this user
  SANDSTREAM_DEBUG   1: tracebacks and debug logs
  NO_COLOR           any value: no colour

exit codes:
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole grammar. ``module`` in the result says which module has the command."""
    codes = "".join(f"  {code:<4d} {meaning}\n" for code, meaning in MEANINGS.items())
    parser = argparse.ArgumentParser(
        prog="sandstream",
        description=_DESCRIPTION,
        epilog=_EPILOG + codes,
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sandstream {__version__}")
    add_globals(parser)
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")
    _add_services(commands)
    _add_tasks(commands)
    add_people(commands)
    _add_looking(commands)
    add_stats(commands)
    add_sandboxes(commands)
    add_memory(commands)
    _add_care(commands)
    return parser


# --- actors ---------------------------------------------------------------------------------------


def _add_services(commands: Any) -> None:
    up = command(
        commands,
        "up",
        "start a bus, a harness, actors for sandboxes, tracing and memory, and your agents, here",
        "  sandstream up                      a bus, a harness, and the other actors\n"
        "  sandstream up app.py --replicas 4  serves app.py, four harness processes\n"
        "  NATS_URL=nats://host:4222 sandstream up app.py",
        module="up",
        json="one line on stdout when it is ready",
    )
    up.add_argument("apps", nargs="*", metavar="app.py", help="Python files with agents to serve")
    up.add_argument("--pool", default="main", help="the harness pool (main)")
    up.add_argument(
        "--replicas", type=positive, default=1, metavar="N", help="harness processes (1)"
    )
    up.add_argument("--no-sandbox", action="store_true", help="start no actor for sandboxes")
    up.add_argument("--no-tracing", action="store_true", help="start no tracing actor")
    up.add_argument("--no-memory", action="store_true", help="start no memory actor")
    actor = command(
        commands,
        "actor",
        "start one replica of an actor",
        "  sandstream actor                            the kinds there are\n"
        "  sandstream actor harness --concurrency 64\n"
        "  sandstream actor sandbox                    the sandboxes of this machine\n"
        "  sandstream actor tracing                    traces of all runs; exported where\n"
        "                                              OTEL_EXPORTER_OTLP_ENDPOINT says\n"
        "  sandstream actor memory                     what agents remember of their runs",
        module="actor",
        json="one line on stdout when it is ready",
    )
    actor.add_argument(
        "kind", nargs="?", help="harness, sandbox, tracing, memory; without: list them"
    )
    actor.add_argument("--pool", help="harness: the pool whose turns it takes (main)")
    actor.add_argument(
        "--concurrency",
        type=positive,
        default=256,
        metavar="N",
        help="turns or operations at once (256)",
    )
    actor.add_argument(
        "--provider",
        help="sandbox, memory: what makes the sandboxes that it serves, or uses (local)",
    )
    actor.add_argument("--node", help="memory: where its sandboxes are (any node of the provider)")
    actor.add_argument(
        "--isolation",
        choices=["required", "none"],
        metavar="required|none",
        help="sandbox: none runs commands with all rights of this user "
        "(SANDSTREAM_LOCAL_ISOLATION, else required)",
    )
    actor.add_argument(
        "--group", help="tracing: replicas of a group share the work, groups do not (main)"
    )
    actor.add_argument(
        "--store", metavar="PATH", help="tracing: where traces are kept (a file below home)"
    )
    actor.add_argument(
        "--content",
        action="store_true",
        default=None,
        help="tracing: also what people, models and tools say "
        "(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true)",
    )
    actor.add_argument(
        "--redact",
        metavar="MODULE:FUNCTION",
        help="tracing: goes over what is kept (SANDSTREAM_TRACE_REDACT)",
    )
    actor.add_argument(
        "--only-new",
        action="store_true",
        default=None,
        help="tracing: a group that is new begins with the runs to come",
    )
    actor.add_argument("--parent-pipe", type=int, help=argparse.SUPPRESS)
    worker = command(
        commands,
        "worker",
        "serve the agents of a file: their tools run in this process",
        "  sandstream worker app.py\n  sandstream worker app.py --pool billing --concurrency 8",
        module="worker",
        json="one line on stdout when it is ready",
    )
    worker.add_argument("app", metavar="app.py", help="a Python file with agents")
    worker.add_argument("--pool", help="replicas with the same pool share the work (the file name)")
    worker.add_argument("--harness-pool", default="main", help="who takes the turns (main)")
    worker.add_argument(
        "--concurrency", type=positive, default=64, metavar="N", help="calls at once (64)"
    )


# --- starting runs --------------------------------------------------------------------------------


def _add_tasks(commands: Any) -> None:
    run = command(
        commands,
        "run",
        "run an agent of a file in this process, and show what happens",
        '  sandstream run app.py "What is the weather in Paris?"\n'
        "  sandstream run app.py:assistant - < question.txt\n"
        '  sandstream run app.py "hi" --key order-17   # again with the key: the same run\n'
        '  sandstream run coder.py "Fix the tests" --workspace .   # a sandbox agent, on a copy',
        module="run",
        json="the run as JSON; with --stream its events as JSON lines, the run last",
    )
    run.add_argument("target", metavar="app.py[:agent]", help="the file, and which of its agents")
    run.add_argument("input", help="what to say to the agent; - reads stdin")
    run.add_argument("--key", help="makes the run idempotent: it outlives this process")
    run.add_argument("--max-turns", type=positive, metavar="N", help="at most N model turns (10)")
    run.add_argument("--stream", action="store_true", help="show the model's text as it comes")
    run.add_argument("-q", "--quiet", action="store_true", help="only the final output")
    sandbox = run.add_argument_group("for a sandbox agent")
    sandbox.add_argument("--manifest", metavar="FILE", help="what its workspace holds, as JSON")
    sandbox.add_argument(
        "--workspace",
        metavar="DIR",
        help="start with a copy of this directory, which is the working directory or below it",
    )
    sandbox.add_argument(
        "--port",
        type=port,
        action="append",
        default=[],
        metavar="N",
        help="a port that can be reached from this machine; may be given again",
    )
    sandbox.add_argument("--network", action="store_true", help="let it use this machine's network")
    submit = command(
        commands,
        "submit",
        "publish a task for a served agent, and print the run's id",
        '  sandstream submit assistant "What is new?"\n'
        '  sandstream submit assistant "What is new?" --wait --timeout 60\n'
        '  sandstream submit assistant "And then?" --session customer-17 --max-tokens 50000\n'
        "  sandstream watch $(sandstream submit assistant - < question.txt)",
        module="submit",
        json="the run as JSON",
    )
    submit.add_argument("agent", help="the agent's name")
    submit.add_argument("input", help="what to say to the agent; - reads stdin")
    submit.add_argument("--key", help="the same key is the same run, however often submitted")
    submit.add_argument("--context", metavar="JSON", help="an object for the agent's tools")
    submit.add_argument("--max-turns", type=positive, metavar="N", help="at most N model turns")
    submit.add_argument("--session", metavar="ID", help="the conversation that it continues")
    submit.add_argument(
        "--if-busy",
        choices=["queue", "refuse"],
        metavar="queue|refuse",
        help="with --session: while another run has the conversation (queue)",
    )
    budget = submit.add_argument_group("what the run and all runs below it may use")
    budget.add_argument("--max-tokens", type=positive, metavar="N", help="tokens of models")
    budget.add_argument("--max-seconds", type=seconds, metavar="S", help="time")
    budget.add_argument("--max-tool-calls", type=whole, metavar="N", help="calls of tools")
    submit.add_argument(
        "--approval-expires",
        type=seconds,
        metavar="S",
        help="a call that nobody approves within S s is refused",
    )
    submit.add_argument("--wait", action="store_true", help="wait for the end, print the output")
    submit.add_argument("--timeout", type=seconds, metavar="S", help="with --wait: at most S s")
    cancel = command(
        commands,
        "cancel",
        "stop a run, and all runs that it has started",
        '  sandstream cancel RUN\n  sandstream cancel RUN --after-turn --reason "no longer needed"',
        module="cancel",
        json="the run as JSON",
    )
    cancel.add_argument("run", metavar="RUN", help="the run's id")
    cancel.add_argument("--after-turn", action="store_true", help="let the current turn finish")
    cancel.add_argument("--reason", default="", metavar="TEXT", help="kept in the run's log")


# --- looking --------------------------------------------------------------------------------------


def _add_looking(commands: Any) -> None:
    watch = command(
        commands,
        "watch",
        "follow one run and those below it to its end, or all runs in a live table",
        "  sandstream watch                   all runs; Ctrl-C ends\n"
        "  sandstream watch RUN               its events from the start; exit code by its end\n"
        "  sandstream watch RUN --after 120   only what came after sequence 120",
        module="watch",
        json="JSON lines: events of the run, or a summary for each change of any run",
    )
    watch.add_argument("run", nargs="?", metavar="RUN", help="the run's id")
    watch.add_argument("--after", type=whole, default=0, metavar="SEQ", help="skip up to SEQ")
    runs = command(
        commands,
        "runs",
        "list runs, newest first",
        "  sandstream runs --limit 100\n"
        "  sandstream runs --tree               also the runs of agents that were called as tools\n"
        "  sandstream runs --status failed --json | jq -r .run_id",
        module="runs",
        json="JSON lines",
    )
    runs.add_argument("--limit", type=positive, default=20, metavar="N", help="at most N (20)")
    runs.add_argument("--tree", action="store_true", help="also runs that other runs started")
    runs.add_argument(
        "--status",
        choices=STATUSES,
        metavar="S",
        help=", ".join(STATUSES),
    )
    show = command(
        commands,
        "show",
        "show a run: summary, waterfall, conversation, what it has",
        "  sandstream show RUN\n"
        "  sandstream show RUN --all --events\n"
        "  sandstream show RUN --html run.html      a page to share\n"
        "  sandstream show RUN --json | jq .spans",
        module="show",
        json="one object: summary, tree, conversation, events, spans",
    )
    show.add_argument("run", metavar="RUN", help="the run's id")
    show.add_argument("--all", action="store_true", help="leave nothing out and shorten nothing")
    show.add_argument("--events", action="store_true", help="also the table of its events")
    show.add_argument("--html", metavar="FILE", help="write it as a page instead (-: to stdout)")
    show.add_argument(
        "--force", action="store_true", help="with --html: overwrite FILE whatever it is"
    )
    replay = command(
        commands,
        "replay",
        "play the stored events of a run and of those below it again, in their own time",
        "  sandstream replay RUN\n"
        "  sandstream replay RUN --speed 4\n"
        "  sandstream replay RUN --instant --json",
        module="replay",
        json="JSON lines",
    )
    replay.add_argument("run", metavar="RUN", help="the run's id")
    pace = replay.add_mutually_exclusive_group()
    pace.add_argument("--speed", type=seconds, default=1.0, metavar="X", help="X times as fast (1)")
    pace.add_argument("--instant", action="store_true", help="without waiting")


# --- care -----------------------------------------------------------------------------------------


def _add_care(commands: Any) -> None:
    parked = command(
        commands,
        "parked",
        "messages that no actor could handle: list, look, try again, forget",
        "  sandstream parked\n"
        "  sandstream parked show harness-main/42\n"
        "  sandstream parked redrive harness-main/42",
        module="parked",
        json="JSON lines, or one object",
    )
    parked.add_argument(
        "action",
        nargs="?",
        default="ls",
        choices=["ls", "show", "redrive", "drop"],
        metavar="ls|show|redrive|drop",
        help="list them (ls), show one, publish one again, drop one",
    )
    parked.add_argument("id", nargs="?", metavar="ID", help="as `parked ls` shows it")
    command(
        commands,
        "doctor",
        "check this installation and say what to do",
        "  sandstream doctor\n  sandstream doctor --json | jq 'select(.state != \"ok\")'",
        module="doctor",
        json="JSON lines, one for each check",
    )


STATUSES = [
    *("running", "waiting", "completed", "failed"),
    *("cancelled", "max_turns", "guardrail", "budget"),
]
