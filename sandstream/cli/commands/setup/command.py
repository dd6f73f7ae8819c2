"""``sandstream setup``: create or change the streams of an installation. Asks before a loss."""

from __future__ import annotations

import argparse

from sandstream_bus.counts import numbered
from sandstream_bus.errors import NotSetUp, StreamsDiffer
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.retention import (
    SHORT_AGE_DAYS,
    Retention,
    RetentionChoice,
    bytes_text,
    days_text,
    parse_bytes,
    replicas_text,
    retention_text,
)
from sandstream_bus.nats.topology import FORMAT, Topology
from sandstream_bus.setup.stream_plan import Plan, StreamChange, carry_out, make_plan, value_text
from sandstream_bus.setup.upgrade import upgrade
from sandstream_bus.setup.upgrade_state import Upgrade
from sandstream_bus.wire.subjects import Subjects

from sandstream._surface.connection import VARIABLES, ignored_variables, open_bus, open_connection
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import put_json, run_async, say
from sandstream.cli.terminal.confirmation import confirm
from sandstream.cli.terminal.render import Screen, out, pad
from sandstream.settings import Settings

_DAY_NS = 86_400 * 1_000_000_000


def main(arguments: argparse.Namespace) -> int:
    if arguments.print_auth or arguments.auth_dir is not None:
        from sandstream.cli.commands.setup.auth import print_auth

        for option in ("replicas", "max_age_days", "max_bytes", "check", "yes"):
            if getattr(arguments, option) not in (None, False):
                flag = f"--{option.replace('_', '-')}"
                raise CliError(
                    Exit.USAGE, f"{flag} has no meaning with --print-auth and --auth-dir"
                )
        return print_auth(arguments)
    for option in ("grant", "tenant"):
        if getattr(arguments, option):
            raise CliError(Exit.USAGE, f"--{option} is for --print-auth and --auth-dir")
    asked = RetentionChoice(
        replicas=arguments.replicas,
        max_age_days=arguments.max_age_days,
        max_bytes=None if arguments.max_bytes is None else parse_bytes(arguments.max_bytes),
    )
    asked.check()
    return run_async(_set_up(arguments, asked), debug=arguments.debug)


async def _set_up(arguments: argparse.Namespace, asked: RetentionChoice) -> int:
    settings = Settings.from_env()
    defaults = settings.retention.over(Retention())
    topology = Topology(Subjects(settings.prefix))
    async with open_connection(settings, name="sandstream-setup") as connection:
        plan = await make_plan(connection, topology, asked, defaults)
        _show(plan, topology.log, as_json=arguments.json)
        _remark(plan, settings.retention, asked)
        if not plan.changes and plan.upgrade is None:
            say(f"nothing to change: {retention_text(plan.retention)}")
            return Exit.OK
        if arguments.check:
            say("nothing was changed (--check)")
            return Exit.FAILED
        if plan.upgrade is not None:
            await _upgrade(connection, topology, plan.upgrade, is_agreed=arguments.yes)
        if plan.losses and not arguments.yes:
            await confirm(
                f"{numbered(len(plan.losses), 'change')} can lose data. Go on?",
                to_do="make changes that can lose data",
                otherwise="nothing was changed",
            )
        await _end_expiring(settings, topology, plan)
        await carry_out(connection, topology, asked, plan, defaults)
        await _index(settings, topology, plan)
        if any(it.field == "num_replicas" for it in plan.changes):
            say("restart the actors and programs: they read the number of replicas when they start")
        say(f"the installation {settings.prefix!r} is set up: {retention_text(plan.retention)}")
    return Exit.OK


async def _upgrade(
    connection: Connection, topology: Topology, planned: Upgrade, *, is_agreed: bool
) -> None:
    if not (is_agreed or planned.is_begun):
        await confirm(
            "The log is upgraded: processes of the older release cannot use it afterwards. Go on?",
            to_do="upgrade the log",
            otherwise="nothing was changed",
        )
    await upgrade(connection, topology, say)
    say(f"{topology.log} is upgraded")


