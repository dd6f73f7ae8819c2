"""Which providers there are, and how to make one by its name.

Other packages add theirs through the entry point group ``sandstream.providers``: the name of the
entry point is the provider's, its value a :class:`ProviderEntry`. Paths have the form
``module:name`` and are imported on first use, so that a vendor's library costs nothing until then.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sandstream_providers.interface import Provider, ProviderError, ProviderUnavailable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "sandstream.providers"


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a factory gets."""

    home: Path
    """The state directory of this machine."""
    isolation: str = "required"
    """``none`` if people chose to do without; a provider that always isolates ignores it."""
    own: bool = False
    """For sandboxes of this process only, which are unused when it has ended."""
    grace_s: float | None = None
    """How long a box lives on when no process holds it. None: the provider's own choice."""
    endpoint: str = ""
    """Where the provider's service is, if not where the environment says."""
    api_key: str = ""
    """The key for that service, if not the one that the environment has."""

    def __repr__(self) -> str:
        """Without the key, because logs and tracebacks show it to people."""
        return f"ProviderSettings(home={str(self.home)!r}, endpoint={self.endpoint!r}, ...)"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What ``doctor`` wants to know."""

    settings: ProviderSettings
    """The settings of the provider on this machine."""
    is_alone: bool = False
    """No other machine can serve the sandboxes of this installation."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``doctor``."""

    name: str
    """What was examined."""
    state: Literal["ok", "warning", "problem"]
    """Whether it works, works with a restriction, or does not work."""
    found: str
    """What was found, for people."""
    todo: str = ""
    """What to do about it; empty if there is nothing to do."""


class ProviderEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A provider as the rest of the system knows it.

    Example:
        # pyproject.toml: [project.entry-points."sandstream.providers"] toy = "toy_provider:ENTRY"
        ENTRY = ProviderEntry(name="toy", factory="toy_provider:make_host")
    """

    name: str
    """The name by which users choose the provider: lower-case letters, digits, ``-``."""
    factory: str
    """Takes :class:`ProviderSettings`; returns a ``BoxHost`` or a complete ``Provider``."""
    client: str = ""
    """The class of clients for session objects, with all arguments optional."""
    client_options: str = ""
    """The class of that client's options."""
    doctor: str = ""
    """An async function from :class:`Question` to a list of :class:`Finding`. Empty: ``check`` of
    the provider is shown.
    """
    owns_boxes: bool = True
    """Only the node that made a box can reach it. False: any replica can, as at a hosted vendor."""
    needs_options: bool = False
    """No box can be made without options, such as an image."""
    client_defaults: dict[str, object] = {}
    """Options of the client that the command line gives if people say nothing about them."""
    key_variables: tuple[str, ...] = ()
    """Variables of the environment with a key for its service; one of them must be set. Empty: it
    needs no key.
    """

    def lacks_key(self, environ: Mapping[str, str]) -> bool:
        """Does it need a key that the environment does not have?

        Args:
            environ: The variables to look at, such as ``os.environ``.
        """
        needed = self.key_variables
        return bool(needed) and not any(environ.get(name) for name in needed)


class UnknownProvider(ProviderError):
    """No package here has a provider of this name."""

    code = "provider_unavailable"


