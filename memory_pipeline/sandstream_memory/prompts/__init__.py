"""The texts that models are given, one file for each version."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def prompt(name: str) -> str:
    """The text of a prompt, without the line break at its end."""
    return resources.files(__name__).joinpath(f"{name}.txt").read_text("utf-8").rstrip("\n")


def with_extra(text: str, extra_prompt: str | None) -> str:
    """The prompt and what the developer of the agent wants to be minded besides."""
    extra = (extra_prompt or "").strip()
    if not extra:
        return text
    return f"{text}\n\n# Guidance of the developer of this agent\n\n{extra}"
