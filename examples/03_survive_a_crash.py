"""Start it twice. The first start kills itself with SIGKILL half-way; the second one continues.

    python examples/03_survive_a_crash.py      dies after the payment
    python examples/03_survive_a_crash.py      completes; the payment is not made again

A `run_key` makes a run outlive its program: a later call with the same key continues the run from
its log. Calls that have a result are not repeated.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

from offline import model_or_script

from sandstream import Agent, RunConfig, Runner, function_tool
from sandstream.testing import text, tool_call

KEY = sys.argv[1] if len(sys.argv) > 1 else "order-17"
LEDGER = Path(tempfile.gettempdir()) / f"sandstream-ledger-{KEY}.txt"


@function_tool
def charge_card(order: str, euros: int) -> str:
    """Charge the customer's card."""
    with LEDGER.open("a") as ledger:
        ledger.write(f"charged {euros} EUR for {order} (process {os.getpid()})\n")
    return "paid"


@function_tool
def ship(order: str) -> str:
    """Hand the order to the carrier."""
    lines = LEDGER.read_text().splitlines()
    if not any(line.startswith("crash") for line in lines):
        with LEDGER.open("a") as ledger:
            ledger.write(f"crash in the middle of shipping (process {os.getpid()})\n")
        print("the card is charged; now this process dies. Start me again.", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    with LEDGER.open("a") as ledger:
        ledger.write(f"shipped {order} (process {os.getpid()})\n")
    return "shipped, tracking number SD-4711"


clerk = Agent(
    name="Clerk",
    instructions="Charge the card with charge_card, then ship the order with ship. One at a time.",
    tools=[charge_card, ship],
)

SCRIPT = [
    tool_call("charge_card", {"order": "order-17", "euros": 42}),
    tool_call("ship", {"order": "order-17"}),
    text("Paid and shipped; the tracking number is SD-4711."),
]


async def main() -> None:
    result = await Runner.run(
        clerk, "Process order-17: 42 EUR.", run_config=RunConfig(run_key=f"example-03-{KEY}")
    )
    print(LEDGER.read_text(), end="")
    charged = LEDGER.read_text().count("charged")
    times = "once" if charged == 1 else f"{charged} times"
    print(f"{result.final_output}\nThe card was charged {times}.")


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(main())
