"""The sandboxes of ``sandstream up``: those of every provider that works on this machine."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from sandstream_bus.environment import environment
from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER
from sandstream_providers import registry
from sandstream_providers.interface import ProviderError

from sandstream._run.sandbox_host import make_provider
from sandstream._surface.connection import OpenBus
from sandstream.cli.services.launch import chosen_isolation, sandbox_actor
from sandstream.cli.session import say
from sandstream.settings import Settings

_PATIENCE_S = 10.0
"""How long a provider other than the default may take to say whether it works."""


async def serve_providers(stack: AsyncExitStack, bus: OpenBus, concurrency: int) -> dict[str, Any]:
    """Serve the sandboxes of each provider, and say which are missing: not all agents need them.
    Only the default provider is expected on every machine.
    """
    from sandstream.sandbox.errors import ProviderUnavailableError

    node, facts = "", {}
    served: list[str] = []
    missing: dict[str, str] = {}
    for provider in registry.names():
        if _lacks_key(provider):
            continue
        try:
            if provider != DEFAULT_PROVIDER:
                await _try(provider)
            actor = sandbox_actor(bus, chosen_isolation(), concurrency, provider)
            replica = await stack.enter_async_context(actor)
        except (ProviderUnavailableError, ProviderError) as error:
            known = error.context["reason"] if isinstance(error, ProviderUnavailableError) else ""
            missing[provider] = str(known or error)
            say(_missing(provider, missing[provider]))
            continue
        served.append(provider)
        if provider == DEFAULT_PROVIDER:
            found = await replica.provider.check()
            facts = {"isolation": found.get("isolation", provider)}
        node = node or replica.node
    return {"node": node or None, "sandboxes": facts, "providers": served, "missing": missing}


def _lacks_key(provider: str) -> bool:
    """Most installations have no account at a vendor, and need not hear of it."""
    try:
        return registry.find(provider).lacks_key(environment())
    except ProviderError:
        return False  # what is wrong with it is said when it is tried


async def _try(provider: str) -> None:
    """Raises if it does not work: many machines have no engine, or one that hangs."""
    made = make_provider(provider, Settings.from_env().home)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await made.check()
    except TimeoutError as error:
        raise ProviderError(f"it did not answer within {_PATIENCE_S:g} s") from error
    finally:
        await made.close()


def _missing(provider: str, reason: str) -> str:
    if provider == DEFAULT_PROVIDER:
        return f"sandstream: warning: no sandboxes here: {reason} (--no-sandbox)"
    return f"sandstream: no {provider} sandboxes here: {reason}"
