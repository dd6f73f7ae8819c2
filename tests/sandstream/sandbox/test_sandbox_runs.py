"""Sandbox agents in runs: a real server, real sandboxes, a scripted model over HTTP."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sandstream_bus.wire.messages import CallFinished, CallRequested, RunDone
from sandstream_workspaces.store import WorkspaceStore

from sandstream import Client, RunConfig, Runner, UserError, function_tool
from sandstream._run.process import Process
from sandstream.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Capability, Filesystem, Shell
from sandstream.sandbox.entries import File
from sandstream.sandbox.errors import SandboxError
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, Step, custom_tool_call, text, tool_call, tool_calls

pytestmark = pytest.mark.usefixtures("home")


def play(
    steps: list[Step],
    program: Callable[[ScriptedModel], Awaitable[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    async def main() -> Any:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            return await program(model)

    return asyncio.run(main())


def agent(**more: Any) -> SandboxAgent[Any]:
    manifest = Manifest(entries={"a.txt": File(content=b"hello\n")})
    settings: dict[str, Any] = {"name": "coder", "default_manifest": manifest}
    return SandboxAgent(**(settings | more))


def config(**more: Any) -> RunConfig:
    return RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient(), **more))


def run_command(command: str) -> Step:
    return tool_call("exec_command", {"cmd": command})


def outputs(result: Any) -> list[str]:
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


async def files_of(tree: str) -> dict[str, bytes]:
    store = WorkspaceStore((await Process.of_this_loop()).bus)
    found = {}
    for entry in await store.entries(tree):
        if entry.kind == "file":
            found[entry.path] = b"".join([part async for part in store.read_file(tree, entry.path)])
    return found


def test_commands_patches_and_a_workspace_that_outlives_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+bye\n*** End Patch\n"

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent(), "go", run_config=config())
        assert result.final_output == "done"
        first, second = outputs(result)
        assert first.endswith("Output:\nhello\n")
        assert "a.txt" in second
        state = result.sandbox_states["coder"]
        assert await files_of(state.snapshot_fingerprint) == {"a.txt": b"bye\n"}
        resumed = await Runner.run(agent(), "and?", run_config=config(session_state=state))
        assert outputs(resumed)[0].endswith("Output:\nbye\n")

    steps = [
        run_command("cat a.txt"),
        custom_tool_call("apply_patch", patch),
        text("done"),
        run_command("cat a.txt"),
        text("done"),
    ]
    play(steps, program, monkeypatch)


def test_the_sandbox_is_closed_before_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent(), "go", run_config=config())
        bus = (await Process.of_this_loop()).bus
        events = [it.event for it in await bus.log.read(result.run_id)]  # type: ignore[arg-type]
        kinds = [it.kind for it in events if isinstance(it, CallRequested | CallFinished)]
        assert kinds == ["open", "open", "close", "close"]
        assert isinstance(events[-1], RunDone)

    play([text("done")], program, monkeypatch)


@pytest.mark.parametrize(("policy", "saved"), [("end", 1), ("turn", 2), ("never", 0)])
def test_checkpoint_policies(policy: Any, saved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent(), "go", run_config=config(checkpoint=policy))
        sandbox = result.sandbox_states["coder"].sandbox_id
        events = await (await Process.of_this_loop()).bus.sandboxes.read(sandbox)
        kinds = [type(it.event).__name__ for it in events]
        assert kinds.count("SandboxCheckpointed") == saved
        assert kinds[-1] == ("SandboxDeleted" if policy == "never" else "SandboxStopped")

    steps = [run_command("echo 1 > n"), run_command("echo 2 > n"), text("done")]
    play(steps, program, monkeypatch)


def test_a_snapshot_of_the_callers_own_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def program(model: ScriptedModel) -> None:
        spec = LocalSnapshotSpec(base_path=tmp_path)
        await Runner.run(agent(), "go", run_config=config(snapshot=spec))

    play([run_command("echo new > b.txt"), text("done")], program, monkeypatch)
    (archive,) = tmp_path.glob("*.tar")
    with tarfile.open(archive) as tar:
        names = {member.name.removeprefix("./") for member in tar.getmembers() if member.isfile()}
    assert names == {"a.txt", "b.txt"}


def test_a_session_of_the_callers_own_is_used_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        client = UnixLocalSandboxClient()
        async with await client.create() as session:
            await session.exec("echo mine > mine.txt")
            sandbox = SandboxRunConfig(session=session)
            await Runner.run(agent(), "go", run_config=RunConfig(sandbox=sandbox))
            assert (await session.exec("cat mine.txt")).stdout == b"mine\nand yours\n"
        await client.delete(session)

    play([run_command("echo and yours >> mine.txt"), text("done")], program, monkeypatch)


def test_a_fork_goes_its_own_way() -> None:
    async def main() -> None:
        client = UnixLocalSandboxClient()
        async with await client.create() as session:
            await session.exec("echo one > f")
            async with await session.fork() as other:
                await other.exec("echo two >> f")
                assert (await other.exec("cat f")).stdout == b"one\ntwo\n"
            assert (await session.exec("cat f")).stdout == b"one\n"
            await client.delete(other)
        await client.delete(session)

    asyncio.run(main())


class Counter(Capability):
    """A capability with a tool of its own that works on the live session."""

    type: str = "counter"

    def tools(self) -> list[Any]:
        session = self.session

        @function_tool
        async def count_lines(path: str) -> str:
            """Count."""
            done = await session.exec("wc", "-l", path, shell=False)
            return str(done.stdout.decode())

        return [count_lines]

    def process_manifest(self, manifest: Manifest) -> Manifest:
        entries = {**manifest.entries, "lines.txt": File(content=b"1\n2\n3\n")}
        return manifest.model_copy(update={"entries": entries})

    async def instructions(self, manifest: Manifest) -> str | None:
        return f"Count in {manifest.root}."


def test_a_capability_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        own = agent(capabilities=[Filesystem(), Shell(), Counter()], instructions="Be brief.")
        result = await Runner.run(own, "go", run_config=config())
        assert outputs(result) == ["3 lines.txt\n"]
        assert own.tools == []  # the agent itself is as it was
        body: Any = model.requests[0]
        assert "Count in /workspace." in body["instructions"]
        assert "# Agent instructions\n\nBe brief." in body["instructions"]
        names = [tool["name"] for tool in body["tools"]]
        assert names == ["view_image", "apply_patch", "exec_command", "write_stdin", "count_lines"]

    play([tool_call("count_lines", {"path": "lines.txt"}), text("done")], program, monkeypatch)


def test_one_agent_in_many_runs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        shared = agent()
        results = await asyncio.gather(
            *(Runner.run(shared, f"go {n}", run_config=config()) for n in range(4))
        )
        assert {it.final_output for it in results} == {"done"}
        ids = {it.sandbox_states["coder"].sandbox_id for it in results}
        assert len(ids) == 4

    steps = [tool_calls(("exec_command", {"cmd": "ls"})).times(4).when(_is_first)]
    play([*steps, text("done").forever()], program, monkeypatch)


def _is_first(request: Any) -> bool:
    return "function_call_output" not in str(request.body)


def test_a_plain_run_config_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(UserError, match="works in a sandbox"):
            await Runner.run(agent(), "go")
        with pytest.raises(ValueError, match="needs a client"):
            await Runner.run(agent(), "go", run_config=RunConfig(sandbox=SandboxRunConfig()))
        with pytest.raises(ValueError, match="user"):
            await Runner.run(agent(run_as="bob"), "go", run_config=config())

    asyncio.run(main())


def test_a_missing_local_file_is_said_before_anything_happens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from sandstream.sandbox import LocalFile

    monkeypatch.chdir(tmp_path)

    async def program(model: ScriptedModel) -> None:
        manifest = Manifest(entries={"x": LocalFile(src=Path("nowhere.txt"))})
        before = len(await (await Process.of_this_loop()).bus.sandboxes.names())
        with pytest.raises(SandboxError, match=r"nowhere\.txt"):
            await Runner.run(agent(), "go", run_config=config(manifest=manifest))
        assert len(await (await Process.of_this_loop()).bus.sandboxes.names()) == before

    play([], program, monkeypatch)


def test_a_missing_secret_ends_the_run_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandstream.sandbox.manifest import Environment, SecretRef

    async def program(model: ScriptedModel) -> None:
        manifest = Manifest(environment=Environment(value={"TOKEN": SecretRef(name="gh")}))
        with pytest.raises(SandboxError, match="SANDSTREAM_SECRET_gh"):
            await Runner.run(agent(), "go", run_config=config(manifest=manifest))
        monkeypatch.setenv("SANDSTREAM_SECRET_gh", "s3cret")
        result = await Runner.run(agent(), "go", run_config=config(manifest=manifest))
        assert outputs(result)[0].endswith("6\n")
        bus = (await Process.of_this_loop()).bus
        for event in await bus.log.read(result.run_id):  # type: ignore[arg-type]
            assert b"s3cret" not in event.stored.data

    play([run_command("printf %s $TOKEN | wc -c"), text("done")], program, monkeypatch)


def test_cancel_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        streamed = Runner.run_streamed(agent(), "go", run_config=config())
        bus = (await Process.of_this_loop()).bus
        async for event in bus.follow.run(streamed.run_id):  # type: ignore[arg-type]
            called = getattr(event, "event", None)
            if isinstance(called, CallRequested) and called.name == "exec_command":
                break
        async with await Client.connect() as client:
            await client.cancel(streamed.run_id)
        async for _ in streamed.stream_events():
            pass
        # closing comes after the end of a cancelled run
        for _ in range(200):
            names = [it for it in await bus.sandboxes.names() if it.startswith(streamed.run_id)]
            events = await bus.sandboxes.read(names[0])
            if type(events[-1].event).__name__ == "SandboxStopped":
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the sandbox of a cancelled run was not closed")

    play([run_command("sleep 1000")], program, monkeypatch)


def test_a_command_that_nobody_waits_for_is_ended() -> None:
    async def main() -> None:
        client = UnixLocalSandboxClient()
        async with await client.create() as session:
            waiting = asyncio.ensure_future(session.exec("echo $$ > pid; exec sleep 1000"))
            while not (await session.exec("test -s pid")).ok():
                await asyncio.sleep(0.02)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            while (await session.exec("kill -0 $(cat pid)")).ok():
                await asyncio.sleep(0.02)
        await client.delete(session)

    asyncio.run(main())


def test_a_tool_with_code_of_the_users_own_runs_in_the_users_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def configure(tools: Any) -> None:
        original = tools.exec_command.on_invoke_tool

        async def shout(context: Any, arguments: str) -> str:
            return str(await original(context, arguments)).upper()

        tools.exec_command.on_invoke_tool = shout

    async def program(model: ScriptedModel) -> None:
        own = agent(capabilities=[Shell(configure_tools=configure)])
        result = await Runner.run(own, "go", run_config=config())
        assert outputs(result)[0].endswith("OUTPUT:\nHELLO\n")

    play([run_command("cat a.txt"), text("done")], program, monkeypatch)


def test_the_next_program_of_the_machine_finds_what_the_last_one_left() -> None:
    """Each program has a node of its own; a box that its program left goes on in place."""

    async def begin() -> tuple[dict[str, object], str]:
        client = UnixLocalSandboxClient()
        session = await client.create()
        await session.start()
        assert (await session.exec("sleep 1000 & echo $! > pid")).ok()
        node = (await session.remote.record()).node
        return client.serialize_session_state(session.state), node

    async def go_on(payload: dict[str, object], node: str) -> None:
        client = UnixLocalSandboxClient()
        session = await client.resume(client.deserialize_session_state(payload))
        await session.start()
        assert (await session.exec("kill -0 $(cat pid)")).ok()
        record = await session.remote.record()
        assert record.generation == 1
        assert record.node != node
        await client.delete(session)

    asyncio.run(go_on(*asyncio.run(begin())))
