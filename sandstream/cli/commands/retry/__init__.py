"""``sandstream retry``: repeat the failed step of a run."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_budget, add_command, positive, span


def add_parser(commands: Any) -> None:
    retry = add_command(
        commands,
        "retry",
        "continue a failed run from the step that failed, under the same id",
        "  sandstream retry RUN\n"
        "  sandstream retry RUN --wait --timeout 60\n"
        "  sandstream retry RUN --max-turns 20      it had used up its turns\n"
        "  sandstream runs --status failed --json | jq -r .run_id |\n"
        "    xargs -n1 sandstream retry",
        module="commands.retry.command",
        json="the run as JSON",
    )
    retry.add_argument("run", metavar="RUN", help="the run's id")
    retry.add_argument("--reason", default="", metavar="TEXT", help="kept in the run's log")
    retry.add_argument("--max-turns", type=positive, metavar="N", help="more turns than it had")
    add_budget(retry)
    retry.add_argument("--wait", action="store_true", help="wait for the end, print the output")
    retry.add_argument("--timeout", type=span, metavar="S", help="with --wait: at most S s")
