"""The patterns of the public guides to sandbox agents, as programs of our own."""

import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Literal

from comparison.program import MODEL, Probe
from comparison.sandboxes import (
    box,
    commands,
    config,
    files,
    run,
    run_and_look,
    sandbox_program,
    session_with,
    worker,
    workspace,
)


@sandbox_program(commands("cat brief.md risks.md"))
async def sandbox_guide_first_agent(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    manifest = b.Manifest(
        entries={
            "brief.md": b.File(content=b"# Southwind\n- Renewal: in spring.\n"),
            "risks.md": b.File(content=b"# Risks\n- The contract is not signed.\n"),
        }
    )
    agent = b.SandboxAgent(
        name="Analyst",
        model=MODEL,
        instructions="Read the workspace first. Name the files that support what you say.",
        default_manifest=manifest,
        capabilities=[b.Shell()],
    )
    settings = sdk.RunConfig(sandbox=b.SandboxRunConfig(client=b.UnixLocalSandboxClient()))
    return await sdk.Runner.run(agent, probe.input, run_config=settings)


@sandbox_program(
    lambda m: [
        *commands("cut -d, -f2 data/sales.csv | tail -n +2 | paste -sd+ | tr -d '\\n'")(m),
        *commands("cat data/sales.csv | wc -l")(m),
    ]
)
async def sandbox_guide_conversation(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    client = b.UnixLocalSandboxClient()
    entries = {"data/sales.csv": b.File(content=b"quarter,revenue\nQ1,3\nQ2,4\n")}
    session = await client.create(manifest=b.Manifest(entries=entries))
    await session.start()
    settings = sdk.RunConfig(sandbox=b.SandboxRunConfig(session=session))
    conversation: list[Any] = []
    for question in (probe.input, "How many lines?"):
        asked = [*conversation, {"role": "user", "content": question}]
        result = sdk.Runner.run_streamed(worker(sdk), asked, run_config=settings)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type.endswith("text.delta"):
                probe.note(event.data.delta)
        conversation = result.to_input_list()
    await session.aclose()
    await client.delete(session)
    return conversation


@sandbox_program(lambda m: [*commands("echo built > app.txt")(m), *commands("cat app.txt")(m)])
async def sandbox_guide_state_in_a_file(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    client = b.UnixLocalSandboxClient()
    saved = probe.folder / "state.json"
    session = await client.create(manifest=b.Manifest())
    saved.write_text(session.state.model_dump_json(indent=2))
    async with session:
        first = await run(sdk, probe, session=session)
    state = b.UnixLocalSandboxSessionState.model_validate_json(saved.read_text())
    resumed = await client.resume(state)
    async with resumed:
        again = [*first.to_input_list(), {"role": "user", "content": "Go on."}]
        second = await sdk.Runner.run(worker(sdk), again, run_config=config(sdk, session=resumed))
    await client.delete(resumed)
    return second


@sandbox_program(lambda m: [*commands("echo v1 > app.txt")(m), *commands("cat app.txt")(m)])
async def sandbox_guide_resume(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    client = b.UnixLocalSandboxClient()
    session = await client.create(
        manifest=b.Manifest(), snapshot=b.LocalSnapshotSpec(base_path=probe.folder / "snapshots")
    )
    async with session:
        first = await run(sdk, probe, session=session)
        conversation = first.to_input_list()
        frozen = json.loads(json.dumps(client.serialize_session_state(session.state)))
    conversation.append({"role": "user", "content": "Go on with what is there."})
    resumed = await client.resume(client.deserialize_session_state(frozen))
    try:
        async with resumed:
            settings = config(sdk, session=resumed)
            return await sdk.Runner.run(worker(sdk), conversation, run_config=settings)
    finally:
        await client.delete(resumed)


def skill(sdk: Any, name: str, **options: Any) -> Any:
    text = f"---\nname: {name}\ndescription: About {name}.\n---\nDo {name} well.\n"
    return box(sdk).Skill(name=name, description=f"About {name}.", content=text, **options)


@sandbox_program(commands("find .agents -type f | sort", "cat .agents/taxes/SKILL.md"))
async def sandbox_guide_skills(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    script = b.File(content=b"echo sum\n")
    skills = b.Skills(
        skills=[skill(sdk, "taxes", scripts={"sum.sh": script}), skill(sdk, "letters")]
    )
    agent = worker(sdk, capabilities=[*b.Capabilities.default(), skills])
    return await run(sdk, probe, agent, manifest=b.Manifest())


def shelf(probe: Probe) -> Any:
    """A directory of skills on this machine."""
    for name in ("taxes", "letters"):
        folder = probe.folder / "skills" / name
        folder.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: About {name}.\n---\nDo {name} well.\n"
        (folder / "SKILL.md").write_text(text)
    (probe.folder / "skills" / "taxes" / "rates.txt").write_text("19\n")
    return probe.folder / "skills"


@sandbox_program(commands("find .agents -type f | sort"))
async def sandbox_guide_skills_from_a_directory(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    skills = b.Skills(from_=b.LocalDir(src=shelf(probe)))
    agent = worker(sdk, capabilities=[*b.Capabilities.default(), skills])
    return await run(sdk, probe, agent, manifest=b.Manifest())


@sandbox_program(
    lambda m: [
        m.tool_call("exec_command", {"cmd": "ls -A"}),
        m.tool_call("load_skill", {"skill_name": "taxes"}),
        m.tool_call(
            "exec_command", {"cmd": "find .agents -type f | sort; cat .agents/taxes/rates.txt"}
        ),
        m.tool_call("load_skill", {"skill_name": "taxes"}),
        m.text("Done."),
    ]
)
async def sandbox_guide_lazy_skills(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, lazy_worker(sdk, probe), manifest=box(sdk).Manifest())


@sandbox_program(lambda m: [m.tool_call("load_skill", {"skill_name": "cooking"}), m.text("Done.")])
async def sandbox_guide_unknown_skill(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, lazy_worker(sdk, probe), manifest=box(sdk).Manifest())


def lazy_worker(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    source = b.LocalDirLazySkillSource(source=b.LocalDir(src=shelf(probe)))
    return worker(sdk, capabilities=[b.Shell(), b.Skills(lazy_from=source)])


@sandbox_program(commands("find .agents -type f | sort"))
async def sandbox_guide_skills_in_a_session(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    agent = worker(sdk, capabilities=[b.Shell(), b.Skills(skills=[skill(sdk, "taxes")])])
    return await run_and_look(sdk, probe, agent, entries=files(sdk, a="A"))


def port_finder(sdk: Any) -> Any:
    b: Any = box(sdk)

    class PortFinder(b.Capability):
        type: str = "port_finder"

        def tools(self) -> list[Any]:
            session = self.session

            @sdk.function_tool
            async def app_url(port: int) -> str:
                """Where the app can be reached."""
                endpoint = await session.resolve_exposed_port(port)
                return str(endpoint.url_for("http"))

            return [app_url]

    return PortFinder()


@sandbox_program(lambda m: [m.tool_call("app_url", {"port": 8123}), m.text("Done.")])
async def sandbox_guide_port_not_declared(sdk: Any, probe: Probe) -> Any:
    agent = worker(sdk, capabilities=[port_finder(sdk)])
    return await run(sdk, probe, agent, manifest=box(sdk).Manifest())


@sandbox_program(
    lambda m: [
        m.tool_call(
            "exec_command",
            {"cmd": "exec python3 -m http.server 38123 --bind 0.0.0.0", "yield_time_ms": 300},
        ),
        m.tool_call("fetch", {"port": 38123}),
        m.text("Done."),
    ]
)
async def sandbox_guide_port(sdk: Any, probe: Probe) -> Any:
    import asyncio
    import urllib.error
    import urllib.request

    b: Any = box(sdk)

    class Fetcher(b.Capability):
        type: str = "fetcher"

        def tools(self) -> list[Any]:
            session = self.session

            @sdk.function_tool
            async def fetch(port: int) -> str:
                """What the app serves."""
                url = (await session.resolve_exposed_port(port)).url_for("http")
                for _ in range(100):
                    try:
                        answer = await asyncio.to_thread(
                            urllib.request.urlopen, url + "/index.html"
                        )
                    except (urllib.error.URLError, ConnectionError):
                        await asyncio.sleep(0.1)
                    else:
                        with answer:
                            return str(answer.read().decode() == sdk.__name__)
                return "nobody answers"

            return [fetch]

    agent = worker(sdk, capabilities=[b.Shell(), Fetcher()])
    options = b.UnixLocalSandboxClientOptions(exposed_ports=(38123,))
    manifest = b.Manifest(entries=files(sdk, index_dot_html=sdk.__name__))
    return await run(sdk, probe, agent, options=options, manifest=manifest)


@sandbox_program(commands("cat repo/task.md; echo done > output/report.md"))
async def sandbox_guide_artifacts(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    (probe.folder / "repo").mkdir()
    (probe.folder / "repo" / "task.md").write_text("Write a report.\n")
    entries = {"repo": b.LocalDir(src=probe.folder / "repo"), "output": b.Dir()}
    async with session_with(sdk, entries=entries) as session:
        result = await run(sdk, probe, session=session)
        probe.note((await session.read("output/report.md")).read().decode())
        names = [str(entry.path).rsplit("/", 1)[-1] for entry in await session.ls("output")]
        probe.note(names, await workspace(session))
    return result


@sandbox_program(
    lambda m: [
        m.tool_call("exec_command", {"cmd": "wc -l < data.txt"}),
        m.structured({"risk": "low", "lines": 2}),
    ]
)
async def sandbox_guide_review(sdk: Any, probe: Probe) -> Any:
    from pydantic import BaseModel

    class Review(BaseModel):
        risk: str
        lines: int

    b = box(sdk)
    manifest = b.Manifest(entries=files(sdk, data_dot_txt="a\nb\n"))
    agent = worker(sdk, capabilities=[b.Shell()], output_type=Review, default_manifest=manifest)
    result = await run(sdk, probe, agent)
    probe.note(result.final_output.risk, result.final_output.lines)
    return result


@sandbox_program(commands('test -n "$TOKEN" && echo there', "ls"))
async def sandbox_guide_secrets(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    from_code = b.EnvEntry(
        value=b.StrEnvValue(value="s3cret"), description="for the API", ephemeral=True
    )
    manifest = b.Manifest(environment=b.Environment(value={"TOKEN": from_code}))
    return await run(sdk, probe, manifest=manifest)


@sandbox_program(commands("echo $WHO"))
async def sandbox_guide_value_found_late(sdk: Any, probe: Probe) -> Any:
    b: Any = box(sdk)

    class Late(b.EnvValue):
        type: Literal["comparison_late"] = "comparison_late"

        async def resolve(self) -> str:
            probe.note("resolved")
            return "somebody"

    manifest = b.Manifest(environment=b.Environment(value={"WHO": Late()}))
    result = await run(sdk, probe, manifest=manifest)
    probe.notes = probe.notes[:1]  # how often is each SDK's own affair
    return result


@sandbox_program(lambda m: [m.text("Never asked.")])
async def sandbox_guide_grants(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        os.chmod(made, 0o777)  # noqa: PTH101 - the user of an isolated sandbox is another one
        (folder / "in.txt").write_text("granted\n")
        async with session_with(sdk) as session:
            done = await session.exec("cat", str(folder / "in.txt"), shell=False)
            probe.note("not granted", done.exit_code)
        for read_only in (True, False):
            grants = (b.SandboxPathGrant(path=made, read_only=read_only),)
            async with session_with(sdk, extra_path_grants=grants) as session:
                probe.note((await session.exec("cat", f"{made}/in.txt", shell=False)).stdout)
                probe.note((await session.read(f"{made}/in.txt")).read())
                try:
                    await session.write(f"{made}/out.txt", io.BytesIO(b"x"))
                    probe.note((folder / "out.txt").read_text())
                except Exception as error:
                    probe.note(type(error).__name__)


@sandbox_program(lambda m: [m.text("Never asked.")])
async def sandbox_guide_persist_and_hydrate(sdk: Any, probe: Probe) -> Any:
    async with session_with(sdk, entries=files(sdk, a="A", d__b="B")) as session:
        await session.exec("chmod 600 a; ln -s a link")
        archive = await session.persist_workspace()
    async with session_with(sdk, entries=files(sdk, old="O")) as other:
        await other.hydrate_workspace(archive)
        probe.note(await workspace(other))
