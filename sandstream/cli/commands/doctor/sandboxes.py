"""What ``doctor`` finds out about sandboxes: each provider says it for itself."""

from __future__ import annotations

import msgspec
from sandstream_bus.environment import local_isolation
from sandstream_providers import registry

from sandstream.cli.commands.doctor.checks import Check
from sandstream.settings import Settings


async def check_sandboxes(settings: Settings) -> list[Check]:
    """The findings of all providers that are installed."""
    asked = local_isolation()
    question = registry.Question(
        settings=registry.ProviderSettings(home=settings.home, isolation=asked),
        is_alone=settings.nats is None,
    )
    findings = [
        finding for name in registry.names() for finding in await registry.examine(name, question)
    ]
    return [Check(**msgspec.structs.asdict(finding)) for finding in findings]
