"""A model server without a key, for the agents of 06_worker_app.py and 08_data_analyst.py.

    python examples/scripted_model.py --port 8808
    export OPENAI_BASE_URL=http://127.0.0.1:8808/v1

It speaks OpenAI's APIs over HTTP and answers from the script below. It keeps no state: a question
that is repeated after a crash gets the same answer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal

from sandstream.testing import ScriptedModel, script_for, text, tool_call

REVENUE = """\
awk -F, 'NR > 1 {sum[$2] += $3 * $4} END {for (it in sum) print it, sum[it]}' data/sales.csv |
sort -k 2 -n -r | tee report.md"""
CONVERSATIONS = [
    script_for(
        "order 17",
        [
            tool_call("order_status", {"order": "17"}),
            text("Order 17 is packed and leaves tomorrow.").chunks(8, delta_delay_s=0.02),
        ],
    ),
    script_for(
        "Sunday",
        [
            tool_call("opening_hours", {"day": "Sunday"}),
            text("We are closed on Sundays."),
        ],
    ),
    script_for(
        "sold best",
        [
            tool_call("exec_command", {"cmd": REVENUE}),
            text("Lamps sold best; all products are in report.md."),
        ],
    ),
    script_for("slow", [text("That took a while.").after(6.0)]),
]
DEFAULT = [text("I am a script: try order 17, Sunday or sold best. Set OPENAI_API_KEY for more.")]


async def serve(host: str, port: int) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with ScriptedModel(
        conversations=CONVERSATIONS, default=DEFAULT, strict=False, port=port, host=host
    ) as model:
        print(model.base_url, flush=True)
        await ended.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A scripted model server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8808, help="0 picks a free one")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options.host, options.port))
