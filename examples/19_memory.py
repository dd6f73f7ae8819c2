"""Memory: the user tells the first run a preference, and the second run knows it.

    python examples/19_memory.py

Both work in one workspace, which is closed in between. Two more runs make the memory in the
background: one extracts, one consolidates. `sandstream runs` lists them.
"""

from __future__ import annotations

import asyncio

from offline import model_or_script

from sandstream import RunConfig, Runner
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig, wait_for_memory
from sandstream.sandbox.capabilities import Filesystem, Memory, Shell
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import script_for, structured, text, tool_call

agent = SandboxAgent(
    name="Coder",
    instructions="Mend what is asked for with the shell, then say in one sentence what you did.",
    capabilities=[Shell(), Filesystem(), Memory()],
)

HANDBOOK = """cd memories
printf '# Task group: prices.py\\n\\n' > MEMORY.md
printf '## User preferences\\n- minimal patches\\n' | tee memory_summary.md >> MEMORY.md
"""
SCRIPTS = [
    script_for(
        "Mend prices.py",
        [
            tool_call("exec_command", {"cmd": "sed -i 's:/ 10:/ 100:' prices.py"}),
            text("One number was wrong."),
        ],
    ),
    script_for(
        "Add a comment",
        [
            tool_call("exec_command", {"cmd": "sed -i '1i # percent off' prices.py"}),
            text("One line, as you like it.").when(lambda it: "- minimal patches" in it.text),
            text("I rewrote the file."),  # the answer without the memory
        ],
    ),
    script_for(  # phase one
        "The rollout is the JSON lines between",
        [
            structured(
                {
                    "rollout_slug": "prices",
                    "rollout_summary": "# Prices\nThe user wants minimal patches.",
                    "raw_memory": "- The user wants minimal patches.",
                }
            )
        ],
    ),
    script_for(  # phase two
        "Consolidate the memory in memories/ as",
        [tool_call("exec_command", {"cmd": HANDBOOK}), text("Done.")],
    ),
]


async def main() -> None:
    client = UnixLocalSandboxClient()
    source = File(content=b"def reduced(price, off):\n    return price - price * off / 10\n")
    session = await client.create(manifest=Manifest(entries={"prices.py": source}))
    async with session:
        run_config = RunConfig(sandbox=SandboxRunConfig(session=session))
        first = await Runner.run(
            agent, "Mend prices.py. I like minimal patches.", run_config=run_config
        )
    print(first.final_output)

    await wait_for_memory(first)  # without this, the next run may start too early

    resumed = await client.resume(session.state)
    async with resumed:
        run_config = RunConfig(sandbox=SandboxRunConfig(session=resumed))
        second = await Runner.run(agent, "Add a comment to it.", run_config=run_config)
        print(second.final_output)
        print((await resumed.read("memories/memory_summary.md")).read().decode().strip())
    await client.delete(resumed)
    await client.close()


if __name__ == "__main__":
    with model_or_script(conversations=SCRIPTS):
        asyncio.run(main())
