"""``sandstream sessions``: sessions grouped by what they do now, forks below their sources."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sandstream_bus.counts import numbered

from sandstream._inspect.texts import count
from sandstream.cli.commands.session.texts import STYLES
from sandstream.cli.exits import Exit
from sandstream.cli.session import connected, put_json, run_async, say
from sandstream.cli.suggestions import did_you_mean
from sandstream.cli.terminal.render import Cell, Column, Row, age, out, table
from sandstream.client import Client
from sandstream.sessions.views import SessionInfo

_COLUMNS = [
    Column("SESSION", shrinks=16),
    Column("NOW"),
    Column("TITLE", shrinks=12),
    Column("AGENT", shrinks=8, drops=3),
    Column("PROVIDER", drops=4),
    Column("TURNS", ">", drops=6),
    Column("QUEUE", ">", drops=5),
    Column("TOKENS", ">", drops=7),
    Column("CHANGED", ">", drops=2),
    Column("LAST / NOW", shrinks=12, drops=1),
]


def main(arguments: argparse.Namespace) -> int:
    return run_async(_list(arguments), debug=arguments.debug)


async def _list(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        every = await client.sessions.list(archived=arguments.all, destroyed=arguments.all)
        found = [it for it in every if _fits(it, arguments)]
        hint = await _hint(client, arguments) if not found else ""
    if arguments.json:
        for info in found:
            put_json(info)
    elif found:
        _print(found)
    elif every or arguments.agent or arguments.activity or arguments.text:
        say(f"no session fits{hint}")
    else:
        say('no sessions; begin one: sandstream session new AGENT "hello"')
    return Exit.OK


def _fits(info: SessionInfo, arguments: argparse.Namespace) -> bool:
    if arguments.agent is not None and info.agent != arguments.agent:
        return False
    if arguments.activity is not None and info.activity != arguments.activity.replace("-", " "):
        return False
    text = (arguments.text or "").casefold()
    return text in info.title.casefold() or text in info.said.casefold()


async def _hint(client: Client, arguments: argparse.Namespace) -> str:
    if arguments.agent is None:
        return ""
    known = {it.agent for it in await client.sessions.list(archived=True, destroyed=True)}
    return "" if arguments.agent in known else did_you_mean(arguments.agent, known)


def _print(found: Sequence[SessionInfo]) -> None:
    screen = out()
    rows = [_row(info, branch) for info, branch in in_fork_order(found)]
    for line in table(screen, _COLUMNS, rows):
        screen.line(line)
    needing = sum(info.activity == "needs you" for info in found)
    if needing:
        verb = "needs" if needing == 1 else "need"
        say(f"{numbered(needing, 'session')} {verb} you: sandstream session show ID")


def in_fork_order(found: Sequence[SessionInfo]) -> list[tuple[SessionInfo, str]]:
    """Sessions in their order, each with its forks right below it, and how far to indent. A fork
    of a session that is not shown stands by itself. The most urgent fork decides where a tree is.
    """
    known = {info.id for info in found}
    below: dict[str, list[SessionInfo]] = {}
    for info in found:
        source = info.origin.session if info.origin is not None else ""
        below.setdefault(source if source in known and source != info.id else "", []).append(info)
    roots = below.get("", [])
    every = list(roots)
    for info in every:  # grows while it is read; no recursion: forks go deep
        every += below.get(info.id, ())
    first = {info.id: number for number, info in enumerate(found)}
    for info in reversed(every):
        first[info.id] = min(first[it.id] for it in (info, *below.get(info.id, ())))
    ordered: list[tuple[SessionInfo, str]] = []
    waiting = [(it, 0) for it in sorted(roots, key=lambda it: first[it.id], reverse=True)]
    while waiting:
        info, depth = waiting.pop()
        ordered.append((info, f"{'  ' * (depth - 1)}└ " if depth else ""))
        forks = sorted(below.get(info.id, ()), key=_by_age)
        waiting += [(it, depth + 1) for it in reversed(forks)]
    return ordered


def _by_age(info: SessionInfo) -> str:
    return info.created


def _row(info: SessionInfo, branch: str) -> Row:
    moving = f" → {info.switching_to}" if info.switching_to else ""
    return [
        Cell(info.id, "bold", branch),
        Cell(info.activity, STYLES[info.activity]),
        Cell(info.title),
        Cell(info.agent),
        Cell(f"{info.provider}{moving}" if info.provider else "-"),
        Cell(str(info.turn)),
        Cell(str(len(info.queue)) if info.queue else ""),
        Cell(count(info.usage.total_tokens)),
        Cell(age(info.changed)),
        Cell(info.doing or info.said, "dim"),
    ]
