"""A process that works in a box by scripts, for tests that kill it: ``python -m
providers.shell.controller HOME TOOLS run|change``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from contract.shell_host import ShellHost
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.interface import Box, ExecSpec, FileWrite, ResolveRule

KEY = "victim"
OP = "op-1"
SCRIPT = "echo x >> count; echo up; until [ -e go ]; do sleep 0.02; done; echo done"


def provider(home: Path, tools: Path) -> AgentProvider:
    return AgentProvider(ShellHost(home, busybox=True, tools=tools))


def command(box: Box) -> ExecSpec:
    return ExecSpec(argv=["sh", "-c", SCRIPT], cwd=box.root, timeout_s=50)


def batch(box: Box) -> list[FileWrite]:
    return [
        FileWrite(path=f"{box.root}/new/deep", data=b"new"),
        FileWrite(path=f"{box.root}/old", data=b"changed", mode=0o600),
        FileWrite(path=f"{box.root}/gone", kind="remove"),
        FileWrite(path=f"{box.root}/link", kind="link", target="old"),
        FileWrite(path=f"{box.root}/moved", kind="move", target=f"{box.root}/new/moved"),
        FileWrite(path=f"{box.root}/last", data=b"last"),
    ]


async def main(home: Path, tools: Path, what: str) -> None:
    box = await provider(home, tools).get(KEY)
    assert box is not None
    rule = ResolveRule(roots=[box.root])
    await box.list(box.root, rule)  # what a first contact does is done before the tools are armed
    (tools / "armed").touch()
    if what == "run":
        await box.run(OP, command(box))
    else:
        await box.change(OP, batch(box), rule)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
