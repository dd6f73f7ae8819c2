"""Calls to E2B's control plane with one account: the SDK, our deadlines, and errors in our words.

The SDK's import takes half a second, so it happens on first use and in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Any, TypeVar

from sandstream_providers.e2b.account import KEY_VARIABLE, Account
from sandstream_providers.e2b.errors import Translate, translated
from sandstream_providers.hosted.calls import within
from sandstream_providers.hosted.errors import VendorRefused
from sandstream_providers.interface import ProviderError, ProviderUnavailable

T = TypeVar("T")
LEAST_VERSION = (2, 63)
MARGIN_S = 2.0
"""The SDK gives up first, and says more."""
_PAGE = 100
_INSTALL = "the E2B provider needs the package e2b: pip install 'sandstream[e2b]'"


class Control:
    """The control plane as one account sees it."""

    def __init__(self, account: Account, call_s: float) -> None:
        """``call_s``: the longest time for one answer, unless a call has its own."""
        self.account = account
        self.call_s = call_s
        self._package: Any = None

    async def package(self) -> Any:
        """The package ``e2b``. Raises VendorRefused if there is no key, so no call can succeed."""
        if not self.account.api_key:
            raise VendorRefused(
                f"E2B needs a key: set {KEY_VARIABLE} where the sandbox actor runs. Those of E2B's "
                "own cloud are at https://e2b.dev/dashboard"
            )
        if self._package is None:
            self._package = await asyncio.to_thread(_imported)
        return self._package

    async def call(
        self,
        what: str,
        work: Callable[[Any, dict[str, object]], Awaitable[T]],
        *,
        seconds: float | None = None,
        translate: Translate = translated,
    ) -> T:
        """Do one thing, which the message of an error names.

        Args:
            what: "pause the sandbox".
            work: Gets the SDK's class of sandboxes, and the options for one of its methods.
            seconds: The longest time for the answer.
            translate: What the SDK's exceptions mean.
        """
        limit_s = self.call_s if seconds is None else seconds
        package = await self.package()
        try:
            return await within(
                f"E2B: {what}",
                limit_s + MARGIN_S,
                work(package.AsyncSandbox, self.options(limit_s)),
            )
        except ProviderError:
            raise
        except Exception as error:
            raise translate(what, error) from error

    def options(self, seconds: float) -> dict[str, object]:
        """Who we are, and where. The SDK waits twice as long as it is told."""
        return {
            "api_key": self.account.api_key,
            "api_url": self.account.api_url or None,
            "domain": self.account.domain or None,
            "sandbox_url": self.account.sandbox_url or None,
            "request_timeout": seconds / 2,
            "retries": 0,  # the host repeats what may be repeated
            "debug": False,
        }

    async def listed(self, labels: dict[str, str], *, most: int | None = None) -> list[Any]:
        """The boxes with these metadata, asleep or awake, as the SDK describes them.

        Args:
            labels: An engine may ignore this filter; foreign boxes are left out here.
            most: Ask for one page of this size only.
        """
        package = await self.package()
        state = package.SandboxState
        query = package.SandboxQuery(metadata=labels or None, state=[state.RUNNING, state.PAUSED])
        found: list[Any] = []
        token: str | None = None

        async def page(sandboxes: Any, options: dict[str, object]) -> Any:
            pages = sandboxes.list(query=query, limit=most or _PAGE, next_token=token, **options)
            found.extend(await pages.next_items())
            return pages.next_token if pages.has_next else None

        while True:
            token = await self.call("list sandboxes", page)
            if token is None or most is not None:
                return [info for info in found if labels.items() <= info.metadata.items()]


def _imported() -> Any:
    try:
        found = metadata.version("e2b")
        import e2b
    except ImportError as error:
        raise ProviderUnavailable(f"{_INSTALL} ({error})") from error
    if tuple(int(part) for part in found.split(".")[:2]) < LEAST_VERSION:
        wanted = ".".join(map(str, LEAST_VERSION))
        raise ProviderUnavailable(f"{_INSTALL}. It is {found} here, and must be {wanted} or newer")
    return e2b
