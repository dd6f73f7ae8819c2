"""Paginated listings of a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sandstream.exceptions import UserError
from sandstream.mcp import package


class EndlessListing(UserError):
    """A listing has too many pages, or its cursors repeat. Retrying does not help."""


class Listing:
    """The pages of one listing so far. After a failure it continues from there."""

    def __init__(self, kind: str, server: str, max_pages: int | None) -> None:
        self.kind = kind
        self.items: list[Any] = []
        self.first_page: Any = None
        self._server = server
        self._max_pages = max_pages
        self._cursor: str | None = None
        self._seen: set[str | None] = set()

    async def collect(self, fetch: Callable[[str | None], Awaitable[Any]]) -> None:
        """Fetch the missing pages."""
        while True:
            if self._max_pages is not None and len(self._seen) >= self._max_pages:
                raise EndlessListing(
                    f"MCP {self.kind} listing exceeded max_list_pages. Increase max_list_pages to "
                    "allow more pages, or check the server pagination."
                )
            page = await fetch(self._cursor)
            if self.first_page is None:
                self.first_page = page
            self.items.extend(getattr(page, f"{self.kind}s"))
            self._seen.add(self._cursor)
            following = package.next_cursor(page)
            if following is None:
                return
            if following in self._seen:
                raise EndlessListing(
                    f"MCP server '{self._server}' returned a repeated cursor while listing "
                    f"{self.kind}s."
                )
            self._cursor = following
