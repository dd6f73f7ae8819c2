"""What commands share: the event loop, settings, the client, JSON lines, finding runs, logs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec
from sandstream_actors.tracing.environment_values import without_values
from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError, InvalidSubject, LogLost, PermissionDenied
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.nats.fresh import fresh_many
from sandstream_bus.nats.leader import Stored
from sandstream_bus.wire.subjects import RunId, check_token

from sandstream._inspect.visible_text import in_one_line
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.suggestions import near
from sandstream.cli.terminal.render import clean, one_line
from sandstream.client import Client
from sandstream.settings import Settings

T = TypeVar("T")
_TASKS_LOOKED_AT = 10_000
_RUNS_LOOKED_AT = 10_000
_MOST_NEAR = 3
_LIKENESS_OF_IDS = 0.8


def run_async(work: Coroutine[Any, Any, T], *, debug: bool = False) -> T:
    """Run on uvloop where it is installed. Ctrl-C cancels the work and waits for its clean-up."""
    set_up_logs(debug)
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    """A client on the bus that the environment names."""
    client = await Client.connect(Settings.from_env())
    forget = client.bus.connection.troubles.listen(_say_trouble)
    try:
        yield client
    finally:
        forget()
        await client.close()


def _say_trouble(error: BusError | None) -> None:
    """Print the fault whose end a command waits for."""
    if error is not None and not isinstance(error, LogLost):  # that one ends the command
        say(f"sandstream: waiting: {error}")


def stop_signals() -> asyncio.Event:
    """An event that SIGINT or SIGTERM sets. A second signal ends the process at once.

    Call this before announcing that the command is ready: a caller may stop it right then.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def stop() -> None:
        stopped.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return stopped


# --- printing -------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Talk: hints and progress, on stderr. Much of it quotes foreign text."""
    sys.stderr.write(clean(text) + "\n")
    sys.stderr.flush()


def put_json(value: Any) -> None:
    """Data for programs: one JSON line on stdout. Values of environments are not shown."""
    sys.stdout.write(msgspec.json.encode(without_values(value)).decode() + "\n")
    sys.stdout.flush()


def read_input(text: str) -> str:
    """The argument, or stdin for ``-``."""
    if text != "-":
        if not text.strip():
            raise CliError(Exit.USAGE, "the input is empty: say something to the agent")
        return text
    try:
        read = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise CliError(Exit.USAGE, f"stdin is not UTF-8 text: {error}") from None
    if not read.strip():
        raise CliError(Exit.USAGE, "stdin is empty: there is nothing to say to the agent")
    return read


# --- runs -----------------------------------------------------------------------------------------


async def events_of(client: Client, run: str) -> list[LogEvent]:
    """A run's events; there is at least one."""
    events = await client.events(run)
    if not events:
        raise await not_found(client, run)
    return events


async def not_found(client: Client, run: str) -> CliError:
    """The error for a run without events."""
    if await is_queued(client, run):
        return CliError(
            Exit.NOT_FOUND,
            f"run {run!r} has not started: its task waits for a harness "
            "(start one with `sandstream up`)",
        )
    more = near_ids(run, await recent_runs(client))
    return CliError(Exit.NOT_FOUND, f"there is no run {run!r}{more}; `sandstream runs` lists all")


def near_ids(typed: str, known: Iterable[str]) -> str:
    """``; there is X``: the ids that begin so, else those that are nearly the same; or nothing."""
    every = sorted(known)
    found = [it for it in every if it.startswith(typed)] if typed else []
    # ids of the same hour share their first half: that does not make them similar
    found = found or near(typed, every, likeness=_LIKENESS_OF_IDS)
    if not found:
        return ""
    others = " and others" if len(found) > _MOST_NEAR else ""
    return f"; there is {', '.join(found[:_MOST_NEAR])}{others}"


async def readable(names: Awaitable[Iterable[str]]) -> list[str]:
    """Names to suggest; none if this user may not read them."""
    try:
        return list(await names)
    except PermissionDenied:
        return []


