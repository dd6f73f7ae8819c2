"""Whatever stands where an agent's digest should be: the run goes on, and nothing is told of it."""

from __future__ import annotations

import asyncio
import logging
import resource
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sandstream import RunConfig, Runner
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Filesystem, Memory, Shell
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, text, tool_call

pytestmark = pytest.mark.usefixtures("home")

KNOWN = "The user prefers minimal patches."


def play(
    monkeypatch: pytest.MonkeyPatch, command: str, program: Callable[[Any], Awaitable[Any]]
) -> list[str]:
    """The agent notes something, runs the command, and is asked twice more. Its instructions of
    each turn since the note; nobody else knows of it, so that nothing is put right meanwhile.
    """
    monkeypatch.setenv("SANDSTREAM_PREFIX", f"memory-{uuid.uuid4().hex[:12]}")
    steps = [
        tool_call("exec_command", {"cmd": f"echo '{KNOWN}' > memories/memory_summary.md"}),
        tool_call("exec_command", {"cmd": command}),
        tool_call("exec_command", {"cmd": "true"}),
        text("ok"),
    ]

    async def main() -> list[str]:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            agent: SandboxAgent[Any] = SandboxAgent(
                name="coder",
                model="m",
                capabilities=[Memory(generate=None), Shell(), Filesystem()],
            )
            await program(agent)
            return [str(it.body.get("instructions")) for it in model.journal][1:]

    return asyncio.run(main())


def config() -> RunConfig:
    return RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))


BROKEN = {
    "outside": "ln -sf /etc/passwd memories/memory_summary.md",
    "outside-nowhere": "ln -sf /nothing/there memories/memory_summary.md",
    "device": "ln -sf /dev/zero memories/memory_summary.md",
    "loop": "cd memories; rm memory_summary.md; ln -s memory_summary.md memory_summary.md",
    "directory": "cd memories; rm memory_summary.md; mkdir memory_summary.md",
    "fifo": "cd memories; rm memory_summary.md; mkfifo memory_summary.md",
    "file-above": "rm -r memories; echo x > memories",
    "link-above": "mv memories m2; ln -s /etc memories",
    "no-utf8": r"printf 'ab\377\376cd' > memories/memory_summary.md",
    "no-text": r"printf 'ab\000cd' > memories/memory_summary.md",
    "big": "truncate -s 400M memories/memory_summary.md",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_digest_fails_no_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async def program(agent: Any) -> None:
        result = await Runner.run(agent, "Break it.", run_config=config())
        assert result.final_output == "ok"

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with caplog.at_level(logging.WARNING):
        told = play(monkeypatch, BROKEN[name], program)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert KNOWN in told[0] and "DIGEST-" in told[0]
    for each in told[1:]:
        assert "DIGEST-" not in each
        assert "root:" not in each
    assert caplog.text.count("the digest of its memory is not in the agent's instructions") == 1
    assert grown < 100 * 1024, "in KiB"


def test_a_digest_that_is_gone_is_no_trouble(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def program(agent: Any) -> None:
        assert (await Runner.run(agent, "Go.", run_config=config())).final_output == "ok"

    told = play(monkeypatch, "rm memories/memory_summary.md", program)
    assert [KNOWN in each for each in told] == [True, False, False]
    assert "not in the agent's instructions" not in caplog.text


@pytest.mark.parametrize("size", [len("größer ☃\n".encode()) * it for it in (5_400, 2_400_000)])
def test_of_a_long_digest_head_and_tail_are_told(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Also if it is so long that it is not read as a whole; characters stay whole."""
    write = (
        "cd memories; echo HEAD-OF-IT > memory_summary.md; "
        f"yes 'größer ☃' | head -c {size} >> memory_summary.md; "
        "printf '\\nTAIL-OF-IT\\n' >> memory_summary.md"
    )

    async def program(agent: Any) -> None:
        assert (await Runner.run(agent, "Go.", run_config=config())).final_output == "ok"

    told = play(monkeypatch, write, program)[1]
    assert "HEAD-OF-IT\ngrößer ☃\n" in told
    assert "☃" in told.split("TAIL-OF-IT")[0][-40:]
    assert "\ufffd" not in told
    tokens = -(-(size + len("HEAD-OF-IT\n\nTAIL-OF-IT")) // 4)
    assert f"about {tokens - 15_000} of {tokens} tokens left out here" in told
    assert 60_000 < len(told.encode()) < 90_000
