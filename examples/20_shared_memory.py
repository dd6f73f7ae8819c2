"""A named memory: workspaces share it, it outlives them, and an agent corrects it.

    python examples/20_shared_memory.py [SCOPE]

Two runs add to it at the same time, each in its own sandbox. A third run, in another sandbox, is
told that one of the facts has changed, and corrects the memory in place. The change is recorded:
`sandstream memory undo SCOPE` would take it back.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys

from offline import model_or_script

from sandstream import RunConfig, Runner
from sandstream.sandbox import SandboxAgent, SandboxRunConfig, wait_for_memory
from sandstream.sandbox.capabilities import Filesystem, Memory, Shell
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import Conversation, script_for, structured, text, tool_call

SCOPE = sys.argv[1] if len(sys.argv) > 1 else "shop"

clerk = SandboxAgent(
    name="Clerk",
    instructions="You work for a shop. Answer in one sentence. Correct your memory if it is wrong.",
    capabilities=[Shell(), Filesystem(), Memory(scope=SCOPE)],
)

HANDBOOK = """cd memories
(printf '# Task group: the shop\\n\\n'; grep -h '^- ' raw_memories/*.md | sort -u) > MEMORY.md
(printf '## General tips\\n'; grep -h '^- ' MEMORY.md) > memory_summary.md
"""
REPAIR = "cd memories; sed -i 's/opens at 9/opens at 10/' MEMORY.md memory_summary.md"
NOTHING = {"rollout_slug": "", "rollout_summary": "", "raw_memory": ""}


def phase_one(said: str, slug: str, fact: str) -> Conversation:
    """What the model extracts from a transcript in which a user said this."""
    found = {"rollout_slug": slug, "rollout_summary": fact, "raw_memory": f"- {fact}"}
    return script_for(f'"content":"{said}', [structured(found if slug else NOTHING)])


SCRIPTS = [
    script_for("We open at 9", [text("Noted: nine.")]),
    script_for("Parcels go out", [text("Noted: on Fridays.")]),
    script_for("From May on", [tool_call("exec_command", {"cmd": REPAIR}), text("Corrected.")]),
    script_for("When do we open", [text("At ten.").when(lambda it: "opens at 10" in it.text)]),
    phase_one("We open at 9", "opening", "The shop opens at 9."),
    phase_one("Parcels go out", "parcels", "Parcels go out on Fridays."),
    phase_one("From May on", "", ""),
    phase_one("When do we open", "", ""),
    script_for(
        "Consolidate the memory in memories/ as",
        [tool_call("exec_command", {"cmd": HANDBOOK}), text("Done.")],
    ),
]


async def main() -> None:
    client = UnixLocalSandboxClient()
    run_config = RunConfig(sandbox=SandboxRunConfig(client=client))
    both = await asyncio.gather(
        Runner.run(clerk, "We open at 9 in the morning.", run_config=run_config),
        Runner.run(clerk, "Parcels go out on Fridays.", run_config=run_config),
    )
    for each in both:
        await wait_for_memory(each)

    repaired = await Runner.run(clerk, "From May on we open at 10.", run_config=run_config)
    print(repaired.final_output)
    await wait_for_memory(repaired)

    asked = await Runner.run(clerk, "When do we open?", run_config=run_config)
    print(asked.final_output)

    command = [sys.executable, "-m", "sandstream.cli", "memory", "diff", SCOPE]
    diff = await asyncio.to_thread(subprocess.run, command, stdout=subprocess.PIPE, check=True)
    print(diff.stdout.decode().strip())
    await client.close()


if __name__ == "__main__":
    with model_or_script(conversations=SCRIPTS):
        asyncio.run(main())