async def recent_runs(client: Client) -> list[str]:
    """The ids of the open runs and of those that ended last: a mistyped id is probably one of them.
    Listing all ids would take the server a second per million events.
    """
    bus = client.bus
    state = await bus.topology.stream_state(bus.connection, bus.topology.log)
    ended = await stale_many(
        bus.connection,
        bus.topology.log,
        bus.subjects.done("*"),
        after=max(0, state["last_seq"] - _RUNS_LOOKED_AT),
    )
    found: list[RunId] = []
    with contextlib.suppress(PermissionDenied):  # of a user who may not read the index
        found += [it.run for it in await bus.open_runs.all()]
    found += [bus.subjects.parse_run(it.subject).run for it in ended]
    return sorted(set(map(str, found)))


async def is_queued(client: Client, run: str) -> bool:
    """Whether a task for this run waits; False if this user may not read tasks."""
    check_token(run, "the run id")
    bus = client.bus
    try:
        state = await bus.topology.stream_state(bus.connection, bus.topology.requests)
        after = max(0, state["last_seq"] - _TASKS_LOOKED_AT)
        for subject in bus.subjects.tasks():
            found = await fresh_many(bus.connection, bus.topology.requests, subject, after=after)
            if any(_run_of_task(bus, it) == run for it in found):
                return True
    except PermissionDenied:
        pass
    return False


def _run_of_task(bus: Bus, task: Stored) -> RunId | None:
    """The run that a task will become; ``None`` if the task cannot start a run."""
    try:
        return bus.subjects.run_of_task(task.subject, task.headers, task.sequence)
    except InvalidSubject:
        return None


# --- logs -----------------------------------------------------------------------------------------


class _LogLine(logging.Formatter):
    """``warning: text (key=value …)``; tracebacks only for debugging. Messages come from anywhere:
    what would steer a terminal, begin a line of its own or hide is shown as its code.
    """

    def __init__(self, debug: bool) -> None:
        super().__init__()
        self._debug = debug
        self._own = set(vars(logging.makeLogRecord({})))

    def format(self, record: logging.LogRecord) -> str:
        text = f"sandstream: {record.levelname.lower()}: {record.getMessage()}"
        extra = {
            key: value
            for key, value in vars(record).items()
            if key not in self._own
            and key not in ("message", "taskName")
            and str(value) not in text  # which may say it already
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not self._debug:
            failure = f"{type(error).__name__}: {one_line(str(error))}"
            text += "" if failure in text else f": {failure}"
        if extra:
            text += " (" + ", ".join(f"{key}={value}" for key, value in extra.items()) + ")"
        lines = [in_one_line(text)]
        if error is not None and self._debug:
            trace = self.formatException(record.exc_info)  # type: ignore[arg-type]
            # indented: a line of an error's message must not look like one of the log
            lines += [f"    {in_one_line(line)}" for line in trace.split("\n")]
        return "\n".join(lines)


_ALWAYS_HEARD = (
    "sandstream._surface.connection",
    "sandstream_bus.logs.unread",
    "sandstream_bus.setup.lock",
    "sandstream_bus.setup.upgrade",
)
"""Loggers whose warnings every command prints."""


def set_up_logs(debug: bool) -> None:
    """Logs to stderr, one line each; none before :func:`show_logs`, unless for debugging."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LogLine(debug))
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
    root.setLevel(logging.WARNING if debug else logging.CRITICAL)
    for name in _ALWAYS_HEARD:
        logging.getLogger(name).setLevel(logging.WARNING)
    if debug:
        for name in ("sandstream", "sandstream_bus", "sandstream_actors"):
            logging.getLogger(name).setLevel(logging.DEBUG)


def show_logs() -> None:
    """Show warnings from now on: for long-running commands, once they are connected."""
    logging.getLogger().setLevel(logging.WARNING)


def no_arguments(arguments: argparse.Namespace, *names: str) -> None:
    """Refuse flags that this use of a command does not know."""
    for name in names:
        if getattr(arguments, name):
            flag = "--" + name.replace("_", "-")
            raise CliError(Exit.USAGE, f"{flag} has no meaning here")
