"""A repository review: the agent runs git and the tests in its sandbox, and writes REVIEW.md.

    python examples/09_repo_review.py

The run creates the sandbox, saves its workspace at the end and closes it. Later the saved workspace
is opened again: by this process, by another one, or on another machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

from offline import model_or_script

from sandstream import RunConfig, Runner, ToolCallOutputItem
from sandstream.sandbox import GitRepo, Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import custom_tool_call, text, tool_call

PRICES = '''\
"""Prices of a shop."""


def total(prices, discount=0):
    return sum(prices) * (1 - discount / 10)  # TODO: percent?
'''
TESTS = """\
import unittest

from prices import total


class Totals(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(total([10, 20]), 30)

    def test_discount_is_in_percent(self):
        self.assertEqual(total([100], discount=20), 80)
"""

reviewer = SandboxAgent(
    name="reviewer",
    instructions="Review the repository in shop/: look at its last commit, look for unfinished "
    "work, run the tests (python3 -m unittest). Write your findings to shop/REVIEW.md with "
    "apply_patch. Do not change the code. Answer in one sentence.",
)

REVIEW = """\
*** Begin Patch
*** Add File: shop/REVIEW.md
+# Review
+
+- `prices.py:5` divides the discount by 10, not by 100: `test_discount_is_in_percent` fails.
+- The TODO on that line asks the right question; answer it in the docstring.
*** End Patch
"""
SCRIPT = [
    tool_call("exec_command", {"cmd": "git log -1 --stat; grep -n TODO *.py", "workdir": "shop"}),
    tool_call("exec_command", {"cmd": "python3 -m unittest 2>&1 | tail -8", "workdir": "shop"}),
    custom_tool_call("apply_patch", REVIEW),
    text("One of two tests fails: discounts are divided by 10; see shop/REVIEW.md."),
]


def make_repository(repository: Path) -> None:
    """A small repository with a bug."""
    repository.mkdir()

    def git(*words: str) -> None:
        identity = {
            f"GIT_{who}_{what}": "example"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        command = ["git", "-C", str(repository), *words]
        subprocess.run(command, check=True, env=os.environ | identity)

    git("init", "--quiet")
    for name, content in (("prices.py", PRICES), ("test_prices.py", TESTS)):
        (repository / name).write_text(content)
        git("add", name)
        git("commit", "--quiet", "--message", f"Add {name}")


async def main() -> None:
    make_repository(Path("shop"))
    client = UnixLocalSandboxClient()
    manifest = Manifest(entries={"shop": GitRepo.from_path("shop")})
    result = await Runner.run(
        reviewer,
        "Review the shop, please.",
        run_config=RunConfig(sandbox=SandboxRunConfig(client=client, manifest=manifest)),
    )
    for item in result.new_items:
        if isinstance(item, ToolCallOutputItem):
            print(f"--- a tool said\n{item.output}")
    print(f"--- the answer\n{result.final_output}")

    session = await client.resume(result.sandbox_states["reviewer"])
    async with session:
        review = await session.read("shop/REVIEW.md")
        print(f"--- shop/REVIEW.md, from the saved workspace\n{review.read().decode()}")
    await client.delete(session)


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as directory,
        contextlib.chdir(directory),  # only files below this directory may be copied
        model_or_script(*SCRIPT),
    ):
        asyncio.run(main())
