"""Sandbox sessions of the program's own, resumed ones, snapshots, and runs that cannot work."""

import io
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from comparison.program import MODEL, Probe
from comparison.sandboxes import (
    box,
    commands,
    config,
    files,
    run,
    sandbox_program,
    session_with,
    worker,
    workspace,
)


def failure(error: BaseException) -> list[Any]:
    code = getattr(error, "error_code", None)
    return [type(error).__name__, getattr(code, "value", code), getattr(error, "op", None)]


@sandbox_program(commands("cat before.txt; echo after > after.txt"))
async def sandbox_session_of_the_caller(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk, entries=files(sdk, before_dot_txt="before\n")) as session:
        result = await run(sdk, probe, session=session)
        probe.note("running", await session.running())
        probe.note((await session.read("after.txt")).read())
        probe.note(await workspace(session))
    return result


@sandbox_program(commands("pwd; ls"))
async def sandbox_session_not_started(sdk: Any, probe: Probe) -> Any:
    client = box(sdk).UnixLocalSandboxClient()
    session = await client.create(manifest=box(sdk).Manifest(entries=files(sdk, a="A")))
    result = await run(sdk, probe, session=session)
    probe.note("running", await session.running())
    await session.aclose()
    await client.delete(session)
    return result


@sandbox_program(
    lambda m: [*commands("echo 1 >> log; cat log")(m), *commands("echo 2 >> log; cat log")(m)]
)
async def sandbox_two_runs_in_one_session(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk) as session:
        first = await run(sdk, probe, session=session)
        again = [*first.to_input_list(), {"role": "user", "content": "And again."}]
        second = await sdk.Runner.run(worker(sdk), again, run_config=config(sdk, session=session))
    return first, second


@sandbox_program(lambda m: [*commands("echo 1 >> log; cat log")(m), *commands("ls | wc -l")(m)])
async def sandbox_two_runs_with_sandboxes_of_their_own(sdk: Any, probe: Probe) -> Any:
    first = await run(sdk, probe)
    again = [*first.to_input_list(), {"role": "user", "content": "And again."}]
    return first, await sdk.Runner.run(worker(sdk), again, run_config=config(sdk))


@sandbox_program(lambda m: [*commands("echo kept > work.txt")(m), *commands("cat work.txt")(m)])
async def sandbox_resumed_from_state(sdk: Any, probe: Probe) -> Any:
    client = box(sdk).UnixLocalSandboxClient()
    session = await client.create(manifest=box(sdk).Manifest(entries=files(sdk, a="A")))
    async with session:
        first = await run(sdk, probe, session=session)
        frozen = client.serialize_session_state(session.state)
    probe.note(frozen["type"], frozen["workspace_root_ready"], "manifest" in frozen)
    state = client.deserialize_session_state(frozen)
    again = [*first.to_input_list(), {"role": "user", "content": "And again."}]
    settings = config(sdk, client=client, session_state=state)
    return first, await sdk.Runner.run(worker(sdk), again, run_config=settings)


@sandbox_program(lambda m: [*commands("echo kept > work.txt")(m), *commands("cat a work.txt")(m)])
async def sandbox_session_resumed(sdk: Any, probe: Probe) -> Any:
    client = box(sdk).UnixLocalSandboxClient()
    snapshot = box(sdk).LocalSnapshotSpec(base_path=probe.folder)
    session = await client.create(
        manifest=box(sdk).Manifest(entries=files(sdk, a="A\n")), snapshot=snapshot
    )
    async with session:
        first = await run(sdk, probe, session=session)
    await client.delete(session)
    resumed = await client.resume(session.state)
    again = [*first.to_input_list(), {"role": "user", "content": "And again."}]
    async with resumed:
        second = await sdk.Runner.run(worker(sdk), again, run_config=config(sdk, session=resumed))
        probe.note(await workspace(resumed))
    await client.delete(resumed)
    return first, second


