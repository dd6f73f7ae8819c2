"""Assembles the system prompt of a sandbox agent from its parts. Pure functions."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Any

from sandstream.sandbox.remote_mount_policy import build_remote_mount_policy_instructions

TREE_DEPTH = 3


def assemble_prompt(
    *,
    base: str | None,
    agent_instructions: str | None,
    capability_texts: Sequence[str | None],
    manifest: Any,
    cwd: str | None = None,
) -> str:
    """All non-empty sections, in this order: base, the agent's instructions, the capabilities,
    remote mounts, and the contents of the workspace.

    ``cwd`` is the run's working directory, relative to the workspace root.
    """
    capabilities = "\n\n".join(text for text in capability_texts if text)
    sections = [
        base,
        _section("Agent instructions", agent_instructions),
        _section("Sandbox capability instructions", capabilities),
        _section("Sandbox remote mount policy", build_remote_mount_policy_instructions(manifest)),
        _filesystem(manifest, cwd),
    ]
    return "\n\n".join(section for section in sections if section)


def _section(title: str, body: str | None) -> str | None:
    return f"# {title}\n\n{body}" if body else None


def _filesystem(manifest: Any, cwd: str | None) -> str:
    lines = ["# Filesystem", "The workspace was set up like this:"]
    if cwd:
        directory = posixpath.join(str(manifest.root), cwd)
        lines = [
            "# Filesystem",
            f"Your working directory is `{directory}`. Relative paths given to `exec_command`, "
            "`view_image` and `apply_patch` start there; other tools have their own rules.",
            f"The root of the workspace is `{manifest.root}`. Files outside of the working "
            "directory can be reached, and may be shared with other runs.",
            "The workspace was set up like this:",
        ]
    tree = manifest.describe(depth=TREE_DEPTH).strip()
    return "\n".join(lines) + f"\n\n{tree}"
