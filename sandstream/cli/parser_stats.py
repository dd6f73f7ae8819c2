"""The grammar of ``stats``."""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime
from typing import Any, NamedTuple

from sandstream.cli.grammar import command

BY = ["agent", "model", "tool", "day"]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])")


class Since(NamedTuple):
    """From when on, and how the user has said it."""

    ns: int
    words: str


def add_stats(commands: Any) -> None:
    stats = command(
        commands,
        "stats",
        "sum up runs, tokens, times and failures by agent, model and tool",
        "  sandstream stats\n"
        "  sandstream stats --since 7d --by day\n"
        "  sandstream stats --since all --agent assistant\n"
        "  sandstream stats --json | jq '.models[] | {name, calls, errors}'",
        module="stats",
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


def since(text: str) -> Since:
    """A time span before now, a date, or ``all``."""
    if text == "all":
        return Since(0, "")
    if match := _SPAN.fullmatch(text):
        seconds = float(match[1]) * _UNITS[match[2]]
        return Since(_in_reach(time.time_ns() - int(seconds * 1e9)), f"in the last {text}")
    try:
        began = datetime.fromisoformat(text)
        return Since(_in_reach(int(began.timestamp() * 1e9)), f"since {text}")
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: say how long ago (90s, 30m, 24h, 7d, 2w), "
            "a date (2026-01-31, 2026-01-31T12:00), or all"
        ) from None


def _in_reach(ns: int) -> int:
    """Nothing began before 1970, and no store counts further than this."""
    return max(0, min(ns, 2**63 - 1))
