"""A plain client of the `openai` package, for API calls that are not model calls: conversations.
The package itself determines its key, base URL, organization and retries.
"""

from __future__ import annotations

from typing import Any


def plain_client(api_key: str | None = None) -> Any:
    """A new client. The caller closes it."""
    from openai import AsyncOpenAI

    return AsyncOpenAI(api_key=api_key)
