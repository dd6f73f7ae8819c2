"""An agent with a sandbox: it computes from a CSV with commands and writes a report file.

    python examples/08_data_analyst.py

Or from the command line, on a copy of your own directory that has data/sales.csv:

    sandstream run examples/08_data_analyst.py "What sold best?" --workspace DIR --key best-1
    sandstream artifacts get best-1 report.md -o -

Its commands run in a separate box: no network, no view of your home, your environment or your
processes. You get the files that it made by their names.
"""

from __future__ import annotations

import asyncio

from offline import model_or_script

from sandstream import RunConfig, Runner, ToolCallOutputItem
from sandstream.sandbox import Dir, File, Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import text, tool_call

SALES = b"""\
month,product,units,price
2026-01,lamp,12,40.00
2026-01,chair,5,120.00
2026-02,lamp,30,38.50
2026-02,desk,2,310.00
2026-03,chair,9,115.00
2026-03,lamp,21,39.00
"""

analyst = SandboxAgent(
    name="analyst",
    instructions="Compute with python3 from the files in data/. Write what you find to report.md. "
    "Answer in one sentence.",
)

COMPUTE = """\
python3 - data/sales.csv > report.md <<'PYTHON'
import csv, sys
from collections import Counter
revenue = Counter()
for row in csv.DictReader(open(sys.argv[1])):
    revenue[row["product"]] += int(row["units"]) * float(row["price"])
print("# Revenue by product\\n")
for product, euros in revenue.most_common():
    print(f"- {product}: {euros:.2f} EUR")
PYTHON
cat report.md"""
SCRIPT = [
    tool_call("exec_command", {"cmd": "head -3 data/sales.csv; wc -l < data/sales.csv"}),
    tool_call("exec_command", {"cmd": COMPUTE}),
    text("Lamps sold best, ahead of chairs; the numbers are in report.md."),
]


async def main() -> None:
    client = UnixLocalSandboxClient()
    workspace = Manifest(entries={"data": Dir(children={"sales.csv": File(content=SALES)})})
    session = await client.create(manifest=workspace)
    async with session:
        result = await Runner.run(
            analyst,
            "Which product brought the most money?",
            run_config=RunConfig(sandbox=SandboxRunConfig(session=session)),
        )
        for item in result.new_items:
            if isinstance(item, ToolCallOutputItem):
                print(f"--- what a command said\n{item.output}")
        print(f"--- the answer\n{result.final_output}")
        report = await session.read("report.md")
        print(f"--- report.md, out of the sandbox\n{report.read().decode()}")
    await client.delete(session)


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(main())
