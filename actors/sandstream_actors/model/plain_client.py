"""A client of the `openai` package as its own documentation makes it, for the calls that are not
model calls: conversations. Its key, base URL, organization and retries are the package's business.
"""

from __future__ import annotations

from typing import Any


def plain_client(api_key: str | None = None) -> Any:
    """A new client. Whoever asked for it closes it."""
    from openai import AsyncOpenAI

    return AsyncOpenAI(api_key=api_key)
