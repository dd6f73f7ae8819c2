"""``sandstream stats``: sums over runs, from the trace store."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command, since

BY = ["agent", "model", "tool", "day"]


def add_parser(commands: Any) -> None:
    stats = add_command(
        commands,
        "stats",
        "sum up runs, tokens, times and failures by agent, model and tool",
        "  sandstream stats\n"
        "  sandstream stats --since 7d --by day\n"
        "  sandstream stats --since all --agent assistant\n"
        "  sandstream stats --json | jq '.models[] | {name, calls, errors}'",
        module="commands.stats.command",
        json="one object: total, failures, agents, models, tools, days",
    )
    stats.add_argument(
        "--since",
        type=since,
        default="24h",
        metavar="WHEN",
        help="runs that began since: 90s, 30m, 24h, 7d, 2w, a date such as 2026-01-31, "
        "or all (24h)",
    )
    stats.add_argument("--agent", metavar="NAME", help="only this agent")
    stats.add_argument(
        "--by", choices=BY, metavar="|".join(BY), help="only this table (agent, model and tool)"
    )
