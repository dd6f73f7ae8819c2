"""What commands share: the event loop, settings, the client, JSON lines, finding runs, logs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import msgspec
from sandstream_bus.direct import direct_get_many
from sandstream_bus.log import LogEvent
from sandstream_bus.subjects import RunId, check_token, run_id_of_key

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.render import one_line
from sandstream.client import Client
from sandstream.settings import Settings

T = TypeVar("T")
_TASKS_LOOKED_AT = 10_000
_MOST_NEAR = 3


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
    try:
        yield client
    finally:
        await client.close()


def stop_signals() -> asyncio.Event:
    """Set by SIGINT or SIGTERM. The next one of either ends the process the hard way.

    Ask for it before saying that all is ready: whoever hears that may stop us at once.
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
    """Talk: hints and progress, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def put_json(value: Any) -> None:
    """Data for programs: one JSON line on stdout."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
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
    near = [it for it in await _runs(client) if it.startswith(run)][: _MOST_NEAR + 1]
    more = f"; there is {', '.join(near[:_MOST_NEAR])}" if near else ""
    more += " and others" if len(near) > _MOST_NEAR else ""
    return CliError(Exit.NOT_FOUND, f"there is no run {run!r}{more}; `sandstream runs` lists all")


async def _runs(client: Client) -> list[str]:
    """The ids of all runs, without reading any of them."""
    bus = client.bus
    subjects = await bus.topology.subjects_of(
        bus.connection, bus.topology.log, bus.subjects.start("*", "*")
    )
    return [str(bus.subjects.parse_run(it).run) for it in subjects]


async def is_queued(client: Client, run: str) -> bool:
    """Is there a task in the log that will be this run?"""
    check_token(run, "the run id")
    bus = client.bus
    state = await bus.topology.stream_state(bus.connection, bus.topology.log)
    found = await direct_get_many(
        bus.connection,
        bus.topology.log,
        f"{bus.subjects.prefix}.task.*",
        after=max(0, state["last_seq"] - _TASKS_LOOKED_AT),
    )
    for stored in found:
        key = stored.msg_id
        if (run_id_of_key(key) if key else RunId(f"task-{stored.sequence}")) == run:
            return True
    return False


# --- logs -----------------------------------------------------------------------------------------


class _LogLine(logging.Formatter):
    """``warning: text (key=value …)``; tracebacks only for debugging."""

    def __init__(self, debug: bool) -> None:
        super().__init__()
        self._debug = debug
        self._own = set(vars(logging.makeLogRecord({})))

    def format(self, record: logging.LogRecord) -> str:
        extra = {
            key: value
            for key, value in vars(record).items()
            if key not in self._own and key not in ("message", "taskName")
        }
        text = f"sandstream: {record.levelname.lower()}: {record.getMessage()}"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not self._debug:
            text += f": {type(error).__name__}: {one_line(str(error))}"
        if extra:
            text += " (" + ", ".join(f"{key}={value}" for key, value in extra.items()) + ")"
        if error is not None and self._debug:
            text += "\n" + self.formatException(record.exc_info)  # type: ignore[arg-type]
        return text


def set_up_logs(debug: bool) -> None:
    """Logs to stderr, one line each; none before :func:`show_logs`, unless for debugging."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LogLine(debug))
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
    root.setLevel(logging.WARNING if debug else logging.CRITICAL)
    if debug:
        for name in ("sandstream", "sandstream_bus", "sandstream_actors"):
            logging.getLogger(name).setLevel(logging.DEBUG)


def show_logs() -> None:
    """From now on warnings are worth telling: for commands that work, once they are connected."""
    logging.getLogger().setLevel(logging.WARNING)


def no_arguments(arguments: argparse.Namespace, *names: str) -> None:
    """Refuse flags that this use of a command does not know."""
    for name in names:
        if getattr(arguments, name):
            flag = "--" + name.replace("_", "-")
            raise CliError(Exit.USAGE, f"{flag} has no meaning here")
