"""Sandbox agents with other settings: models, compaction, archives, snapshots, events."""

import io
import tarfile
import zipfile
from typing import Any, Literal

from comparison.program import Probe
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


@sandbox_program(commands("true"))
async def sandbox_compaction_policy(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    compaction = b.Compaction(policy=b.StaticCompactionPolicy(threshold=1234))
    return await run(sdk, probe, worker(sdk, capabilities=[compaction, b.Shell()]))


@sandbox_program(commands("true"))
async def sandbox_compaction_for_an_unknown_model(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, model="some-model"))


@sandbox_program(lambda m: [m.text("Before."), m.text("Done.")])
async def sandbox_compacted_input(sdk: Any, probe: Probe) -> Any:
    given = [
        {"role": "user", "content": "Long ago."},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "abc"},
        {"role": "user", "content": probe.input},
    ]
    settings = config(sdk, manifest=box(sdk).Manifest())
    return await sdk.Runner.run(worker(sdk), given, run_config=settings)


@sandbox_program(commands("true"))
async def sandbox_settings_of_the_model(sdk: Any, probe: Probe) -> Any:
    b: Any = box(sdk)

    class Tuned(b.Capability):
        type: Literal["tuned"] = "tuned"

        def sampling_params(self, sampling_params: dict[str, Any]) -> dict[str, Any]:
            probe.note(sorted(sampling_params))
            return {"text": {"verbosity": "low"}, "service_tier": "flex"}

    settings = sdk.ModelSettings(temperature=0.5, extra_args={"safety_identifier": "me"})
    agent = worker(sdk, model_settings=settings, capabilities=[Tuned(), box(sdk).Shell()])
    return await run(sdk, probe, agent)


@sandbox_program(commands("echo over chat"))
async def sandbox_on_chat_completions(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    return await run(sdk, probe, worker(sdk, capabilities=[box(sdk).Shell()]))


@sandbox_program(commands("echo over chat"))
async def sandbox_patches_on_chat_completions(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    capabilities = [box(sdk).Filesystem(), box(sdk).Shell()]
    return await run(sdk, probe, worker(sdk, capabilities=capabilities))


def archive_of(**members: str) -> io.BytesIO:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("UP", ".."))
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    data.seek(0)
    return data


@sandbox_program(lambda m: [m.text("Never asked.")])
async def sandbox_archives(sdk: Any, probe: Probe) -> Any:
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as target:
        target.writestr("z/in.txt", "zipped")
    zipped.seek(0)
    limits = box(sdk).SandboxArchiveLimits(max_members=1)
    async with session_with(sdk) as session:
        await session.extract("got/a.tar", archive_of(x="X", d__y="Y"))
        await session.extract("got/b.zip", zipped)
        probe.note([one[:2] + one[3:] for one in await workspace(session)])
        for archive, options in (
            (archive_of(UP__x="out"), {}),
            (archive_of(a="1", b="2"), {"archive_limits": limits}),
            (io.BytesIO(b"no archive"), {}),
        ):
            try:
                await session.extract("bad/a.tar", archive, **options)
                probe.note("extracted")
            except Exception as error:
                probe.note(type(error).__name__, getattr(error, "op", None))


@sandbox_program(lambda m: [*commands("echo kept > k")(m), *commands("cat k")(m)])
async def sandbox_snapshot_elsewhere(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    stored: dict[str, bytes] = {}

    class Shelf:
        async def upload(self, snapshot_id: str, data: Any) -> None:
            stored[snapshot_id] = data.read()

        async def download(self, snapshot_id: str) -> Any:
            return io.BytesIO(stored[snapshot_id])

        async def exists(self, snapshot_id: str) -> bool:
            return snapshot_id in stored

    dependencies = b.Dependencies()
    dependencies.bind_value("shelf", Shelf())
    client = b.UnixLocalSandboxClient(dependencies=dependencies)
    spec = b.RemoteSnapshotSpec(client_dependency_key="shelf")
    session = await client.create(manifest=b.Manifest(), snapshot=spec)
    async with session:
        first = await run(sdk, probe, session=session)
    await client.delete(session)
    probe.note(len(stored))
    resumed = await client.resume(session.state)
    async with resumed:
        again = [*first.to_input_list(), {"role": "user", "content": "Again."}]
        second = await sdk.Runner.run(worker(sdk), again, run_config=config(sdk, session=resumed))
    await client.delete(resumed)
    return second


@sandbox_program(lambda m: [m.text("Never asked.")])
async def sandbox_events(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    seen: list[Any] = []
    sink = b.CallbackSink(lambda event, session: seen.append(event))
    client = b.UnixLocalSandboxClient(instrumentation=b.Instrumentation(sinks=[sink]))
    session = await client.create(manifest=b.Manifest())
    async with session:
        await session.write("a.txt", io.BytesIO(b"abc"))
        await session.read("a.txt")
        await session.exec("exit 3")
        try:
            await session.read("missing")
        except Exception as error:
            probe.note(type(error).__name__)
        await session.running()
    await client.delete(session)
    wanted = ("start", "write", "read", "exec", "running", "stop", "shutdown")
    for event in seen:
        if event.op in wanted:
            probe.note(event.op, event.phase, getattr(event, "ok", None))
    numbers = [event.seq for event in seen]
    probe.note(numbers == sorted(numbers), {type(event).__name__ for event in seen} and True)


@sandbox_program(lambda m: [*commands("cat notes.txt")(m), *commands("cat notes.txt more.txt")(m)])
async def sandbox_capability_meets_a_resumed_session(sdk: Any, probe: Probe) -> Any:
    b: Any = box(sdk)

    class Adding(b.Capability):
        type: Literal["adding"] = "adding"
        name: str = "notes.txt"

        def process_manifest(self, manifest: Any) -> Any:
            manifest.entries[self.name] = b.File(content=f"in {self.name}\n".encode())
            return manifest

    client = b.UnixLocalSandboxClient()
    session = await client.create(manifest=b.Manifest())
    async with session:
        first_agent = worker(sdk, capabilities=[Adding(), b.Shell()])
        first = await run(sdk, probe, first_agent, session=session)
    again = [*first.to_input_list(), {"role": "user", "content": "Again."}]
    agent = worker(sdk, capabilities=[Adding(), Adding(name="more.txt"), b.Shell()])
    settings = config(sdk, client=client, session_state=session.state)
    second = await sdk.Runner.run(agent, again, run_config=settings)
    await client.delete(session)
    return second


@sandbox_program(lambda m: [m.tool_call("no_such_tool", {}), m.text("Never.")])
async def sandbox_streamed_failure(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk, entries=files(sdk, a="A")) as session:
        result = sdk.Runner.run_streamed(
            worker(sdk), probe.input, run_config=config(sdk, session=session)
        )
        try:
            async for _ in result.stream_events():
                pass
        except Exception as error:
            probe.note(type(error).__name__)
        probe.note(await session.running(), await workspace(session))


@sandbox_program(lambda m: [m.text("Never asked.")])
async def sandbox_client_that_is_none(sdk: Any, probe: Probe) -> Any:
    settings = sdk.RunConfig(sandbox=box(sdk).SandboxRunConfig(client="a client"))
    try:
        await sdk.Runner.run(worker(sdk), probe.input, run_config=settings)
    except Exception as error:
        probe.note("raised", isinstance(error, Exception))
