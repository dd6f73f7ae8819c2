"""Capabilities of an agent in its sandbox: the built-in ones, and the base for your own."""

from __future__ import annotations

from sandstream.sandbox.capabilities.capabilities import Capabilities
from sandstream.sandbox.capabilities.capability import Capability
from sandstream.sandbox.capabilities.compaction import (
    Compaction,
    CompactionModelInfo,
    CompactionPolicy,
    DynamicCompactionPolicy,
    StaticCompactionPolicy,
)
from sandstream.sandbox.capabilities.filesystem import (
    ApplyPatch,
    Filesystem,
    FilesystemToolSet,
    Vision,
)
from sandstream.sandbox.capabilities.memory import Memory
from sandstream.sandbox.capabilities.shell import Shell, ShellToolSet
from sandstream.sandbox.capabilities.skills import (
    LazySkillSource,
    LocalDirLazySkillSource,
    Skill,
    SkillMetadata,
    Skills,
)

__all__ = [
    "ApplyPatch",
    "Capabilities",
    "Capability",
    "Compaction",
    "CompactionModelInfo",
    "CompactionPolicy",
    "DynamicCompactionPolicy",
    "Filesystem",
    "FilesystemToolSet",
    "LazySkillSource",
    "LocalDirLazySkillSource",
    "Memory",
    "Shell",
    "ShellToolSet",
    "Skill",
    "SkillMetadata",
    "Skills",
    "StaticCompactionPolicy",
    "Vision",
]
