"""A conversation with an agent that keeps its workspace: each question builds on the last one.

python examples/12_multi_turn.py          asks its own three questions
python examples/12_multi_turn.py --ask    asks yours, until an empty line
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from offline import model_or_script

from sandstream import RunConfig, Runner
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import text, tool_call

agent = SandboxAgent(
    name="Librarian",
    instructions="Keep the catalogue in books.txt, one title a line. Use the shell.",
    capabilities=[Shell()],
)

SCRIPT = [
    tool_call("exec_command", {"cmd": "printf 'Growth of the Soil\\n' >> books.txt"}),
    text("It is in the catalogue."),
    tool_call("exec_command", {"cmd": "printf 'Hunger\\n' >> books.txt"}),
    text("Added as well."),
    tool_call("exec_command", {"cmd": "wc -l < books.txt"}),
    text("There are two."),
]


def questions() -> Iterator[str]:
    if "--ask" in sys.argv:
        while question := input("> ").strip():
            yield question
        return
    for question in ("Add Growth of the Soil.", "And Hunger.", "How many are there now?"):
        print(f"> {question}")
        yield question


async def main() -> None:
    client = UnixLocalSandboxClient()
    session = await client.create(manifest=Manifest())
    await session.start()
    run_config = RunConfig(sandbox=SandboxRunConfig(session=session))
    conversation: list[Any] = []
    for question in questions():
        given = [*conversation, {"role": "user", "content": question}]
        result = await Runner.run(agent, given, run_config=run_config)
        print(result.final_output)
        conversation = result.to_input_list()
    print("books.txt has", len((await session.read("books.txt")).read().splitlines()), "lines")
    await session.aclose()
    await client.close()


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(main())
