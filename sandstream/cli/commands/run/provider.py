"""Which sandboxes ``sandstream run`` uses: its provider, image, ports and network."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER
from sandstream_providers import registry
from sandstream_providers.interface import ProviderError

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.services.launch import chosen_provider

if TYPE_CHECKING:
    from collections.abc import Container

    from sandstream.sandbox.config import SandboxRunConfig

_FIELDS = {"image": ("image",), "template": ("template", "sandbox_snapshot_name")}
"""The options of clients that a flag may stand for."""


def with_provider(
    arguments: argparse.Namespace, configured: SandboxRunConfig | None
) -> SandboxRunConfig:
    """The app's sandboxes, or those of another provider, with the options of the command line."""
    from sandstream.sandbox.config import SandboxRunConfig

    sandbox = configured or SandboxRunConfig(client=registry.new_client(DEFAULT_PROVIDER))
    if arguments.sandbox is not None and arguments.sandbox != _provider_of(configured):
        provider = chosen_provider(arguments.sandbox)
        try:
            client = registry.new_client(provider)
        except ProviderError as error:
            raise CliError(Exit.USAGE, f"--sandbox {provider}: {error}") from None
        sandbox = dataclasses.replace(sandbox, client=client, options=None, session_state=None)
    changes = _changes(arguments, sandbox)
    if changes or (sandbox.options is None and _needs_options(sandbox)):
        sandbox = dataclasses.replace(sandbox, options=_options(sandbox, changes))
    return sandbox


def _provider_of(sandbox: SandboxRunConfig | None) -> str:
    client: Any = sandbox.client if sandbox is not None else None
    return client.link.provider if client is not None else ""


def _needs_options(sandbox: SandboxRunConfig) -> bool:
    has_session = sandbox.session is not None or sandbox.session_state is not None
    client: Any = sandbox.client
    is_known = _provider_of(sandbox) in registry.names()
    return not has_session and is_known and not client.supports_default_options


def _changes(arguments: argparse.Namespace, sandbox: SandboxRunConfig) -> dict[str, Any]:
    """What the flags change in the options of the provider's client."""
    name = _provider_of(sandbox)
    given = [it for it in ("image", "template", "port", "network") if getattr(arguments, it)]
    if not given:
        return {}
    flags = " and ".join(f"--{it}" for it in given)
    entry = registry.find(name) if name in registry.names() else None
    if entry is None or not entry.client_options:
        raise CliError(
            Exit.USAGE,
            f"{flags}: the app's run_config uses {type(sandbox.client).__name__}: say it in its "
            "options",
        )
    fields = registry.load(entry.client_options).model_fields
    changes: dict[str, Any] = {}
    if arguments.image:
        changes[_field("image", name, fields)] = arguments.image
    if arguments.template:
        changes[_field("template", name, fields)] = arguments.template
    if arguments.port:
        before = sandbox.options.exposed_ports if sandbox.options is not None else ()
        changes["exposed_ports"] = tuple(dict.fromkeys([*before, *arguments.port]))
    if "network" in fields and arguments.network:
        changes["network"] = "host"
    elif "network_mode" in fields and arguments.network:
        changes["network_mode"] = None
    return changes


def _field(flag: str, name: str, fields: Container[str]) -> str:
    """The option of the provider's client that a flag stands for."""
    for field in _FIELDS[flag]:
        if field in fields:
            return field
    kind, instead = {
        "image": ("containers", "docker"),
        "template": ("sandboxes at a vendor", "e2b"),
    }[flag]
    raise CliError(Exit.USAGE, f"--{flag} is for {kind}, not for {name}: add --sandbox {instead}")


def _options(sandbox: SandboxRunConfig, changes: dict[str, Any]) -> Any:
    """The client's options with the changes. A container of the command line has no network unless
    it is told so, as the sandboxes of this machine.
    """
    name = _provider_of(sandbox)
    entry = registry.find(name)
    kind = registry.load(entry.client_options)
    if sandbox.options is not None:
        before = sandbox.options.model_dump()
    else:
        before = dict(entry.client_defaults)
        if "network_mode" in kind.model_fields:
            before["network_mode"] = "none"
    image = kind.model_fields.get("image")
    if image is not None and image.is_required() and not {**before, **changes}.get("image"):
        raise CliError(
            Exit.USAGE, f"--sandbox {name} needs --image IMAGE, such as --image python:3.13-slim"
        )
    chosen = {**before, **changes}
    if chosen.get("network_mode") == "none" and chosen.get("exposed_ports"):
        raise CliError(
            Exit.USAGE, f"--port: a {name} sandbox without network has no ports: add --network"
        )
    return kind.model_validate(chosen)
