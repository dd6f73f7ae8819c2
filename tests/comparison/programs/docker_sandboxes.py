"""Sandboxes in containers: each SDK's own Docker client, on the same engine and image."""

import contextlib
import io
import os
from collections.abc import AsyncIterator
from typing import Any

from comparison.program import Probe
from comparison.sandboxes import (
    box,
    commands,
    config,
    files,
    patches,
    run,
    sandbox_program,
    worker,
    workspace,
)

IMAGE = os.environ.get("COMPARISON_IMAGE", "")


@contextlib.contextmanager
def engine() -> Any:
    import docker

    client = docker.from_env()
    try:
        yield client
    finally:
        client.close()


@contextlib.asynccontextmanager
async def docker_session(sdk: Any, manifest: Any = None, **options: Any) -> AsyncIterator[Any]:
    """A running session in a container, removed at the end."""
    with engine() as connection:
        client = box(sdk).DockerSandboxClient(connection)
        session = await client.create(
            manifest=manifest or box(sdk).Manifest(),
            options=box(sdk).DockerSandboxClientOptions(IMAGE, **options),
        )
        try:
            async with session:
                yield session
        finally:
            await client.delete(session)


@sandbox_program(commands("pwd; cat before.txt; echo after > after.txt", "cat after.txt; exit 3"))
async def docker_commands(sdk: Any, probe: Probe) -> Any:
    manifest = box(sdk).Manifest(entries=files(sdk, before_dot_txt="before\n"))
    async with docker_session(sdk, manifest) as session:
        result = await run(sdk, probe, session=session)
        probe.note(await workspace(session))
    return result


@sandbox_program(commands("ls; cat docs/a.md"))
async def docker_sandbox_of_the_run(sdk: Any, probe: Probe) -> Any:
    manifest = box(sdk).Manifest(entries=files(sdk, docs__a_dot_md="# A\n"))
    with engine() as connection:
        options = box(sdk).DockerSandboxClientOptions(image=IMAGE, network_mode="none")
        client = box(sdk).DockerSandboxClient(connection)
        return await run(sdk, probe, client=client, options=options, manifest=manifest)


@sandbox_program(
    patches(
        "*** Begin Patch\n*** Add File: new/b.txt\n+one\n*** Update File: a.txt\n@@\n-old\n+new\n"
        "*** End Patch\n"
    )
)
async def docker_patch(sdk: Any, probe: Probe) -> Any:
    manifest = box(sdk).Manifest(entries=files(sdk, a_dot_txt="old\n"))
    async with docker_session(sdk, manifest) as session:
        result = await run(sdk, probe, session=session)
        probe.note(await workspace(session))
    return result


@sandbox_program(lambda m: [])
async def docker_session_methods(sdk: Any, probe: Probe) -> Any:
    async with docker_session(sdk) as session:
        for command in ("echo out; echo err >&2", "exit 7", "cat missing"):
            done = await session.exec(command)
            probe.note(done.stdout, done.exit_code, bool(done.stderr))
        done = await session.exec("printf", "%s", "a b", shell=False)
        probe.note(done.stdout, done.exit_code)
        await session.write("in/x.bin", io.BytesIO(bytes(range(256))))
        probe.note((await session.read("in/x.bin")).read() == bytes(range(256)))
        await session.mkdir("in/deep/er", parents=True)
        probe.note(sorted(it.path for it in await session.ls("in")))
        await session.rm("in/deep", recursive=True)
        probe.note(await workspace(session), await session.running())


@sandbox_program(lambda m: [*commands("echo kept > work.txt")(m), *commands("cat a work.txt")(m)])
async def docker_session_resumed(sdk: Any, probe: Probe) -> Any:
    with engine() as connection:
        client = box(sdk).DockerSandboxClient(connection)
        session = await client.create(
            manifest=box(sdk).Manifest(entries=files(sdk, a="A\n")),
            options=box(sdk).DockerSandboxClientOptions(IMAGE, labels={"team": "blue"}),
        )
        async with session:
            first = await run(sdk, probe, session=session)
        frozen = client.serialize_session_state(session.state)
        probe.note(frozen["type"], frozen["image"], frozen["labels"], frozen["network_mode"])
        resumed = await client.resume(client.deserialize_session_state(frozen))
        try:
            async with resumed:
                again = [*first.to_input_list(), {"role": "user", "content": "And again."}]
                settings = config(sdk, session=resumed)
                second = await sdk.Runner.run(worker(sdk), again, run_config=settings)
                probe.note(await workspace(resumed))
        finally:
            await client.delete(resumed)
    return first, second


@sandbox_program(lambda m: [])
async def docker_options_that_cannot_work(sdk: Any, probe: Probe) -> Any:
    options = box(sdk).DockerSandboxClientOptions
    for given in (
        {"exposed_ports": (80,), "network_mode": "none"},
        {"network_mode": "host"},
        {"labels": {"a": 1}},
    ):
        try:
            options(IMAGE, **given)
        except ValueError as error:
            probe.note(type(error).__name__)
    probe.note(options(IMAGE, (80,), labels={"a": "b"}).model_dump()["exposed_ports"])


@sandbox_program(lambda m: [])
async def docker_ports(sdk: Any, probe: Probe) -> Any:
    async with docker_session(sdk, exposed_ports=(8000,)) as session:
        endpoint = await session.resolve_exposed_port(8000)
        probe.note(endpoint.host, endpoint.tls, endpoint.port > 1023)
        try:
            await session.resolve_exposed_port(9000)
        except Exception as error:
            context: Any = error
            probe.note(type(error).__name__, context.context["reason"])
