"""A workspace that outlives the program: the second start continues where the first one stopped.

    python examples/13_pause_and_resume.py [STATE_FILE]      start it twice

Only a small file has to be kept: it names the workspace and its last checkpoint.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from offline import model_or_script

from sandstream import RunConfig, Runner
from sandstream.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient, UnixLocalSandboxSessionState
from sandstream.testing import text, tool_call

STATE_FILE = Path(
    sys.argv[1] if len(sys.argv) > 1 else Path(tempfile.gettempdir()) / "sandstream-diary.json"
)

agent = SandboxAgent(
    name="Diarist",
    instructions="Add a line to diary.txt with the shell, then say how many there are.",
    capabilities=[Shell()],
)

SCRIPT = [
    tool_call("exec_command", {"cmd": "echo 'another day' >> diary.txt; wc -l < diary.txt"}),
    text("Written."),
]


async def main() -> None:
    client = UnixLocalSandboxClient()
    if STATE_FILE.exists():
        saved = UnixLocalSandboxSessionState.model_validate_json(STATE_FILE.read_text())
        session = await client.resume(saved)
        print("went on in the saved workspace")
    else:
        manifest = Manifest(entries={"diary.txt": File(content=b"the first day\n")})
        snapshots = LocalSnapshotSpec(base_path=STATE_FILE.with_suffix(".snapshots"))
        session = await client.create(manifest=manifest, snapshot=snapshots)
        print("made a new workspace")
    await session.start()
    # at once, so that a crash does not orphan the workspace
    STATE_FILE.write_text(session.state.model_dump_json())
    await Runner.run(
        agent,
        "Write in the diary.",
        run_config=RunConfig(sandbox=SandboxRunConfig(session=session)),
    )
    diary = (await session.read("diary.txt")).read().decode()
    print(f"{len(diary.splitlines())} days in the diary")
    await session.aclose()
    STATE_FILE.write_text(session.state.model_dump_json())
    await client.close()


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(main())
