"""Finds the call that a person means, in a run or below it, and says clearly if there is none."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from typing import NamedTuple

from sandstream_bus.wire.messages import ApprovalRequested

from sandstream._inspect.rows import Approval, ChildCall, RunTree
from sandstream._inspect.trees import open_approvals, read_logs, tree_of
from sandstream.cli.commands.approvals.texts import decided_text, wanted_text
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import events_of
from sandstream.cli.terminal.render import age, clock, one_line, pad, shorten
from sandstream.client import Client

_MOST_LISTED = 20


class OpenCall(NamedTuple):
    """A call that waits for a person."""

    run: str
    """The run that makes it, which may be far below the one that was named."""
    asked: ApprovalRequested


def decider(name: str | None) -> str:
    """The name of the person who decides: ``name``, or else the local user."""
    if name is not None:
        if not name.strip():
            raise CliError(Exit.USAGE, "--as needs a name")
        return name.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user here, as in some containers
        return ""


async def open_call(client: Client, verb: str, run: str, call: str | None) -> OpenCall:
    """The call that waits in that run or below it; the one of that id, if there are several.
    ``verb``: the command that wants to know.
    """
    events = await events_of(client, run)
    tree = tree_of(run, await read_logs(client.bus, run, events))
    waiting = [OpenCall(it.run, it) for it in open_approvals(tree)]
    if call is not None:
        waiting = _named(waiting, run, call)
    if len(waiting) == 1:
        return waiting[0]
    if waiting:
        which = "" if call is None else f" {call!r}"
        text = f"several calls{which} wait in run {run} and below; say which:"
        raise CliError(Exit.USAGE, f"{text}\n{_listed(verb, waiting)}")
    raise _nothing(verb, tree, call)


def _named(waiting: list[OpenCall], run: str, call: str) -> list[OpenCall]:
    """Those that the id can mean; the run's own before those of runs below it."""
    found = [it for it in waiting if call in (it.asked.call, it.asked.call_id)]
    return [it for it in found if it.run == run] or found


def _listed(verb: str, waiting: list[OpenCall]) -> str:
    """The commands to choose from."""
    commands = [f"  sandstream {verb} {it.run} {it.asked.call}" for it in waiting[:_MOST_LISTED]]
    width = max(map(len, commands))
    lines = [
        f"{pad(command, width)}   {shorten(one_line(wanted_text(it.asked)), 60)}"
        for command, it in zip(commands, waiting, strict=False)
    ]
    if len(waiting) > _MOST_LISTED:
        lines.append(f"  … {len(waiting) - _MOST_LISTED} more: sandstream approvals")
    return "\n".join(lines)


def _nothing(verb: str, tree: RunTree, call: str | None) -> CliError:
    """Why there is nothing to decide: it was decided, is gone, or was never asked."""
    run = tree.summary.run_id
    decided = [it for it in _approvals(tree) if it.decided is not None]
    if call is not None:
        decided = [it for it in decided if call in (it.asked.call, it.asked.call_id)]
    if decided and (call is not None or len(decided) == 1):
        return CliError(Exit.FAILED, _decision(decided[-1], run))
    if tree.summary.is_over:
        how = tree.summary.status.replace("_", " ")
        return CliError(Exit.NOT_FOUND, f"run {run} is over ({how}): no call of it waits")
    waiting = [OpenCall(it.run, it) for it in open_approvals(tree)]
    if call is not None and waiting:
        return CliError(
            Exit.NOT_FOUND,
            f"no call {call!r} of run {run} waits; these do:\n{_listed(verb, waiting)}",
        )
    what = f"no call {call!r}" if call is not None else "no call"
    return CliError(
        Exit.NOT_FOUND,
        f"{what} of run {run} waits for a person; `sandstream approvals` lists what does",
    )


def _decision(it: Approval, run: str) -> str:
    """Who decided what, and when."""
    assert it.decided is not None
    what = f"{it.asked.name} ({it.asked.call}) of run {run}"
    who = decided_text("", it.decided).lstrip(" :,")
    when = f"{clock(it.decided_at)}, {age(it.decided_at)} ago"
    return one_line(f"{what} was {it.decision} already{f' {who}' if who else ''} ({when})")


def _approvals(tree: RunTree) -> Iterator[Approval]:
    for step in tree.steps:
        if isinstance(step, Approval):
            yield step
        elif isinstance(step, ChildCall) and step.run is not None:
            yield from _approvals(step.run)
