"""What programs with sandbox agents share: names of the SDK, scripts, a look at the workspace.

Imported by both interpreters, so it imports neither SDK and nothing of ours.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import tarfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from comparison.program import MODEL, PROGRAMS, Probe, program

_MODULES = (
    "sandbox",
    "sandbox.capabilities",
    "sandbox.entries",
    "sandbox.errors",
    "sandbox.manifest",
    "sandbox.sandboxes",
    "sandbox.session",
    "sandbox.snapshot",
    "sandbox.types",
    "editor",
)
LAST_SESSION = "the last one"
"""For a script: the number of the process that was started last, which the SDKs choose."""
_LAST = f'"{LAST_SESSION}"'


class Names:
    """All names of an SDK's sandbox modules as attributes: `box(sdk).Manifest`."""

    def __init__(self, sdk: Any) -> None:
        self._sdk = sdk.__name__

    def __getattr__(self, name: str) -> Any:
        for path in _MODULES:
            module = importlib.import_module(f"{self._sdk}.{path}")
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(name)


def box(sdk: Any) -> Names:
    return Names(sdk)


# --- programs -------------------------------------------------------------------------------------


def sandbox_program(script: Callable[[Any], list[Any]]) -> Callable[[Any], Any]:
    """Registers a program whose report is compared as that of a sandbox agent.

    The token counts are fixed, because the SDKs' prompts differ in length.
    """

    def counted(m: Any) -> list[Any]:
        usage = m.Usage(input_tokens=100, output_tokens=10)
        return [m.answer(step, usage=usage) for step in script(m)]

    def register(function: Any) -> Any:
        program(counted)(function)
        name = function.__name__
        PROGRAMS[name] = replace(PROGRAMS[name], has_sandbox=True)
        return function

    return register


def commands(*wanted: str | dict[str, Any]) -> Callable[[Any], list[Any]]:
    """A script: these commands, one a turn, then an answer."""

    def script(m: Any) -> list[Any]:
        given = [{"cmd": one} if isinstance(one, str) else one for one in wanted]
        return [*(m.tool_call("exec_command", one) for one in given), m.text("Done.")]

    return script


def patches(*wanted: str) -> Callable[[Any], list[Any]]:
    """A script: these patches, one a turn, then an answer."""
    return lambda m: [*(m.custom_tool_call("apply_patch", one) for one in wanted), m.text("Done.")]


def patch(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


# --- agents and runs ------------------------------------------------------------------------------


def worker(sdk: Any, **options: Any) -> Any:
    options = {"name": "Worker", "model": MODEL, "instructions": "Work.", **options}
    return box(sdk).SandboxAgent(**options)


def config(sdk: Any, **options: Any) -> Any:
    """A run with a sandbox on this machine."""
    if "session" not in options and "client" not in options:
        options["client"] = box(sdk).UnixLocalSandboxClient()
    return sdk.RunConfig(sandbox=box(sdk).SandboxRunConfig(**options))


async def run(sdk: Any, probe: Probe, agent: Any = None, **options: Any) -> Any:
    """One run of the agent (the plain worker if none is given) with these sandbox options."""
    chosen = worker(sdk) if agent is None else agent
    return await sdk.Runner.run(chosen, probe.input, run_config=config(sdk, **options))


async def run_and_look(sdk: Any, probe: Probe, agent: Any = None, **manifest: Any) -> Any:
    """One run in a session of the program's own; the workspace afterwards is noted."""
    async with session_with(sdk, **manifest) as session:
        result = await run(sdk, probe, agent, session=session)
        probe.note(await workspace(session))
    return result


@contextlib.asynccontextmanager
async def session_with(sdk: Any, **manifest: Any) -> AsyncIterator[Any]:
    """A running session, removed at the end."""
    client = box(sdk).UnixLocalSandboxClient()
    session = await client.create(manifest=box(sdk).Manifest(**manifest))
    try:
        async with session:
            yield session
    finally:
        await client.delete(session)


def files(sdk: Any, **texts: str) -> dict[str, Any]:
    """Entries of a manifest; `__` in a name stands for a slash, `_dot_` for a dot."""
    entry = box(sdk).File
    return {
        name.replace("__", "/").replace("_dot_", "."): entry(content=text.encode())
        for name, text in texts.items()
    }


async def workspace(session: Any) -> list[Any]:
    """All that is in the workspace: path, kind, mode, content."""
    archive = await session.persist_workspace()
    found = []
    with tarfile.open(fileobj=archive, mode="r:*") as tar:
        for member in tar.getmembers():
            path = member.name.removeprefix("./").strip("/")
            if path in ("", "."):
                continue
            source = tar.extractfile(member) if member.isfile() else None
            content = source.read().decode(errors="backslashreplace") if source else None
            kind = "dir" if member.isdir() else "link" if member.issym() else "file"
            found.append([path, kind, oct(member.mode), content or member.linkname])
    return sorted(found)


def pointing_model(sdk: Any) -> Any:
    """A model that puts the number of the last process where the script says `LAST_SESSION`."""
    inner = sdk.MultiProvider().get_model(MODEL)

    class Pointing(sdk.Model):  # type: ignore[misc]
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            response = await inner.get_response(*args, **kwargs)
            known = re.findall(r"session ID (\d+)", json.dumps(kwargs["input"]))
            number = known[-1] if known else "0"
            output = [
                item.model_copy(update={"arguments": item.arguments.replace(_LAST, number)})
                if item.type == "function_call"
                else item
                for item in response.output
            ]
            return sdk.ModelResponse(
                output=output, usage=response.usage, response_id=response.response_id
            )

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    return Pointing()
