"""The built-in base of a sandbox agent's system prompt."""

from __future__ import annotations

from sandstream.sandbox.base_prompt import BASE_PROMPT


def get_default_sandbox_instructions() -> str:
    """The base prompt of a ``SandboxAgent`` without ``base_instructions``."""
    return BASE_PROMPT
