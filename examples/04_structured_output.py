"""An answer of your own type: checked against its schema, returned as your object.

python examples/04_structured_output.py
"""

from __future__ import annotations

import asyncio

from offline import model_or_script
from pydantic import BaseModel

from sandstream import Agent, Runner
from sandstream.testing import structured


class Invoice(BaseModel):
    number: str
    euros: float
    overdue: bool


reader = Agent(name="Reader", instructions="Read the invoice.", output_type=Invoice)

SCRIPT = [structured({"number": "2031-7", "euros": 199.5, "overdue": True})]


async def main() -> None:
    result = await Runner.run(reader, "Invoice 2031-7 over 199.50 EUR was due last month.")
    invoice = result.final_output_as(Invoice)
    print(invoice)
    if invoice.overdue:
        print(f"remind them of {invoice.euros:.2f} EUR")


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(main())
