"""The engine: calls of its API in threads, each with a time limit, and errors in our own words.

This is the only module that imports the ``docker`` package, and it does so on first use.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sandstream_providers.docker.errors import (
    EngineConflict,
    EngineFull,
    EngineRefused,
    EngineSilent,
    NoSuchContainer,
)
from sandstream_providers.environment import variables
from sandstream_providers.interface import ProviderError, ProviderUnavailable

T = TypeVar("T")
CALL_S = 60.0
"""How long the engine may take to answer a call: many containers that start at once are slow."""
LEAST_API = (1, 41)
"""Engine 20.10."""
USUAL = "unix:///var/run/docker.sock"
_THREADS = 24
_QUICK_S = 3.0
_WANTS_TLS = "HTTP request to an HTTPS server"
_NOTHING_THERE = {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR, errno.EHOSTUNREACH}
_FULL = (errno.ENOSPC, errno.EDQUOT)
_INSTALL = "the Docker provider needs the package docker: pip install 'sandstream[docker]'"
_START = (
    "start the engine (systemctl start docker, or open Docker Desktop), or set DOCKER_HOST to "
    "where it listens"
)
_ALLOW = (
    "let this user talk to the engine: add it to the group of the socket (usermod -aG docker "
    "NAME, then log in again), use a rootless engine, or run as root. Access to an "
    "engine means the rights of root on its machine"
)


class Engine:
    """One engine. Its connections are opened on first use and closed by :meth:`close`."""

    def __init__(self, url: str = "", *, call_s: float = CALL_S, client: Any = None) -> None:
        """Args:
        url: Where it listens. Empty: what DOCKER_HOST says, or the usual socket.
        call_s: The longest time for one answer.
        client: A ``docker.DockerClient`` of the caller's, who closes it.
        """
        self._url = url
        self._call_s = call_s
        self._given = getattr(client, "api", client)
        self._api: Any = self._given
        self._connecting = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sandstream-docker")

    async def call(self, doing: str, work: Callable[[Any], T]) -> T:
        """Do something with the ``docker.APIClient`` in a thread.

        Args:
            doing: What is done, for messages: "start the container x".
            work: Gets the client. It must not wait for anything but the engine.

        Raises:
            NoSuchContainer, EngineConflict, EngineRefused: The engine said no.
            EngineSilent: It did not answer in time; whether it did it is unknown.
            ProviderUnavailable: It cannot be reached.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._do, doing, work)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Something that waits for a stream. Its errors are its own."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def quick(self, doing: str, work: Callable[[Any], bool]) -> bool:
        """The same for callers that cannot wait long; False if the engine does not say in time."""
        asked = self._threads.submit(self._do, doing, work)
        try:
            return asked.result(timeout=_QUICK_S)
        except (ProviderError, TimeoutError):
            return False

    def _do(self, doing: str, work: Callable[[Any], T]) -> T:
        try:
            self._knock()
            return work(self.api())
        except ProviderError:
            raise
        except Exception as error:
            translated = self._translated(doing, error)
            if translated is None:
                raise
            raise translated from error

    def _knock(self) -> None:
        """The library forgets to close a unix socket if no engine answers."""
        path = (self.url or USUAL).removeprefix("unix://")
        if path.startswith("/") and self._given is None:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(self._call_s)
                probe.connect(path)

    def api(self) -> Any:
        """The ``docker.APIClient``, connected. Blocks: for threads only."""
        with self._connecting:
            if self._api is None:
                self._api = self._connected()
            return self._api

    def _connected(self) -> Any:
        docker = _package()
        settings = docker.utils.kwargs_from_env()
        if self._url:
            settings["base_url"] = self._url
        # the pool is as wide as our threads: what does not fit is closed after each call
        settings.update(timeout=self._call_s, max_pool_size=_THREADS)
        least = ".".join(map(str, LEAST_API))
        with contextlib.closing(_client(docker, settings, least)) as probe:
            version = str(probe.version(api_version=False)["ApiVersion"])
        if tuple(int(part) for part in version.split(".")) < LEAST_API:
            raise ProviderUnavailable(
                f"the Docker engine is too old: its API is {version}, and boxes need {least} "
                "(Docker 20.10). Update the engine"
            )
        return _client(docker, settings, version)

    @property
    def url(self) -> str:
        """Where it listens, as far as it was said."""
        return self._url or variables().get("DOCKER_HOST", "")

    @property
    def is_expected(self) -> bool:
        """A setting names an engine, or the usual place has a socket."""
        return bool(self.url) or Path(USUAL.removeprefix("unix://")).exists()

    @property
    def place(self) -> str:
        """Where the engine is, for people."""
        if self._given is not None:
            return str(self._given.base_url).replace("http+docker://localhost", "the local socket")
        return self.url or USUAL

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._api is not None and self._api is not self._given:
            await asyncio.to_thread(self._api.close)
        self._api = self._given

    # --- errors -----------------------------------------------------------------------------------

    def _translated(self, doing: str, error: Exception) -> ProviderError | None:
        docker = _package()
        if isinstance(error, docker.errors.APIError):
            return _refusal(doing, error)
        causes = [*_causes(error)]
        names = {type(it).__name__ for it in causes}
        numbers = {it.errno for it in causes if isinstance(it, OSError) and it.errno}
        if any(isinstance(it, ssl.SSLError) for it in causes):  # first: its errno looks like EPERM
            return ProviderUnavailable(
                f"cannot {doing}: no TLS connection to the Docker engine at {self.place}: {error}. "
                "Check the certificates in DOCKER_CERT_PATH (ca.pem, cert.pem, key.pem)"
            )
        if errno.EACCES in numbers or errno.EPERM in numbers:
            return ProviderUnavailable(
                f"cannot {doing}: no permission to talk to the Docker engine at {self.place}; "
                f"{_ALLOW}"
            )
        has_no_host = any(isinstance(it, socket.gaierror) for it in causes)
        if has_no_host or numbers & _NOTHING_THERE:
            return EngineSilent(
                f"cannot {doing}: no Docker engine answers at {self.place}; {_START}"
            )
        if names & {"ReadTimeout", "ConnectTimeout", "ReadTimeoutError", "TimeoutError"}:
            return EngineSilent(
                f"cannot {doing}: the Docker engine did not answer within {self._call_s:.0f} s. "
                "Look at its log, and at the load of its machine"
            )
        if isinstance(error, OSError) or names & {"ConnectionError", "ProtocolError"}:
            return EngineSilent(
                f"cannot {doing}: the connection to the Docker engine broke: {error}"
            )
        if isinstance(error, docker.errors.TLSParameterError):
            return ProviderUnavailable(
                f"cannot {doing}: DOCKER_TLS_VERIFY is set, and the certificates for it are not "
                "there: set DOCKER_CERT_PATH to the directory with ca.pem, cert.pem and key.pem"
            )
        if isinstance(error, docker.errors.DockerException):
            return ProviderUnavailable(f"cannot {doing}: {error}; {_START}")
        return None