@sandbox_program(
    lambda m: [*commands("echo new > work.txt; rm a")(m), *commands("ls; cat work.txt")(m)]
)
async def sandbox_snapshot_seeds_the_next_run(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    spec = b.LocalSnapshotSpec(base_path=probe.folder)
    manifest = b.Manifest(entries=files(sdk, a="A\n"))
    first = await run(sdk, probe, manifest=manifest, snapshot=spec)
    saved = list(probe.folder.glob("*.tar"))
    probe.note("archives", len(saved))
    snapshot = b.LocalSnapshot(id=saved[0].stem, base_path=probe.folder)
    again = [*first.to_input_list(), {"role": "user", "content": "And again."}]
    settings = config(sdk, manifest=manifest, snapshot=snapshot)
    return first, await sdk.Runner.run(worker(sdk), again, run_config=settings)


@sandbox_program(commands("cat keep passing; true"))
async def sandbox_ephemeral_entries(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    entries = {"keep": b.File(content=b"k\n"), "passing": b.File(content=b"p\n", ephemeral=True)}
    client = b.UnixLocalSandboxClient()
    spec = b.LocalSnapshotSpec(base_path=probe.folder)
    session = await client.create(manifest=b.Manifest(entries=entries), snapshot=spec)
    async with session:
        result = await run(sdk, probe, session=session)
        probe.note(await workspace(session))
    await client.delete(session)
    resumed = await client.resume(session.state)
    async with resumed:
        probe.note((await resumed.exec("cat keep passing")).stdout)
    await client.delete(resumed)
    return result


@sandbox_program(lambda m: [m.text("Done.")])
async def sandbox_session_files(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk) as session:
        await session.write("deep/down/a.txt", io.BytesIO(b"one"))
        await session.mkdir("made/here", parents=True)
        await session.write("b.txt", io.BytesIO(b"two"))
        probe.note(sorted(entry.path.rsplit("/", 1)[-1] for entry in await session.ls(".")))
        probe.note((await session.read("deep/down/a.txt")).read())
        probe.note(await session.read_bounded("b.txt", max_bytes=10))
        await session.mv("b.txt", "made/c.txt")
        probe.note(await session.same_file("made/c.txt", "made/../made/c.txt"))
        probe.note(await session.same_file(left="made/c.txt", right="deep/down/a.txt"))
        await session.exec("ln deep/down/a.txt hard; ln -s hard soft")
        probe.note(await session.same_file("hard", "deep/down/a.txt"))
        probe.note(await session.same_file("soft", "hard"))
        probe.note(await session.same_file("soft", "hard", follow_symlinks=False))
        await session.rm("deep", recursive=True)
        probe.note(await workspace(session))


@sandbox_program(lambda m: [m.text("Done.")])
async def sandbox_session_failures(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk, entries=files(sdk, a_dot_txt="A")) as session:
        attempts: dict[str, Callable[[], Awaitable[Any]]] = {
            "read what is missing": lambda: session.read("missing.txt"),
            "read outside": lambda: session.read("../x"),
            "read absolute": lambda: session.read("/etc/hostname"),
            "write text": lambda: session.write("b.txt", io.StringIO("text")),
            "write outside": lambda: session.write("../x", io.BytesIO(b"x")),
            "remove what is missing": lambda: session.rm("missing"),
            "list what is missing": lambda: session.ls("missing"),
            "make where a file is": lambda: session.mkdir("a.txt/b"),
            "an archive of what": lambda: session.extract("a.zzz", io.BytesIO(b"")),
            "a port": lambda: session.resolve_exposed_port(8080),
            "too slow": lambda: session.exec("sleep 20", timeout=0.3),
            "nobody's stdin": lambda: session.pty_write_stdin(session_id=4321, chars="x"),
            "as a user": lambda: session.exec("id", user="nobody-here"),
        }
        for what, attempt in attempts.items():
            try:
                probe.note(what, type(await attempt()).__name__)
            except Exception as error:
                probe.note(what, *failure(error))


@sandbox_program(lambda m: [m.text("Done.")])
async def sandbox_session_commands(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk) as session:
        tries: list[tuple[tuple[str, ...], dict[str, Any]]] = [
            (("echo out; echo err >&2; exit 4",), {}),
            (("echo", "a b", "$HOME"), {"shell": False}),
            (("echo", "a   b"), {}),
            (("echo $0",), {"shell": ["bash", "-c"]}),
            (("printf 'x%.0s' $(seq 1 70000) | wc -c",), {"timeout": 10}),
        ]
        for command, options in tries:
            done = await session.exec(*command, **options)
            probe.note(done.exit_code, done.ok(), done.stdout, done.stderr)
        update = await session.pty_exec_start("read x; echo got $x", tty=True, yield_time_s=0.3)
        probe.note(update.process_id is not None, update.exit_code, update.output)
        update = await session.pty_write_stdin(
            session_id=update.process_id, chars="it\n", yield_time_s=5
        )
        probe.note(update.process_id, update.exit_code, update.output)
        probe.note(session.supports_pty())


@sandbox_program(lambda m: [m.text("Done.")])
async def sandbox_session_patches(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    async with session_with(sdk, entries=files(sdk, a_dot_txt="one\ntwo\n")) as session:
        operation = b.ApplyPatchOperation
        made = [
            operation(type="update_file", path="a.txt", diff="@@\n one\n-two\n+TWO"),
            operation(type="create_file", path="b.txt", diff="+new"),
        ]
        probe.note(await session.apply_patch(made))
        for wrong in (
            operation(type="update_file", path="none.txt", diff="@@\n-a\n+b"),
            operation(type="update_file", path="a.txt", diff="@@\n-three\n+3"),
            operation(type="delete_file", path="../a.txt"),
        ):
            try:
                probe.note(await session.apply_patch(wrong))
            except Exception as error:
                probe.note(*failure(error))
        probe.note(await workspace(session))


# --- runs that cannot work ------------------------------------------------------------------------


@sandbox_program(lambda m: [m.text("Never.")])
async def sandbox_config_is_missing(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(worker(sdk), probe.input)


@sandbox_program(lambda m: [m.text("Never.")])
async def sandbox_client_is_missing(sdk: Any, probe: Probe) -> Any:
    settings = sdk.RunConfig(sandbox=box(sdk).SandboxRunConfig())
    return await sdk.Runner.run(worker(sdk), probe.input, run_config=settings)


@sandbox_program(lambda m: [m.text("Never.")])
async def sandbox_users_of_a_local_one(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    return await run(sdk, probe, manifest=b.Manifest(users=[b.User(name="ada")]))


@sandbox_program(lambda m: [m.text("Never.")])
async def sandbox_run_as_in_a_local_one(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, run_as="ada"), manifest=box(sdk).Manifest())


@sandbox_program(lambda m: [m.text("Never.")])
async def sandbox_run_as_in_a_session(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk) as session:
        return await run(sdk, probe, worker(sdk, run_as="ada"), session=session)


@sandbox_program(lambda m: [m.text("Never.")])
async def sandbox_path_that_escapes(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, manifest=box(sdk).Manifest(entries={"../x": box(sdk).Dir()}))


@sandbox_program(commands("true"))
async def sandbox_state_of_another_backend(sdk: Any, probe: Probe) -> Any:
    b: Any = box(sdk)

    class OtherState(b.SandboxSessionState):
        type: Literal["comparison_other"] = "comparison_other"

    other = OtherState(manifest=b.Manifest(), snapshot=b.NoopSnapshot(id="x"))
    return await run(sdk, probe, client=b.UnixLocalSandboxClient(), session_state=other)


def changing(sdk: Any, change: Any) -> Any:
    b: Any = box(sdk)

    class Changing(b.Capability):
        type: Literal["changing"] = "changing"

        def process_manifest(self, manifest: Any) -> Any:
            return change(manifest)

    return worker(sdk, capabilities=[Changing()])


@sandbox_program(lambda m: [m.text("Done.")])
async def sandbox_changes_of_a_running_session(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    environment = b.Environment(value={"A": "1"})
    changes: dict[str, Any] = {
        "environment": lambda it: it.model_copy(update={"environment": environment}),
        "root": lambda it: it.model_copy(update={"root": "/elsewhere"}),
        "removed": lambda it: it.model_copy(update={"entries": {}}),
        "another kind": lambda it: it.model_copy(update={"entries": {"a": b.Dir()}}),
        "other content": lambda it: it.model_copy(update={"entries": files(sdk, a="B")}),
        "more": lambda it: it.model_copy(update={"entries": {**it.entries, **files(sdk, b="B")}}),
    }
    for what, change in changes.items():
        async with session_with(sdk, entries=files(sdk, a="A")) as session:
            try:
                await run(sdk, probe, changing(sdk, change), session=session)
                probe.note(what, await workspace(session))
            except Exception as error:
                probe.note(what, type(error).__name__)


@sandbox_program(lambda m: [m.text("Never.")])
async def sandbox_working_directory_missing_in_a_session(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk) as session:
        return await run(sdk, probe, session=session, cwd="nowhere")


@sandbox_program(lambda m: [m.text("Never.")])
async def sandbox_wrong_arguments(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    attempts: dict[str, Any] = {
        "manifest": lambda: b.SandboxAgent(name="A", default_manifest=7),
        "local source in a dict": lambda: b.SandboxAgent(
            name="A", default_manifest={"entries": {"a": {"type": "local_file", "src": "x"}}}
        ),
        "run_as": lambda: b.SandboxAgent(name="A", run_as=7),
        "base": lambda: b.SandboxAgent(name="A", base_instructions=7),
        "concurrency": lambda: b.SandboxRunConfig(concurrency_limits={"manifest_entries": 0}),
        "unknown limit": lambda: b.SandboxRunConfig(concurrency_limits={"unknown": 1}),
        "archive": lambda: b.SandboxArchiveLimits(max_members=0),
        "both environments": lambda: b.UnixLocalSandboxClient(host_environment_allowlist="PATH"),
        "permissions": lambda: b.Permissions.from_str("nonsense"),
        "skills": lambda: b.Skills(),
        "grant": lambda: b.SandboxPathGrant(path="/"),
        "options": lambda: b.UnixLocalSandboxClientOptions((1,), (2,), 3, 4, 5, 6),
    }
    for what, attempt in attempts.items():
        try:
            attempt()
            probe.note(what, "made")
        except Exception as error:
            probe.note(what, type(error).__name__)


@sandbox_program(
    lambda m: [m.tool_call("exec_command", {"cmd": "cat n.json"}), m.structured({"n": 3})]
)
async def sandbox_output_type(sdk: Any, probe: Probe) -> Any:
    from pydantic import BaseModel

    class Count(BaseModel):
        n: int

    manifest = box(sdk).Manifest(entries=files(sdk, n_dot_json='{"n": 3}'))
    return await run(sdk, probe, worker(sdk, output_type=Count, default_manifest=manifest))


@sandbox_program(commands("true", "true", "true"))
async def sandbox_too_many_turns(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(worker(sdk), probe.input, max_turns=2, run_config=config(sdk))


@sandbox_program(lambda m: [m.tool_call("no_such_tool", {}), m.text("Never.")])
async def sandbox_unknown_tool(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@sandbox_program(commands("true"))
async def sandbox_config_for_a_plain_agent(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Plain", model=MODEL, instructions="Talk.")
    try:
        return await sdk.Runner.run(agent, probe.input, run_config=config(sdk))
    except Exception as error:
        probe.note(type(error).__name__)
        return None


@sandbox_program(commands("echo one"))
async def sandbox_agent_in_two_runs_at_once(sdk: Any, probe: Probe) -> Any:
    import asyncio

    agent = worker(sdk)
    both = await asyncio.gather(
        run(sdk, probe, agent), run(sdk, probe, agent), return_exceptions=True
    )
    probe.note(sorted(type(one).__name__ for one in both))


@sandbox_program(commands("echo one"))
async def sandbox_result_shows_the_agent(sdk: Any, probe: Probe) -> Any:
    agent = worker(sdk)
    result = await run(sdk, probe, agent)
    probe.note(result.last_agent is agent, [item.agent is agent for item in result.new_items])
    probe.note(len(agent.tools), agent.instructions, len(agent.capabilities))
    probe.note([capability.session for capability in agent.capabilities])


@sandbox_program(lambda m: [m.text("Never asked.")])
async def sandbox_state_of_a_file_of_bytes(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    client = b.UnixLocalSandboxClient()
    manifest = b.Manifest(entries={"data.bin": b.File(content=b"\xff\xfe\x00")})
    async with await client.create(manifest=manifest) as session:
        frozen = json.dumps(client.serialize_session_state(session.state))
    await client.delete(session)
    state = client.deserialize_session_state(json.loads(frozen))
    return state.manifest.entries["data.bin"].content
