"""Sandbox agents and what their workspaces are made of: manifests, capabilities, prompts."""

from typing import Any, Literal

from comparison.program import Probe
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

LISTING = "find . -mindepth 1 | sort | while read f; do stat -c '%n %A' \"$f\"; done"


@sandbox_program(commands(LISTING, "cat docs/guide.md"))
async def sandbox_manifest(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    docs = b.Dir(
        children={
            "guide.md": b.File(content=b"# Guide\n", description="how to"),
            "empty": b.Dir(description="nothing yet"),
        }
    )
    entries = {"docs": docs, "a/b/c.txt": b.File(content=b"c"), "top.txt": b.File(content=b"")}
    return await run(sdk, probe, manifest=b.Manifest(entries=entries))


@sandbox_program(commands(LISTING))
async def sandbox_permissions(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    mode, allowed = b.FileMode, b.Permissions
    entries = {
        "secret": b.File(content=b"s", permissions=allowed(owner=mode.READ | mode.WRITE)),
        "tool": b.File(content=b"t", permissions=allowed.from_str("-rwxr-x--x")),
        "folder": b.Dir(permissions=allowed(owner=7, group=5, other=0, directory=True)),
        "plain": b.File(content=b"p"),
    }
    return await run_and_look(sdk, probe, entries=entries)


@sandbox_program(commands(LISTING, "cat one.txt tree/x.txt tree/sub/y.txt"))
async def sandbox_local_sources(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    (probe.folder / "one.txt").write_text("one\n")
    (probe.folder / "tree" / "sub").mkdir(parents=True)
    (probe.folder / "tree" / "x.txt").write_text("x\n")
    (probe.folder / "tree" / "sub" / "y.txt").write_text("y\n")
    (probe.folder / "tree" / "sub" / "y.txt").chmod(0o600)
    entries = {
        "one.txt": b.LocalFile(src=probe.folder / "one.txt"),
        "tree": b.LocalDir(src=probe.folder / "tree"),
        "nothing": b.LocalDir(),
    }
    return await run_and_look(sdk, probe, entries=entries)


@sandbox_program(commands("cat tree/link"))
async def sandbox_local_directory_with_a_link(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    (probe.folder / "tree").mkdir()
    (probe.folder / "tree" / "file").write_text("within\n")
    (probe.folder / "tree" / "link").symlink_to("file")
    manifest = b.Manifest(entries={"tree": b.LocalDir(src=probe.folder / "tree")})
    return await run(sdk, probe, manifest=manifest)


@sandbox_program(commands("true"))
async def sandbox_local_sources_that_cannot_be(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    (probe.folder / "link").symlink_to("/etc/hostname")
    sources = {
        "missing file": b.LocalFile(src=probe.folder / "missing"),
        "missing directory": b.LocalDir(src=probe.folder / "missing"),
        "outside": b.LocalFile(src="/etc/hostname"),
        "directory outside": b.LocalDir(src="/etc/apt"),
        "link": b.LocalFile(src=probe.folder / "link"),
        "directory as a file": b.LocalFile(src=probe.folder),
    }
    for what, source in sources.items():
        session = await b.UnixLocalSandboxClient().create(
            manifest=b.Manifest(entries={"x": source})
        )
        try:
            await session.start()
            probe.note(what, "started")
        except Exception as error:
            code = getattr(error, "error_code", None)
            probe.note(what, type(error).__name__, getattr(code, "value", code))


@sandbox_program(commands("od -An -tx1 data.bin"))
async def sandbox_file_of_bytes(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    manifest = b.Manifest(entries={"data.bin": b.File(content=b"\xff\xfe\x00")})
    return await run(sdk, probe, manifest=manifest)


@sandbox_program(commands("cat which.txt"))
async def sandbox_default_manifest(sdk: Any, probe: Probe) -> Any:
    manifest = box(sdk).Manifest(entries=files(sdk, which_dot_txt="the agent's"))
    return await run(sdk, probe, worker(sdk, default_manifest=manifest))


@sandbox_program(commands("cat which.txt; ls"))
async def sandbox_manifest_of_the_run_wins(sdk: Any, probe: Probe) -> Any:
    manifest = box(sdk).Manifest
    agent = worker(sdk, default_manifest=manifest(entries=files(sdk, other="o", which_dot_txt="a")))
    return await run(
        sdk, probe, agent, manifest=manifest(entries=files(sdk, which_dot_txt="run's"))
    )


@sandbox_program(commands("cat a.txt"))
async def sandbox_manifest_as_a_dict(sdk: Any, probe: Probe) -> Any:
    given = {"entries": {"a.txt": {"type": "file", "content": "from a dict\n"}}}
    return await run(sdk, probe, worker(sdk, default_manifest=given))


@sandbox_program(commands("true"))
async def sandbox_wide_tree(sdk: Any, probe: Probe) -> Any:
    entry = box(sdk).File
    entries = {f"d{n}/e/f/g{n}.txt": entry(content=b"") for n in range(5)}
    entries["z.txt"] = entry(content=b"", description="the last")
    return await run(sdk, probe, manifest=box(sdk).Manifest(entries=entries))


@sandbox_program(lambda m: [m.text("Never asked.")])
async def sandbox_tree_that_is_too_long(sdk: Any, probe: Probe) -> Any:
    entry = box(sdk).File
    entries = {f"file-number-{n:03}.txt": entry(content=b"") for n in range(200)}
    tree = box(sdk).Manifest(entries=entries).describe(depth=1)
    probe.note(len(tree) <= 5000, tree.splitlines()[:60], "`ls`" in tree[-200:])


@sandbox_program(lambda m: [m.text("Done.")])
async def sandbox_paths_that_cannot_be(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    for path in ("../out", "/abs", "a/../../out", "C:\\x", "a\\b.txt", "", "."):
        try:
            async with session_with(sdk, entries={path: b.File(content=b"x")}) as session:
                probe.note(path, await workspace(session))
        except Exception as error:
            code = getattr(error, "error_code", None)
            probe.note(path, type(error).__name__, getattr(code, "value", code))


@sandbox_program(commands("true"))
async def sandbox_capabilities_replaced(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, capabilities=[box(sdk).Shell()]))


@sandbox_program(lambda m: [m.text("Nothing to do.")])
async def sandbox_without_capabilities(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, capabilities=[]))


def notebook(sdk: Any, probe: Probe) -> Any:
    """A capability of the user's own, with all hooks."""
    b: Any = box(sdk)

    class Notebook(b.Capability):
        type: Literal["notebook"] = "notebook"

        def process_manifest(self, manifest: Any) -> Any:
            probe.note("manifest", sorted(map(str, manifest.entries)))
            manifest.entries["notes.txt"] = b.File(content=b"first\n")
            return manifest

        def tools(self) -> list[Any]:
            session = self.session
            probe.note("tools", session is not None)

            @sdk.function_tool
            async def take_note(text: str) -> str:
                """Take a note.

                Args:
                    text: What to write down.
                """
                done = await session.exec(f"echo '{text}' >> notes.txt && wc -l < notes.txt")
                return f"{done.exit_code} {done.stdout.decode().strip()}"

            return [take_note]

        async def instructions(self, manifest: Any) -> str:
            return f"[notes are in notes.txt, {len(manifest.entries)} entries]"

        def sampling_params(self, sampling_params: dict[str, Any]) -> dict[str, Any]:
            probe.note("sampling", sampling_params.get("model"))
            return {"top_logprobs": 3}

        def process_context(self, context: list[Any]) -> list[Any]:
            probe.note("context", len(context))
            return context[-1:]

    return Notebook()


@sandbox_program(
    lambda m: [
        m.tool_call("take_note", {"text": "second"}),
        m.tool_call("exec_command", {"cmd": "cat notes.txt"}),
        m.text("Noted."),
    ]
)
async def sandbox_own_capability(sdk: Any, probe: Probe) -> Any:
    agent = worker(sdk, capabilities=[notebook(sdk, probe), box(sdk).Shell()])
    given = [
        {"role": "user", "content": "Forget this."},
        {"role": "user", "content": probe.input},
    ]
    settings = config(sdk, manifest=box(sdk).Manifest())
    return await sdk.Runner.run(agent, given, run_config=settings)


@sandbox_program(lambda m: [m.tool_call("take_note", {"text": "second"}), m.text("Noted.")])
async def sandbox_own_capability_without_a_manifest(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, capabilities=[notebook(sdk, probe)]))


@sandbox_program(lambda m: [m.tool_call("take_note", {"text": "second"}), m.text("Noted.")])
async def sandbox_own_capability_in_a_session(sdk: Any, probe: Probe) -> Any:
    agent = worker(sdk, capabilities=[notebook(sdk, probe)])
    return await run_and_look(sdk, probe, agent, entries=files(sdk, a_dot_txt="A"))


@sandbox_program(lambda m: [m.text("Never.")])
async def sandbox_capability_that_needs_another(sdk: Any, probe: Probe) -> Any:
    b: Any = box(sdk)

    class Demanding(b.Capability):
        type: Literal["demanding"] = "demanding"

        def required_capability_types(self) -> set[str]:
            return {"shell", "filesystem"}

    return await run(sdk, probe, worker(sdk, capabilities=[Demanding(), box(sdk).Shell()]))


@sandbox_program(lambda m: [m.tool_call("exec_command", {"cmd": "echo x"}), m.text("Done.")])
async def sandbox_tools_configured(sdk: Any, probe: Probe) -> Any:
    def configure(tools: Any) -> None:
        probe.note(type(tools).__name__, tools.exec_command.name, tools.write_stdin.name)
        tools.write_stdin = None

    return await run(
        sdk, probe, worker(sdk, capabilities=[box(sdk).Shell(configure_tools=configure)])
    )


@sandbox_program(
    lambda m: [
        m.tool_calls(("greet", {}), ("exec_command", {"cmd": "echo from the sandbox"})),
        m.text("Done."),
    ]
)
async def sandbox_tools_of_both_kinds(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def greet() -> str:
        """Greet."""
        return "from the program"

    return await run(sdk, probe, worker(sdk, tools=[greet]))


@sandbox_program(commands("true"))
async def sandbox_base_instructions(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, base_instructions="You live in a box."))


@sandbox_program(commands("true"))
async def sandbox_instructions_computed(sdk: Any, probe: Probe) -> Any:
    async def base(ctx: Any, agent: Any) -> str:
        probe.note("base", agent.name, ctx.context)
        return f"Base for {agent.name}."

    def own(ctx: Any, agent: Any) -> str:
        probe.note("own", agent.name, type(agent).__name__)
        return f"Own with {ctx.context}."

    agent = worker(sdk, base_instructions=base, instructions=own)
    return await sdk.Runner.run(agent, probe.input, context="ctx", run_config=config(sdk))


@sandbox_program(commands("true"))
async def sandbox_without_instructions(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, worker(sdk, instructions=None, base_instructions=""))


@sandbox_program(
    lambda m: [
        m.tool_call("exec_command", {"cmd": "pwd; ls"}),
        m.tool_call("exec_command", {"cmd": "pwd", "workdir": "inner"}),
        m.tool_call("exec_command", {"cmd": "pwd", "workdir": ".."}),
        m.custom_tool_call(
            "apply_patch", "*** Begin Patch\n*** Add File: made.txt\n+m\n*** End Patch"
        ),
        m.custom_tool_call(
            "apply_patch",
            "*** Begin Patch\n*** Update File: ../top.txt\n@@\n-top\n+TOP\n*** End Patch",
        ),
        m.tool_call("view_image", {"path": "none.png"}),
        m.tool_call("exec_command", {"cmd": "cat made.txt ../top.txt; no-such"}),
        m.text("Done."),
    ]
)
async def sandbox_working_directory(sdk: Any, probe: Probe) -> Any:
    b = box(sdk)
    entries = {**files(sdk, top_dot_txt="top\n"), "project": b.Dir(children={"inner": b.Dir()})}
    return await run(sdk, probe, manifest=b.Manifest(entries=entries), cwd="project")


@sandbox_program(commands("pwd"))
async def sandbox_working_directory_that_is_missing(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, cwd="nowhere")


@sandbox_program(lambda m: [m.text("Never.")])
async def sandbox_working_directory_that_cannot_be(sdk: Any, probe: Probe) -> Any:
    for path in ("/etc", "..", "a/../..", "", "a//b", "./a"):
        try:
            made = box(sdk).SandboxRunConfig(cwd=path)
            probe.note(path, str(made.cwd))
        except Exception as error:
            probe.note(path, type(error).__name__)
