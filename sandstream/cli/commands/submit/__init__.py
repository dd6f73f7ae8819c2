"""``sandstream submit``: give a served agent a task."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_budget, add_command, positive, span


def add_parser(commands: Any) -> None:
    submit = add_command(
        commands,
        "submit",
        "publish a task for a served agent, and print the run's id",
        '  sandstream submit assistant "What is new?"\n'
        '  sandstream submit assistant "What is new?" --wait --timeout 60\n'
        '  sandstream submit assistant "And then?" --session order-17 --max-tokens 9000\n'
        "  sandstream watch $(sandstream submit assistant - < question.txt)",
        module="commands.submit.command",
        json="the run as JSON",
    )
    submit.add_argument("agent", help="the agent's name")
    submit.add_argument("input", help="what to say to the agent; - reads stdin")
    submit.add_argument("--key", help="a name for the run: the same key always means the same run")
    submit.add_argument("--context", metavar="JSON", help="an object for the agent's tools")
    submit.add_argument("--max-turns", type=positive, metavar="N", help="at most N model turns")
    submit.add_argument("--session", metavar="ID", help="the conversation that the run continues")
    submit.add_argument(
        "--if-busy",
        choices=["queue", "refuse"],
        metavar="queue|refuse",
        help="with --session: what to do while another run uses the conversation (queue)",
    )
    add_budget(submit)
    submit.add_argument(
        "--approval-expires",
        type=span,
        metavar="S",
        help="refuse a call that is not approved within S seconds",
    )
    submit.add_argument("--wait", action="store_true", help="wait for the end, print the output")
    submit.add_argument("--timeout", type=span, metavar="S", help="with --wait: at most S s")