async def _end_expiring(settings: Settings, topology: Topology, plan: Plan) -> None:
    """A shorter age drops events at once: runs that began before it are ended first."""
    days = plan.retention.max_age_days
    created = {it.stream for it in plan.changes if it.action == "create"}
    is_shorter = any(it.stream == topology.log and it.field == "max_age" for it in plan.losses)
    if not is_shorter or topology.open in created:
        return
    from sandstream_actors.harness.expiry import end_expiring

    try:
        opened = await open_bus(settings, name="sandstream-setup")
    except (NotSetUp, StreamsDiffer) as error:
        say(f"sandstream: warning: older open runs could not be ended first: {error}")
        return
    try:
        ended = await end_expiring(opened.bus, max_age_s=days * 86_400)
    finally:
        await opened.close()
    if ended:
        say(f"ended {numbered(ended, 'open run')} that began more than {days_text(days)} ago")


async def _index(settings: Settings, topology: Topology, plan: Plan) -> None:
    """An installation that is older than the index of open runs gets it from its log."""
    created = {it.stream for it in plan.changes if it.action == "create"}
    if topology.open not in created or topology.log in created:
        return
    opened = await open_bus(settings, name="sandstream-setup")
    try:
        found = await opened.bus.rebuild_index()
    finally:
        await opened.close()
    say(f"entered {numbered(found, 'open run')} into the index")


def _show(plan: Plan, log: str, *, as_json: bool) -> None:
    screen = out()
    width = max((len(it.stream) for it in plan.changes), default=0)
    if plan.upgrade is not None and as_json:
        put_json({"action": "upgrade", "stream": log} | _upgrade_fields(plan.upgrade))
    elif plan.upgrade is not None:
        name = pad(log, width)
        screen.line(f"{screen.paint('~ upgrade', 'yellow')} {name}  {_upgrade_text(plan.upgrade)}")
    for change in plan.changes:
        if as_json:
            put_json(change)
        else:
            screen.line(_line(screen, change, width))


def _upgrade_text(planned: Upgrade) -> str:
    if planned.is_copied:
        return "the upgrade is made; the copy that it needed is deleted"
    size = f"{numbered(planned.messages, 'message')}, {bytes_text(max(planned.size_bytes, 1))}"
    begun = "continues where it was interrupted: " if planned.is_begun else ""
    return (
        f"to format {FORMAT}: {begun}copied twice ({size}), which needs that much space again for "
        "a while; nothing is lost; stop all actors and programs before"
    )


def _upgrade_fields(planned: Upgrade) -> dict[str, object]:
    return {
        "messages": planned.messages,
        "bytes": planned.size_bytes,
        "begun": planned.is_begun,
    }


def _line(screen: Screen, change: StreamChange, width: int) -> str:
    name = pad(change.stream, width)
    if change.action == "create":
        return f"{screen.paint('+ create', 'green')}  {name}  {_new(change)}"
    before = value_text(change.field, change.found)
    after = value_text(change.field, change.wanted)
    line = f"{screen.paint('~ change', 'yellow')}  {name}  {change.field}: {before} → {after}"
    return f"{line}  {screen.paint(f'({change.loses})', 'bold red')}" if change.loses else line


def _new(change: StreamChange) -> str:
    """What a new stream gets."""
    config = change.wanted
    parts = [replicas_text(config["num_replicas"]), days_text(config.get("max_age", 0) / _DAY_NS)]
    if config["max_bytes"] > 0:
        full = "drops the oldest" if config["discard"] == "old" else "refuses"
        parts.append(f"at most {bytes_text(config['max_bytes'])}, then {full}")
    return ", ".join(parts)


def _remark(plan: Plan, from_environment: RetentionChoice, asked: RetentionChoice) -> None:
    ignored = ignored_variables(from_environment, plan.retention)
    ignored = [it for it in ignored if it not in [VARIABLES[field] for field in asked.given()]]
    if ignored:
        say(
            f"sandstream: warning: {', '.join(ignored)}: ignored, the streams exist. Options "
            "change them: --replicas, --max-age-days, --max-bytes"
        )
    if 0 < plan.retention.max_age_days < SHORT_AGE_DAYS:
        say(
            f"sandstream: warning: events are kept {days_text(plan.retention.max_age_days)}: a run "
            "that waits longer, for a person or a retry, loses its events"
        )
    if plan.retention.max_bytes > 0:
        say(
            "sandstream: note: a log that is full drops its oldest events before their age; "
            "`sandstream doctor` warns at 80 %"
        )