LOCAL = ProviderEntry(
    name="local",
    factory="sandstream_providers.local.provider:make_local",
    client="sandstream.sandbox.sandboxes.unix_local:UnixLocalSandboxClient",
    client_options="sandstream.sandbox.sandboxes.unix_local:UnixLocalSandboxClientOptions",
    doctor="sandstream_providers.local.doctor:examine",
)
DOCKER = ProviderEntry(
    name="docker",
    factory="sandstream_providers.docker.provider:make_docker",
    client="sandstream.sandbox.sandboxes.docker:DockerSandboxClient",
    client_options="sandstream.sandbox.sandboxes.docker:DockerSandboxClientOptions",
    doctor="sandstream_providers.docker.doctor:examine",
    needs_options=True,
)
DAYTONA = ProviderEntry(
    name="daytona",
    factory="sandstream_providers.daytona.provider:make_daytona",
    client="sandstream.extensions.sandbox.daytona:DaytonaSandboxClient",
    client_options="sandstream.extensions.sandbox.daytona:DaytonaSandboxClientOptions",
    doctor="sandstream_providers.daytona.doctor:examine",
    owns_boxes=False,
    key_variables=("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN"),
)
E2B = ProviderEntry(
    name="e2b",
    factory="sandstream_providers.e2b.provider:make_e2b",
    client="sandstream.extensions.sandbox.e2b:E2BSandboxClient",
    client_options="sandstream.extensions.sandbox.e2b:E2BSandboxClientOptions",
    doctor="sandstream_providers.e2b.doctor:examine",
    owns_boxes=False,
    client_defaults={"sandbox_type": "e2b"},
    key_variables=("E2B_API_KEY",),
)
_BUILT_IN = {entry.name: entry for entry in (LOCAL, DOCKER, DAYTONA, E2B)}


def names() -> list[str]:
    """All providers, those of this package first. Nothing is imported."""
    others = {point.name for point in _entry_points()} - _BUILT_IN.keys()
    return [*_BUILT_IN, *sorted(others)]


def find(name: str) -> ProviderEntry:
    """The entry of a provider. Other packages cannot replace one of this package.

    Raises:
        UnknownProvider: if there is none; the message names those that there are.
        ProviderUnavailable: if the package that has it cannot be loaded.
    """
    built_in = _BUILT_IN.get(name)
    if built_in is not None:
        return built_in
    points = [point for point in _entry_points() if point.name == name]
    if not points:
        raise UnknownProvider(
            f"there is no sandbox provider {name!r}; known are: {', '.join(names())}"
        )
    if len(points) > 1:
        packages = ", ".join(sorted(_package(point) for point in points))
        raise ProviderUnavailable(
            f"several packages have a sandbox provider {name!r}: {packages}. Uninstall all but one"
        )
    return _loaded(points[0])


def make(name: str, settings: ProviderSettings) -> Provider:
    """Make a provider by its name. The caller closes it."""
    made: Any = load(find(name).factory)(settings)
    if hasattr(made, "list_owned"):
        complete: Provider = made
        return complete
    from sandstream_providers.agent_provider import AgentProvider

    return AgentProvider(made)


async def examine(name: str, question: Question) -> list[Finding]:
    """What ``doctor`` says about a provider."""
    try:
        entry = find(name)
        if entry.doctor:
            findings: list[Finding] = await load(entry.doctor)(question)
            return findings
        return [await _checked(name, question)]
    except ProviderError as error:
        found = f"the provider {name} does not work"
        return [Finding(name="sandboxes", state="problem", found=found, todo=str(error))]


async def _checked(name: str, question: Question) -> Finding:
    provider = make(name, question.settings)
    try:
        facts = await provider.check()
    finally:
        await provider.close()
    text = ", ".join(f"{fact}: {value}" for fact, value in facts.items())
    return Finding(name="sandboxes", state="ok", found=f"{name}: {text}" if text else name)


def new_client(name: str) -> Any:
    """A client for session objects, with its defaults."""
    return load(find(name).client)()


def load(path: str) -> Any:
    """The object at ``module:name``."""
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ProviderUnavailable(f"{path} cannot be loaded: {error}") from error


def _loaded(point: EntryPoint) -> ProviderEntry:
    where = f"the sandbox provider {point.name!r} of {_package(point)}"
    try:
        entry = point.load()
    except (ImportError, AttributeError) as error:
        raise ProviderUnavailable(f"{where} cannot be loaded: {error}") from error
    if not isinstance(entry, ProviderEntry) or entry.name != point.name:
        raise ProviderUnavailable(
            f"{where} must be a ProviderEntry with that name; {point.value} is {entry!r}"
        )
    return entry


def _entry_points() -> list[EntryPoint]:
    from importlib.metadata import entry_points  # costs a few milliseconds

    return [*entry_points(group=GROUP)]


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
