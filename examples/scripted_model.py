"""A model server without a key, for 06_worker_app.py, 08_data_analyst.py, README and quickstart.

    python examples/scripted_model.py --port 8808
    export OPENAI_BASE_URL=http://127.0.0.1:8808/v1

With --page guide it answers the questions of docs/guide.md instead; other pages work the same way.
It speaks OpenAI's APIs over HTTP and answers from the script below. It keeps no state: a question
that is repeated after a crash gets the same answer.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from sandstream import testing
from sandstream.testing import (
    Conversation,
    ScriptedModel,
    script_for,
    structured,
    text,
    tool_call,
    tool_calls,
)

REVENUE = """\
awk -F, 'NR > 1 {sum[$2] += $3 * $4} END {for (it in sum) print it, sum[it]}' data/sales.csv |
sort -k 2 -n -r | tee report.md"""
SOLD = """awk -F, '{n += $2} END {print n, "pieces"}' sales.csv > report.md"""
SERVED = [
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
README = [
    script_for(
        "wear in Oslo",
        [tool_call("get_weather", {"city": "Oslo"}), text("Take a jacket: 8 °C and cloudy.")],
    ),
    script_for(
        "What is wrong",
        [
            tool_call("exec_command", {"cmd": "sed -i 's:1 / 0:1 / 1:' app.py; python3 app.py"}),
            text("It divided by zero; now it prints 1.0."),
        ],
    ),
    script_for(
        "Mend it",
        [
            tool_call("exec_command", {"cmd": "sed -i 's:1 / 0:1 / 1:' app.py; python3 app.py"}),
            text("Mended: it prints 1.0."),
        ],
    ),
]
QUICKSTART = [
    script_for(
        "haiku about a log",
        [text("The log keeps each step.\nA process falls; another\nreads it and walks on.")],
    ),
    script_for(
        "Oslo or Rome",
        [
            tool_calls(("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})),
            text("Rome, by 13 degrees."),
        ],
    ),
    script_for(
        "a story", [text("Once upon a time there was a stream.").chunks(9, delta_delay_s=0.05)]
    ),
    script_for(
        "Ada Lovelace",
        [structured({"name": "Ada Lovelace", "born": 1815, "known_for": ["the first program"]})],
    ),
    script_for(
        "pay order 17",
        [tool_call("charge", {"order": "17", "cents": 4200}), text("Order 17 is paid.")],
    ),
    script_for(
        "coat in Lisbon",
        [tool_call("get_weather", {"city": "Lisbon"}), text("No: 21 °C and sunny in Lisbon.")],
    ),
    script_for(
        "How much did we sell",
        [tool_call("exec_command", {"cmd": SOLD}), text("We sold 42 pieces.")],
    ),
]
CONVERSATIONS = [*SERVED, *README, *QUICKSTART]
DEFAULT = [
    text(
        "I am a script: try order 17, Sunday or sold best. --page knows more, and so does a model:"
        " set OPENAI_API_KEY."
    )
]
PAGES = Path(__file__).resolve().parent / "pages"


def pages() -> list[str]:
    """The pages of docs/ that have a script."""
    return sorted(path.stem for path in PAGES.glob("*.txt"))


def page_script(page: str) -> list[Conversation]:
    """The script of a page: each line of its file is one ``script_for(...)``."""
    names = {name: getattr(testing, name) for name in testing.__all__}
    return [eval(line, names) for line in (PAGES / f"{page}.txt").read_text().splitlines()]


async def serve(host: str, port: int, page: str) -> None:
    conversations = page_script(page) if page else CONVERSATIONS
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with ScriptedModel(
        conversations=conversations, default=DEFAULT, strict=False, port=port, host=host
    ) as model:
        print(model.base_url, flush=True)
        await ended.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A scripted model server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8808, help="0 picks a free one")
    parser.add_argument("--page", choices=pages(), default="", help="play this page of docs/")
    options = parser.parse_args()
    try:
        asyncio.run(serve(options.host, options.port, options.page))
    except OSError as error:  # most often, another scripted model has the port
        parser.exit(1, f"cannot listen on port {options.port}: {error.strerror}; try --port 0\n")
    except KeyboardInterrupt:
        pass
