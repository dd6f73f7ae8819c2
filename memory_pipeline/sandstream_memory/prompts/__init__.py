"""The prompts for models, one file per version."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def prompt(name: str) -> str:
    """The text of a prompt, without the newline at its end."""
    return resources.files(__name__).joinpath(f"{name}.txt").read_text("utf-8").rstrip("\n")


def with_extra(text: str, extra_prompt: str | None) -> str:
    """The prompt, followed by additional guidance from the agent's developer."""
    extra = (extra_prompt or "").strip()
    if not extra:
        return text
    return f"{text}\n\n# Guidance of the developer of this agent\n\n{extra}"
