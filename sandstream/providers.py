"""For packages that bring a sandbox provider along; see ``docs/providers.md``."""

from __future__ import annotations

from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.box.link import Streams
from sandstream_providers.box.start import (
    TOKEN,
    agent_command,
    agent_source,
    exec_streams,
    new_token,
    relay_command,
)
from sandstream_providers.box_host import (
    BoxHost,
    CloneRooms,
    HostedBox,
    LeasedBoxes,
    ShellBoxes,
    StartWatch,
)
from sandstream_providers.interface import (
    Box,
    BoxGone,
    BoxInfo,
    BoxSpec,
    ExecSpec,
    Limits,
    Output,
    Provider,
    ProviderError,
    ProviderUnavailable,
)
from sandstream_providers.registry import Finding, ProviderEntry, ProviderSettings, Question, names
from sandstream_providers.shell.channel import Answer, Shell, ShellSettings

__all__ = [
    "AgentProvider",
    "Answer",
    "Box",
    "BoxGone",
    "BoxHost",
    "BoxInfo",
    "BoxSpec",
    "CloneRooms",
    "ExecSpec",
    "Finding",
    "HostedBox",
    "LeasedBoxes",
    "Limits",
    "Output",
    "Provider",
    "ProviderEntry",
    "ProviderError",
    "ProviderSettings",
    "ProviderUnavailable",
    "Question",
    "Shell",
    "ShellBoxes",
    "ShellSettings",
    "StartWatch",
    "Streams",
    "TOKEN",
    "agent_command",
    "agent_source",
    "exec_streams",
    "names",
    "new_token",
    "relay_command",
]
