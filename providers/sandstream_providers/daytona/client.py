"""The API client of Daytona's SDK, with deadlines and with errors of ours.

We use the client that the SDK itself is made of, and not the class ``AsyncDaytona``. That class
learns of changes from a Socket.IO connection, whose library takes over Ctrl-C of the whole process
and cancels all of its tasks; without that connection it asks ten times a second. It also looks a
box up before each call, and reads ``.env`` files of the working directory.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sandstream_providers.daytona.account import DaytonaAccount
from sandstream_providers.daytona.errors import DaytonaRefused, refusal, silence
from sandstream_providers.hosted.calls import within
from sandstream_providers.interface import ProviderError, ProviderUnavailable

if TYPE_CHECKING:
    import aiohttp
    from daytona_api_client_async import SandboxApi
    from daytona_toolbox_api_client_async import Configuration, ProcessApi

T = TypeVar("T")

INSTALL = "the package for Daytona is not installed: pip install 'sandstream[daytona]'"
_SOURCE = "sdk-python-async"
_IDLE_CONNECTION_S = 30.0
_PING_S = 20.0
"""How often to ping: proxies close connections that are silent for long."""


class _Open(NamedTuple):
    session: aiohttp.ClientSession
    sandboxes: SandboxApi
    daemon: ProcessApi
    headers: dict[str, str]


class DaytonaClient:
    """One account, and the connections of this process to it. All calls are of one event loop."""

    def __init__(self, account: DaytonaAccount, *, call_s: float) -> None:
        """Args:
        account: Whose boxes these are.
        call_s: The deadline of a call, unless it has its own.
        """
        self.account = account
        self.call_s = call_s
        self._opening = asyncio.Lock()
        self._open: _Open | None = None
        self._is_closed = False

    async def ask(
        self,
        doing: str,
        call: Callable[[SandboxApi], Awaitable[T]],
        *,
        seconds: float | None = None,
    ) -> T:
        """One call about boxes. ``doing`` completes "Daytona cannot …"."""
        api = (await self._opened()).sandboxes
        return await self._answered(doing, lambda: call(api), seconds, repeatable=True)

    async def run(
        self,
        doing: str,
        place: str,
        call: Callable[[ProcessApi], Awaitable[T]],
        *,
        seconds: float | None = None,
    ) -> T:
        """One call to the daemon in a box. ``place`` is the box's own address."""
        api = copy.copy((await self._opened()).daemon)
        api.api_client = copy.copy(api.api_client)  # with the same connections
        api.api_client.configuration = _at(place)
        return await self._answered(doing, lambda: call(api), seconds, repeatable=False)

    async def websocket(
        self, doing: str, url: str, protocols: Sequence[str]
    ) -> aiohttp.ClientWebSocketResponse:
        """A new websocket to the daemon in a box."""
        opened = await self._opened()
        return await self._answered(
            doing,
            lambda: opened.session.ws_connect(
                url, headers=opened.headers, protocols=protocols, heartbeat=_PING_S
            ),
            None,
            repeatable=False,
        )

    async def close(self) -> None:
        self._is_closed = True
        async with self._opening:
            opened, self._open = self._open, None
            if opened is not None:
                await opened.session.close()

    async def _answered(
        self,
        doing: str,
        call: Callable[[], Awaitable[T]],
        seconds: float | None,
        *,
        repeatable: bool,
    ) -> T:
        from aiohttp import ClientError, WSServerHandshakeError
        from daytona_api_client_async.exceptions import ApiException
        from daytona_toolbox_api_client_async.exceptions import ApiException as DaemonException

        deadline = self.call_s if seconds is None else seconds
        try:
            return await within(f"asked Daytona to {doing}", deadline, call())
        except (ApiException, DaemonException) as error:
            status, said, headers = error.status or 0, error.body or "", error.headers or {}
            raise refusal(doing, status, said, headers, repeatable=repeatable) from error
        except WSServerHandshakeError as error:
            headers = error.headers or {}
            raise refusal(doing, error.status, "", headers, repeatable=repeatable) from error
        except (ClientError, OSError) as error:
            raise silence(doing, error) from error
        except ValueError as error:  # also what pydantic raises
            raise DaytonaRefused(
                f"Daytona was asked to {doing}, and its answer cannot be read: {error}. "
                "A newer version of the package daytona may help"
            ) from error

    async def _opened(self) -> _Open:
        """Raises VendorRefused without a key, ProviderUnavailable without the SDK."""
        if self._open is not None:
            return self._open
        who = self.account.headers()
        async with self._opening:
            if self._is_closed:
                raise ProviderError("the connection to Daytona is closed")
            if self._open is None:
                self._open = await self._connected(who)
            return self._open

    async def _connected(self, who: dict[str, str]) -> _Open:
        sandboxes, daemon = await asyncio.to_thread(_sdk, self.account.api_url)
        import aiohttp

        said = _version()
        headers = {
            **who,
            "X-Daytona-Source": _SOURCE,
            "X-Daytona-SDK-Version": said,
            "User-Agent": f"{_SOURCE}/{said}",
        }
        session = aiohttp.ClientSession(
            # a terminal is a connection too, and there is one for each box
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_CONNECTION_S),
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=True,
        )
        for client in (sandboxes.api_client, daemon.api_client):
            client.default_headers.update(headers)
            client.rest_client.pool_manager = session
        return _Open(session, sandboxes, daemon, headers)


def _sdk(url: str) -> tuple[SandboxApi, ProcessApi]:
    """Imports take half a second, and each client reads the certificates of this machine."""
    try:
        import daytona_api_client_async as control
        import daytona_toolbox_api_client_async as toolbox
    except ImportError as error:
        raise ProviderUnavailable(INSTALL) from error
    client = control.ApiClient(control.Configuration(host=url.rstrip("/")))
    return control.SandboxApi(client), toolbox.ProcessApi(toolbox.ApiClient(_at("")))


def _at(place: str) -> Configuration:
    from daytona_toolbox_api_client_async import Configuration

    return Configuration(host=place)


def _version() -> str:
    try:
        return version("daytona")
    except PackageNotFoundError:
        return version("daytona_api_client_async")
