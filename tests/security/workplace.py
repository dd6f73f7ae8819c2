"""A bigger installation for ``test_roles_at_work``: two pools of harnesses, one user with two
workers, an actor of one's own, and a program that keeps workspaces.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from security.guarded import Guarded, Person, guarded

from sandstream.testing import Conversation, error, script_for, text, tool_call

TEAM = '''
from sandstream import Agent, DeployedAgent, function_tool
from sandstream.sandbox import SandboxAgent
from sandstream.sandbox.capabilities import Shell

@function_tool(needs_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"

@function_tool
def fetch_all() -> str:
    """More than a message holds."""
    return "all of it " * 30_000

teller = Agent(name="teller", model="gpt-5", tools=[pay, fetch_all])
ask_teller = teller.as_tool("ask_teller", "Ask the teller.")
boss = Agent(
    name="boss", model="gpt-5", tools=[ask_teller], handoffs=[DeployedAgent(name="night")]
)
foreman = SandboxAgent(
    name="foreman", model="gpt-5", capabilities=[Shell()], tools=[ask_teller]
)
'''
NIGHT = '''
from sandstream import Agent, function_tool

@function_tool
def look_around() -> str:
    """Look."""
    return "it is dark"

night = Agent(name="night", model="gpt-5", tools=[look_around])
'''
RISER = """
from sandstream import Agent

riser = Agent(name="riser", model="gpt-5")
"""
WATCHER = """
import asyncio
from sandstream import Actor, Client
from sandstream.events import RunDone

watcher = Actor("watcher")

@watcher.on(RunDone)
async def note(done, received):
    events = await received.bus.log.read(received.run)
    with open("watched", "a") as file:
        file.write(f"{received.run} {done.status} {events[0].subject}\\n")

async def main():
    async with await Client.connect() as client:
        await watcher.start(client.bus)
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
KEEPER = """
import asyncio, json
from sandstream import RunConfig, Runner
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient

agent = SandboxAgent(name="keeper", model="gpt-5")

async def main():
    client = UnixLocalSandboxClient()
    session = await client.create()
    async with session:
        await session.exec("echo first > note")
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    fork = await client.create(snapshot=session.state.snapshot)
    async with fork:
        await fork.exec("echo second >> note")
        print((await fork.read("note")).read().split())
    resumed = await client.resume(state)
    async with resumed:
        print((await resumed.read("note")).read().split())
    for each in (fork, resumed):
        await client.delete(each)
    kept = RunConfig(sandbox=SandboxRunConfig(client=client, checkpoint="turn"))
    made = await Runner.run(agent, "keep, please", run_config=kept)
    state = made.sandbox_states["keeper"]
    again = RunConfig(sandbox=SandboxRunConfig(client=client, session_state=state))
    print((await Runner.run(agent, "find, please", run_config=again)).final_output)

asyncio.run(main())
"""
USERS = (
    "night=harness:night",
    "team=worker:team,worker:night",
    "gone=sandbox:local",
    "alice=submit,follow,approve,cancel,retry,input,consolidate,session",
    "carol=submit,follow,approve,cancel,retry,input",
    "dora=submit,follow",
    "erik=submit",
    "console=console",
)


def conversations() -> list[Conversation]:
    """What the model says, by how a run begins."""
    return [
        script_for("limited, please", [error(429, retry_after=5.5), text("At last.")]),
        script_for("in time, please", [tool_call("pay", {"euros": 8}), text("Too late.")]),
        script_for("talk, please", [text("First."), text("Second.")]),
        script_for("luck, please", [error(400), text("The second time.")]),
        script_for(
            "delegate, please",
            [tool_call("ask_teller", {"input": "count, please"}), text("Delegated.")],
        ),
        script_for("count, please", [text("Three.")]),
        script_for(
            "at night, please",
            [tool_call("transfer_to_night"), tool_call("look_around"), text("Dark.")],
        ),
        script_for("everything, please", [tool_call("fetch_all"), text("Fetched.")]),
        script_for("a long story, please", [text("Long indeed.")]),
        script_for("hold, please", [tool_call("pay", {"euros": 9})]),
        script_for(
            "stuck, please",
            [
                tool_call("exec_command", {"cmd": "echo begun > made"}),
                tool_call("ask_teller", {"input": "hold, please"}),
            ],
        ),
        script_for("go on, please", [text("Going on.")]),
        script_for("desk, please", [tool_call("pay", {"euros": 3}), text("The desk has paid.")]),
        script_for(
            "keep, please", [tool_call("exec_command", {"cmd": "echo a > b"}), text("Kept.")]
        ),
        script_for("find, please", [tool_call("exec_command", {"cmd": "cat b"}), text("Found.")]),
        script_for("up, please", [text("It is up.")]),
    ]


@contextmanager
def workplace(directory: Path) -> Iterator[Guarded]:
    """Everybody is at work."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {"riser": RISER, "team": TEAM, "night": NIGHT, "watcher": WATCHER, "keeper": KEEPER}
    for name, content in files.items():
        (directory / f"{name}.py").write_text(content)
    with guarded(directory, *USERS, conversations=conversations()) as world:
        world.start("night", "actor", "harness", "--pool", "night")
        world.start("team", "worker", "team.py")
        world.start("team", "worker", "night.py", "--harness-pool", "night")
        world.start_python("watcher", "watcher.py")
        yield world


def as_person(world: Guarded, user: str, work: Callable[[Person], Awaitable[Any]]) -> Any:
    """Something that a user does with a plain NATS client."""

    async def main() -> Any:
        connection = await world.connect(user)
        try:
            return await work(Person(connection, user))
        finally:
            await connection.close()

    return asyncio.run(main())


async def publish_junk(admin: Person, subject: str, body: str = "junk") -> int:
    """What no actor can handle, as if one of ours had written it; its place."""
    headers = {"Nats-Msg-Id": f"junk:{subject}"}
    ack = await admin.connection.request(subject, body.encode(), timeout=10, headers=headers)
    found = json.loads(ack.data)
    assert "seq" in found, found
    return int(found["seq"])
