"""Deployed agents: workers serve this file, and every user of the bus can call its agents.

    sandstream up examples/06_worker_app.py                     a bus, a harness and this worker
    sandstream submit support "Where is order 17?" --wait

Or piece by piece, on as many machines as you like (compose.yaml does the same):

    sandstream actor harness                                    takes model turns; start several
    sandstream worker examples/06_worker_app.py                 runs the tools below; start several

Without a key, let the scripted model answer:

    python examples/scripted_model.py --port 8808 &
    export OPENAI_BASE_URL=http://127.0.0.1:8808/v1
"""

from __future__ import annotations

import asyncio

from sandstream import Agent, function_tool

ORDERS = {"17": "packed, leaves tomorrow", "18": "delivered on Monday"}


@function_tool
async def order_status(order: str) -> str:
    """Where an order is.

    Args:
        order: The order's number.
    """
    await asyncio.sleep(0.2)  # a slow database
    return ORDERS.get(order, "unknown order")


@function_tool
def opening_hours(day: str) -> str:
    """When the shop is open on a day."""
    return "closed" if day.lower() == "sunday" else "9 to 17"


support = Agent(
    name="support",
    instructions="You help customers of a small shop. Look things up; answer in one sentence.",
    tools=[order_status, opening_hours],
)
