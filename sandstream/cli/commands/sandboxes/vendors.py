"""Asks the vendors of hosted boxes that this machine has a key for. No actor needs to run."""

from __future__ import annotations

from sandstream_actors.sandbox.actor import installation_of
from sandstream_bus.bus import Bus
from sandstream_bus.environment import environment
from sandstream_providers import registry
from sandstream_providers.interface import BoxInfo, ProviderError

from sandstream._run.sandbox_host import make_provider
from sandstream.cli.session import say
from sandstream.settings import Settings


def has_key(provider: str) -> bool:
    """Is it a vendor's, and is there a key for it here?"""
    try:
        entry = registry.find(provider)
    except ProviderError:  # its package does not work
        return False
    return bool(entry.key_variables) and not entry.lacks_key(environment())


def not_asked(provider: str, error: ProviderError) -> None:
    say(f"sandstream: boxes of {provider} were not looked for: {error}")


async def boxes_at_vendors(bus: Bus) -> dict[str, list[BoxInfo]]:
    """By provider: the boxes of this installation. Vendors that cannot be asked are not in it; a
    message on stderr names them.
    """
    found: dict[str, list[BoxInfo]] = {}
    for name in filter(has_key, registry.names()):
        try:
            provider = make_provider(name, Settings.from_env().home)
            try:
                await provider.check()
                found[name] = await provider.list_owned(await installation_of(bus))
            finally:
                await provider.close()
        except ProviderError as error:
            not_asked(name, error)
    return found
