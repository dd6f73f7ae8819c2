"""A box at Daytona that waits between two programs: start it twice.

    export DAYTONA_API_KEY=…                            from Daytona's dashboard
    python examples/22_daytona_sandbox.py [STATE_FILE]
    python examples/22_daytona_sandbox.py [STATE_FILE]
    python examples/22_daytona_sandbox.py --remove [STATE_FILE]

It needs an account at Daytona and the package: `pip install 'sandstream[daytona]'`. The box is
paused at the end of the program, so it costs little. The second program wakes it. If Daytona has
deleted it meanwhile, its files come back in a new one. `--remove` ends it for good.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from offline import model_or_script

from sandstream import RunConfig, Runner, ToolCallOutputItem
from sandstream.extensions.sandbox import (
    DaytonaSandboxClient,
    DaytonaSandboxClientOptions,
    DaytonaSandboxSessionState,
)
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.errors import ProviderUnavailableError
from sandstream.testing import text, tool_call

FILES = [Path(it) for it in sys.argv[1:] if it != "--remove"]
STATE_FILE = FILES[0] if FILES else Path(tempfile.gettempdir()) / "sandstream-daytona.json"

gardener = SandboxAgent(
    name="Gardener",
    instructions="Note in garden.txt what was planted, then read out the whole file.",
    capabilities=[Shell()],
)
SCRIPT = [
    tool_call("exec_command", {"cmd": "echo 'a tulip' >> garden.txt; cat garden.txt"}),
    text("The tulip is in the book."),
]


async def main() -> None:
    async with DaytonaSandboxClient() as client:
        if STATE_FILE.exists():
            saved = DaytonaSandboxSessionState.model_validate_json(STATE_FILE.read_text())
            before = saved.sandbox_id
            session = await client.resume(saved)
            same = session.state.sandbox_id == before
            print("found the box again" if same else "Daytona has deleted the box: a new one")
        else:
            session = await client.create(options=DaytonaSandboxClientOptions(pause_on_exit=True))
            print("made a box")
        # at once, so that a crash leaves no box behind that costs money
        STATE_FILE.write_text(session.state.model_dump_json())
        async with session:
            print(f"at Daytona it is called {session.sandbox_id}")
            result = await Runner.run(
                gardener,
                "I planted a tulip.",
                run_config=RunConfig(sandbox=SandboxRunConfig(session=session)),
            )
            for item in result.new_items:
                if isinstance(item, ToolCallOutputItem):
                    print(item.output.partition("Output:\n")[2], end="")
            print(result.final_output)
        print("the box is paused; start me again")


async def remove() -> None:
    async with DaytonaSandboxClient() as client:
        saved = DaytonaSandboxSessionState.model_validate_json(STATE_FILE.read_text())
        await client.delete(client.session_of(saved))
    STATE_FILE.unlink()
    print("the box is gone")


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        try:
            asyncio.run(remove() if "--remove" in sys.argv else main())
        except ProviderUnavailableError as error:
            raise SystemExit(f"there are no sandboxes at Daytona here: {error}") from None
