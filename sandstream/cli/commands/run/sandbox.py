"""What ``sandstream run`` makes of the flags for sandbox agents.

Everything is checked before anything starts; errors name the file and the entry.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sandstream.agent import Agent
from sandstream.cli.commands.run.provider import with_provider
from sandstream.cli.exits import CliError, Exit
from sandstream.run_config import RunConfig

if TYPE_CHECKING:
    from sandstream.sandbox.config import SandboxRunConfig
    from sandstream.sandbox.manifest import Manifest

T = TypeVar("T")
_FLAGS = ("sandbox", "image", "manifest", "workspace", "port", "network")


def with_sandbox(arguments: argparse.Namespace, agent: Agent[Any], config: RunConfig) -> RunConfig:
    """The run's configuration, with a sandbox if the agent needs one."""
    given = [f"--{name}" for name in _FLAGS if getattr(arguments, name)]
    if not hasattr(agent, "capabilities"):
        if given:
            raise CliError(
                Exit.USAGE, f"{', '.join(given)}: the agent {agent.name!r} is not a SandboxAgent"
            )
        return config
    sandbox = config.sandbox
    if (
        given
        and sandbox is not None
        and (sandbox.session is not None or sandbox.session_state is not None)
    ):
        raise CliError(
            Exit.USAGE,
            f"{', '.join(given)}: the app's run_config has its own session, which these "
            "options cannot change",
        )
    sandbox = with_provider(arguments, sandbox)
    if arguments.manifest and arguments.workspace:
        raise CliError(
            Exit.USAGE,
            "--manifest and --workspace exclude each other: name the directory in the manifest, "
            'as {"type": "local_dir", "src": "..."}',
        )
    manifest: Manifest | None = None
    if arguments.manifest:
        manifest = read_manifest(arguments.manifest)
        _check(f"--manifest {arguments.manifest}", manifest, sandbox)
    elif arguments.workspace:
        manifest = _workspace(arguments.workspace, agent, sandbox)
        _check(f"--workspace {arguments.workspace}", manifest, sandbox)
    if manifest is not None:
        sandbox = dataclasses.replace(sandbox, manifest=manifest)
    return dataclasses.replace(config, sandbox=sandbox)


# --- what the workspace holds ---------------------------------------------------------------------


def _workspace(path: str, agent: Any, sandbox: SandboxRunConfig) -> Manifest:
    """The agent's own manifest, with a copy of the directory at the root."""
    from sandstream.sandbox.entries import LocalDir
    from sandstream.sandbox.manifest import Manifest

    directory = Path(path).resolve()
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise CliError(Exit.USAGE, f"--workspace: {path} {what}")
    if not directory.is_relative_to(Path.cwd().resolve()):
        raise CliError(
            Exit.USAGE,
            f"--workspace: {path} is outside the working directory; only files below it may be "
            f"copied: cd {directory}, then --workspace .",
        )
    before: Manifest = sandbox.manifest or agent.default_manifest or Manifest()
    # the user's files count more than what the agent brings along
    own = {name: it for name, it in before.entries.items() if not (directory / name).exists()}
    entries: dict[Any, Any] = {".": LocalDir(src=directory), **own}
    return before.model_copy(update={"entries": entries})


def read_manifest(path: str) -> Manifest:
    """A manifest from a JSON file. Errors name the entry."""
    from sandstream.sandbox.manifest import Manifest

    where = f"--manifest {path}"
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        raise CliError(Exit.USAGE, f"{where}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CliError(Exit.USAGE, f"{where} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise CliError(
            Exit.USAGE, f"{where} is not JSON: {error.msg} in line {error.lineno}"
        ) from None
    if not isinstance(data, dict):
        raise CliError(Exit.USAGE, f'{where} must be an object such as {{"entries": {{}}}}')
    unknown = sorted(name for name in data if name not in Manifest.model_fields)
    if unknown:
        raise CliError(
            Exit.USAGE,
            f"{where}: unknown: {', '.join(unknown)}; a manifest has "
            f"{', '.join(Manifest.model_fields)}",
        )
    for name, entry in _each(data.get("entries")):
        _trying(f"{where}: entry {name}", partial(_entries, {name: entry}))
    return _trying(where, lambda: Manifest.model_validate(data))


def _entries(entries: dict[str, Any]) -> None:
    from sandstream.sandbox.manifest import Manifest

    Manifest.model_validate({"entries": entries}).validated_entries()


def _each(entries: object, above: str = "") -> Iterator[tuple[str, Any]]:
    """Check every entry alone, the innermost first, to find the one with the error."""
    if not isinstance(entries, dict):
        return
    for name, entry in entries.items():
        path = f"{above}{name}"
        if isinstance(entry, dict):
            yield from _each(entry.get("children"), f"{path}/")
        yield path, entry


def _check(where: str, manifest: Manifest, sandbox: SandboxRunConfig) -> None:
    """Check what can be checked before the start: the provider's rules, files of this machine."""
    if sandbox.client is not None:
        client = sandbox.client
        _trying(where, lambda: client.check_manifest(manifest))
    for path, entry in manifest.iter_entries():
        _trying(f"{where}: entry {path}", partial(_check_source, entry, manifest))


def _check_source(entry: Any, manifest: Manifest) -> None:
    from sandstream.sandbox import host_sources
    from sandstream.sandbox.entries import LocalDir, LocalFile

    grants = manifest.extra_path_grants
    if isinstance(entry, LocalFile):
        host_sources.check_file(entry.src, Path.cwd(), grants)
    elif isinstance(entry, LocalDir) and entry.src is not None:
        host_sources.list_files(host_sources.check_directory(entry.src, Path.cwd(), grants))


def _trying(where: str, work: Callable[[], T]) -> T:
    from sandstream.sandbox.errors import SandboxError

    try:
        return work()
    except (ValueError, TypeError, SandboxError) as error:
        raise CliError(Exit.USAGE, f"{where}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """In one line; of several errors the first."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return " ".join(str(error).split())
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("entries", "children"))
    text = first["msg"].removeprefix("Value error, ")
    return f"{place}: {text}" if place else text
