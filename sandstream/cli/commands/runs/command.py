"""``sandstream runs``: the newest runs as a table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime

from sandstream_bus.counts import numbered

from sandstream._inspect.older_runs import older_runs
from sandstream._inspect.run_filter import OPEN_STATUSES, RunFilter, run_filter
from sandstream._inspect.run_lists import RunList, Which, list_runs, list_with_status
from sandstream._inspect.run_search import LOOK_AT_OPEN, search_runs
from sandstream._inspect.summaries import RunSummary
from sandstream._inspect.texts import count
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.grammar import Since
from sandstream.cli.session import connected, put_json, readable, run_async, say
from sandstream.cli.suggestions import did_you_mean
from sandstream.cli.terminal.mask import masked
from sandstream.cli.terminal.progress import Progress
from sandstream.cli.terminal.render import (
    Cell,
    Column,
    Row,
    age,
    duration,
    err,
    out,
    seconds_between,
    table,
)
from sandstream.cli.terminal.run_table import STATUS_STYLES, ending, in_tree_order
from sandstream.client import Client
from sandstream.settings import Settings

_CHILDREN = Column("CHILDREN", ">", drops=7)
_COLUMNS = [
    Column("RUN", shrinks=22),
    Column("STATUS"),
    Column("AGENT", shrinks=8, drops=2),
    Column("AGE", ">", drops=3),
    Column("TOOK", ">", drops=4),
    Column("TURNS", ">", drops=6),
    Column("TOKENS", ">", drops=5),
    _CHILDREN,
    Column("NOW / RESULT", shrinks=12, drops=1),
]


def main(arguments: argparse.Namespace) -> int:
    wanted = _wanted(arguments)
    return run_async(_list(arguments, wanted), debug=arguments.debug)


def _wanted(arguments: argparse.Namespace) -> RunFilter:
    """Checked before anything is connected."""
    metadata: dict[str, str] = {}
    for key, value in arguments.metadata:
        if metadata.setdefault(key, value) != value:
            raise CliError(
                Exit.USAGE, f"--metadata {key}: it cannot be both {metadata[key]!r} and {value!r}"
            )
    return run_filter(
        status=arguments.status,
        agent=arguments.agent,
        since=_time(arguments.since),
        until=_time(arguments.until),
        text=arguments.text,
        metadata=metadata,
    )


def _time(given: Since | None) -> datetime | None:
    if given is None or not given.ns:
        return None
    try:
        return datetime.fromtimestamp(given.ns / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)


async def _list(arguments: argparse.Namespace, wanted: RunFilter) -> int:
    async with connected() as client:
        if wanted.has_more_than_status:
            listed = await _search(client, arguments, wanted)
        else:
            listed = await _newest(client, arguments)
        hint = "" if listed.runs else await _no_such_agent(client, wanted.agent)
    found = listed.runs
    if arguments.json:
        for summary in found:
            put_json(summary)
    elif found:
        _print(found)
    elif not listed.has_more and wanted.has_more_than_status:
        say(f"no run fits{hint}")
    elif not listed.has_more:
        which = f"{arguments.status} " if arguments.status else ""
        say(f'no {which}runs; start one: sandstream run app.py "hello"')
    if listed.has_more:
        say(_how_far(listed, wanted) + hint)
    return Exit.OK


def _how_far(listed: RunList, wanted: RunFilter) -> str:
    """What was not looked at, and how to have it looked at."""
    if wanted.status in OPEN_STATUSES:
        found = _number_of(listed, "run")
        most = numbered(LOOK_AT_OPEN, "open run")
        return f"{found} among the newest {most}; --all looks at all that are open"
    since = f" (since {listed.back_to[:16].replace('T', ' ')} UTC)" if listed.back_to else ""
    runs = numbered(listed.looked_at, "run")
    if wanted.has_more_than_status:
        began = "began last" if wanted.until is None else "began last before --until"
        older = (
            ", and among older ones that this machine has traces of" if listed.asked_older else ""
        )
        found = _number_of(listed, "run")
        return f"{found} among the {runs} that {began}{since}{older}; --all looks at the whole log"
    named = (wanted.status or "").replace("_", " ")
    found = _number_of(listed, f"{named} run")
    return f"{found} among the {runs} that ended last{since}; --all looks at the whole log"


def _number_of(listed: RunList, noun: str) -> str:
    return numbered(len(listed.runs), noun) if listed.runs else f"no {noun}"


async def _search(client: Client, arguments: argparse.Namespace, wanted: RunFilter) -> RunList:
    which: Which = "trees" if arguments.tree else "top_level"
    home = Settings.from_env().home
    with Progress(err()) as progress:
        async with older_runs(client.bus, home, wanted, which) as older:
            return await search_runs(
                client.bus,
                wanted,
                limit=arguments.limit,
                which=which,
                look_at_all=arguments.all,
                progress=progress,
                older=older,
            )


async def _no_such_agent(client: Client, agent: str | None) -> str:
    """What an agent's name may be a mistake for."""
    if agent is None:
        return ""
    known = await readable(client.agents())
    return "" if agent in known else did_you_mean(agent, known)


def _print(found: Sequence[RunSummary]) -> None:
    screen = out()
    has_children = any(summary.children for summary in found)
    columns = [it for it in _COLUMNS if has_children or it is not _CHILDREN]
    rows = [
        [cell for it, cell in zip(_COLUMNS, _row(summary, prefix), strict=True) if it in columns]
        for summary, prefix in in_tree_order(found)
    ]
    for line in table(screen, columns, rows):
        screen.line(line)


async def _newest(client: Client, arguments: argparse.Namespace) -> RunList:
    """The newest runs, or those of one status."""
    which: Which = "trees" if arguments.tree else "top_level"
    limit: int = arguments.limit
    if arguments.status is None:
        return RunList(runs=await list_runs(client.bus, limit=limit, which=which))
    return await list_with_status(
        client.bus, arguments.status, limit=limit, which=which, look_at_all=arguments.all
    )


def _row(summary: RunSummary, prefix: str) -> Row:
    took = seconds_between(summary.started_at, summary.ended_at)
    return [
        Cell(summary.run_id, "" if summary.is_over else "bold", prefix),
        Cell(summary.status.replace("_", " "), STATUS_STYLES.get(summary.status, "")),
        Cell(summary.agent),
        Cell(age(summary.started_at), "dim"),
        Cell(duration(took), "dim"),
        Cell(str(summary.turns)),
        Cell(count(summary.usage.total_tokens)),
        Cell(str(summary.children) if summary.children else ""),
        Cell(masked(ending(summary)), "red" if summary.error else "dim"),
    ]
