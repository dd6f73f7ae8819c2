"""App files: load them, find their agents; what is wrong with them in one line."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from sandstream_bus.wire.error_text import named_error

from sandstream.agent import Agent
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.suggestions import did_you_mean
from sandstream.run_config import RunConfig
from sandstream.worker import agents_of, load_module


class App(NamedTuple):
    """A loaded file. ``config`` is its module-level ``run_config``, if it has one."""

    path: str
    agents: dict[str, Agent[Any]]
    config: RunConfig | None
    module: ModuleType

    @property
    def pool(self) -> str:
        """The pool of its workers, unless the user names one."""
        return Path(self.path).stem


def load_app(path: str, *, debug: bool = False) -> App:
    """Import the file and find its agents. Errors of the file say where in the file."""
    try:
        module = load_module(path)
    except SyntaxError as error:
        if debug:
            raise
        where = f"{error.filename}:{error.lineno}" if error.lineno else path
        quoted = f": {error.text.strip()}" if error.text else ""
        raise CliError(Exit.USAGE, f"{where}: {error.msg}{quoted}") from None
    except SystemExit as error:
        raise CliError(
            Exit.USAGE,
            f"{path} ended the program while it was loaded (exit code {error.code}); put what it "
            'does under `if __name__ == "__main__":`',
        ) from None
    except Exception as error:
        if debug or type(error).__module__.startswith("sandstream.exceptions"):
            raise
        if isinstance(error, OSError) and error.filename == path:
            raise  # the file cannot be looked at: not its own error
        raise CliError(Exit.USAGE, _where(path, error)) from None
    config = getattr(module, "run_config", None)
    if config is not None and not isinstance(config, RunConfig):
        kind = type(config).__name__
        raise CliError(Exit.USAGE, f"{path}: run_config must be a RunConfig, not {kind}")
    return App(path, agents_of(module), config, module)


def load_apps(paths: list[str], *, debug: bool = False) -> list[App]:
    """Several files; an agent's name and a file's pool may occur only once."""
    apps = [load_app(path, debug=debug) for path in paths]
    owners: dict[str, str] = {}
    pools: dict[str, str] = {}
    for app in apps:
        if app.pool in pools:
            raise CliError(
                Exit.USAGE,
                f"{pools[app.pool]} and {app.path} have the same name, which names their pool; "
                "start one of them with `sandstream worker --pool NAME`",
            )
        pools[app.pool] = app.path
        for name in app.agents:
            if name in owners:
                raise CliError(
                    Exit.USAGE, f"the agent {name!r} is in both {owners[name]} and {app.path}"
                )
            owners[name] = app.path
    return apps


def split_target(target: str) -> tuple[str, str | None]:
    """``app.py:agent`` as path and agent; the agent may be left out."""
    if Path(target).is_file():
        return target, None
    path, separator, name = target.partition(".py:")
    if separator and name:
        return path + ".py", name
    return target.removesuffix(":"), None


def choose_agent(app: App, name: str | None) -> Agent[Any]:
    """The agent of that name (or variable); without one: the only one, or the one called agent."""
    if name is None:
        if len(app.agents) == 1:
            return next(iter(app.agents.values()))
        name = "agent"
        wanted = f"{app.path} has several agents: choose one with {app.path}:NAME"
    else:
        wanted = f"{app.path} has no agent {name!r}"
    by_variable = getattr(app.module, name, None)
    found = app.agents.get(name) or (by_variable if isinstance(by_variable, Agent) else None)
    if found is None:
        raise CliError(
            Exit.USAGE,
            f"{wanted} (there are: {', '.join(sorted(app.agents))})"
            + did_you_mean(name, app.agents),
        )
    return found


def _where(path: str, error: Exception) -> str:
    """The error with the last line of the file that led to it."""
    file = str(Path(path).resolve())
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if str(Path(frame.filename).resolve()) == file
    ]
    where = f"{path}:{lines[-1]}" if lines else path
    return f"{where}: {named_error(error)}"