async def remove_container(engine: Engine, container: str) -> None:
    """Remove a container with its anonymous volumes. No error if it does not exist any more."""
    doing = f"remove the container {container}"
    try:
        await engine.call(doing, lambda api: api.remove_container(container, force=True, v=True))
    except (NoSuchContainer, EngineConflict):
        return


def _refusal(doing: str, error: Any) -> ProviderError:
    status = error.response.status_code if error.response is not None else 0
    kind = {404: NoSuchContainer, 409: EngineConflict}.get(status, EngineRefused)
    why = str(error.explanation or error).strip()
    if _WANTS_TLS in why:
        return ProviderUnavailable(
            f"cannot {doing}: the Docker engine wants TLS. Set DOCKER_TLS_VERIFY=1, and "
            "DOCKER_CERT_PATH to the directory with ca.pem, cert.pem and key.pem"
        )
    if any(os.strerror(number).lower() in why.lower() for number in _FULL):
        kind, why = (
            EngineFull,
            f"{why}. Free space on its disk: docker system df, docker system prune",
        )
    return kind(f"cannot {doing}: the Docker engine says: {why}", status=status, why=why)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and all that led to it: libraries keep causes among the arguments."""
    seen: set[int] = set()
    waiting: list[Any] = [error]
    while waiting:
        found = waiting.pop()
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        waiting += [found.__cause__, found.__context__, *found.args]
        waiting.append(getattr(found, "reason", None))


def _client(docker: Any, settings: dict[str, Any], version: str) -> Any:
    """A client of this API version, which asks nothing yet."""
    api = docker.APIClient(**settings, version=version)
    if "tls" in settings:
        # otherwise a bundle of authorities that the environment names (REQUESTS_CA_BUNDLE) would
        # count, and not the engine's own
        api.trust_env = False
    return api


def _package() -> Any:
    try:
        import docker
    except ImportError as error:
        raise ProviderUnavailable(_INSTALL) from error
    return docker
