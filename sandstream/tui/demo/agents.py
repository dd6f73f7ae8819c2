"""The agents of the demo, served by ``sandstream worker``."""

from __future__ import annotations

import asyncio

from sandstream import Agent, function_tool
from sandstream.sandbox import File, Manifest, SandboxAgent

_SHOP = b"""\
def total(prices):
    return sum(prices) - 1


def test_total():
    assert total([1, 2, 3]) == 6


if __name__ == "__main__":
    test_total()
    print("1 test passed")
"""


@function_tool(needs_approval=True)
async def deploy(target: str) -> str:
    """Put the site online. People notice this."""
    await asyncio.sleep(0.5)
    return f"deployed to {target}"


@function_tool
async def search(topic: str) -> str:
    """Look something up."""
    await asyncio.sleep(2)
    return f"three sources about {topic}"


coder = SandboxAgent(
    name="coder",
    instructions="You work on the shop in your workspace, with commands and patches.",
    model="demo",
    tools=[deploy],
    default_manifest=Manifest(
        entries={
            "shop.py": File(content=_SHOP),
            "README.md": File(content=b"# Shop\n\nA small shop.\n"),
        }
    ),
)
publisher = SandboxAgent(
    name="publisher",
    instructions="You publish the site, after a person agrees.",
    model="demo",
    tools=[deploy],
)
researcher = Agent(
    name="researcher", instructions="You look things up.", model="demo", tools=[search]
)
editor = Agent(
    name="editor",
    instructions="You write reports; a researcher helps you.",
    model="demo",
    tools=[researcher.as_tool("research", "Research a topic.")],
)
