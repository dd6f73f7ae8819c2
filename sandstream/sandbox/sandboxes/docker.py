"""Sandboxes in containers of a Docker engine. The package ``docker`` is imported on use only."""

from __future__ import annotations

import posixpath
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator
from sandstream_providers.docker.labels import container_name

from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.plan import check_manifest
from sandstream.sandbox.sandboxes._docker_package import load_docker
from sandstream.sandbox.sandboxes._process_link import ProcessLink
from sandstream.sandbox.sandboxes.docker_removal import DockerRemovalService
from sandstream.sandbox.session.dependencies import Dependencies
from sandstream.sandbox.session.link import SandboxLink
from sandstream.sandbox.session.manager import Instrumentation
from sandstream.sandbox.session.sandbox_client import (
    BaseSandboxClient,
    BaseSandboxClientOptions,
)
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.session.settings import SandboxSettings, limits_of

if TYPE_CHECKING:
    from docker import DockerClient

__all__ = [
    "DockerRemovalService",
    "DockerSandboxClient",
    "DockerSandboxClientOptions",
    "DockerSandboxSession",
    "DockerSandboxSessionState",
]

PROVIDER = "docker"
MOST_POOLED = 64
Limits = dict[str, float | int | None]


class _Container(BaseModel):
    """What a container is made of: the options of a client, kept in the states of its sessions."""

    image: str = Field(min_length=1)
    """Any image with a shell. It is pulled if the engine does not have it."""
    exposed_ports: tuple[int, ...] = ()
    """Each is published on a free port of the loopback address."""
    network_mode: Literal["none"] | None = None
    """``none``: no network. ``None``: the engine's bridge network."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Added to the container's labels."""
    runtime: str = ""
    """The engine's runtime, such as ``runsc``; empty: its default."""
    user: str = ""
    """The user of all commands; empty: the provider's choice for the image."""
    limits: Limits = Field(default_factory=dict)
    """Any of ``cpus``, ``memory_mb``, ``processes``, ``disk_mb``, ``file_mb`` and ``wall_s``;
    ``None`` removes a default limit."""
    read_only: bool = False
    """Only the workspace and ``/tmp`` can be written."""
    platform: str = ""
    """Such as ``linux/arm64``; empty: the engine's own."""
    egress: tuple[str, ...] = ()
    """The only hosts that the container can reach, through a proxy: it has no other network then.
    """
    pool: int = Field(default=0, ge=0, le=MOST_POOLED)
    """So many containers of this kind are kept ready."""
    agent: bool | None = None
    """False: no agent of ours runs in the container. ``None``: it runs if the image can."""
    idle_s: float | None = None
    """Seconds without an operation after which the container is paused; ``None`` for never."""

    @model_validator(mode="after")
    def _check_network(self) -> Self:
        if self.network_mode == "none" and self.exposed_ports:
            raise ValueError("exposed_ports need a network: leave out network_mode='none'")
        limits_of(self.limits)
        return self


_OURS = ("runtime", "user", "read_only", "platform", "egress", "pool", "agent")
"""Sent to the provider by these names, if they are not at their defaults."""


class DockerSandboxSessionState(_Container, SandboxSessionState):
    """The state of a session in a container."""

    type: Literal["docker"] = "docker"  # pyright: ignore[reportIncompatibleVariableOverride]
    container_id: str = ""
    """The container's name, known from the first start on. The engine takes it as an id."""


class DockerSandboxClientOptions(BaseSandboxClientOptions, _Container):
    """Options of new containers.

    Example:
        options = DockerSandboxClientOptions(
            image="python:3.12-slim", exposed_ports=(8000,), limits={"memory_mb": 2048}
        )
    """

    type: Literal["docker"] = "docker"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        image: str,
        exposed_ports: tuple[int, ...] = (),
        *,
        type: Literal["docker"] = "docker",
        network_mode: Literal["none"] | None = None,
        labels: dict[str, str] | None = None,
        runtime: str = "",
        user: str = "",
        limits: Limits | None = None,
        read_only: bool = False,
        platform: str = "",
        egress: tuple[str, ...] | list[str] = (),
        pool: int = 0,
        agent: bool | None = None,
        idle_s: float | None = None,
    ) -> None:
        super().__init__(
            image=image,
            exposed_ports=exposed_ports,
            type=type,
            network_mode=network_mode,
            labels={} if labels is None else labels,
            runtime=runtime,
            user=user,
            limits={} if limits is None else limits,
            read_only=read_only,
            platform=platform,
            egress=tuple(egress),
            pool=pool,
            agent=agent,
            idle_s=idle_s,
        )


class DockerSandboxSession(SandboxSession):
    """A session whose sandbox is a container."""

    state: DockerSandboxSessionState

    @property
    def container_id(self) -> str:
        """The container's name; empty before the first start."""
        return self.state.container_id

    async def exists(self) -> bool:
        """Whether there is a container for it."""
        return (await self.remote.record()).is_live

    async def _start(self, *, anew: bool = False) -> bool:
        is_new = await super()._start(anew=anew)
        self.state.container_id = container_name((await self.remote.record()).key)
        return is_new


class DockerSandboxClient(BaseSandboxClient[DockerSandboxClientOptions]):
    """Sandboxes in containers, served by this process.

    The containers are hardened by default, and any image that has a shell will do. Needs a Docker
    engine and the package ``docker``: ``pip install sandstream[docker]``.

    Args:
        docker_client: Its engine is used; ``None``: the one that ``DOCKER_HOST`` names, else the
            default socket. It stays the caller's to close.
        instrumentation: Receives events about the operations of sessions.
        dependencies: Objects for snapshots and other parts of sessions; each session gets a copy.
        removal_service: Accepted for compatibility; must have the same ``docker_client``.

    Raises:
        ValueError: ``removal_service`` belongs to another ``docker_client``.

    Example:
        client = DockerSandboxClient()
        options = DockerSandboxClientOptions(image="python:3.12-slim")
        async with await client.create(options=options) as session:
            print((await session.exec("python -V")).stdout.decode())
    """

    backend_id = PROVIDER

    def __init__(
        self,
        docker_client: DockerClient | None = None,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
        removal_service: DockerRemovalService | None = None,
    ) -> None:
        super().__init__(instrumentation=instrumentation, dependencies=dependencies)
        if removal_service is not None and removal_service.docker_client is not docker_client:
            raise ValueError("removal_service must belong to the docker_client of this client")
        self._given = docker_client
        self._own: DockerClient | None = None
        self._removal_service = removal_service
        endpoint = "" if docker_client is None else endpoint_of(docker_client)
        self._link = ProcessLink(PROVIDER, endpoint=endpoint)

    @property
    def docker_client(self) -> DockerClient:
        """The client for the engine's own API."""
        if self._given is not None:
            return self._given
        own = self._own
        if own is None:
            own = self._own = load_docker().from_env()
        return own

    @property
    def link(self) -> SandboxLink:
        return self._link

    @property
    def state_class(self) -> type[SandboxSessionState]:
        return DockerSandboxSessionState

    @property
    def session_class(self) -> type[SandboxSession]:
        return DockerSandboxSession

    def settings(self, options: DockerSandboxClientOptions | None) -> SandboxSettings:
        if options is None:
            raise ValueError("DockerSandboxClient needs DockerSandboxClientOptions(image=...)")
        return _settings(options)

    def state_fields(self, options: DockerSandboxClientOptions | None) -> dict[str, Any]:
        return {} if options is None else _chosen(options)

    def settings_of(
        self, state: SandboxSessionState, options: DockerSandboxClientOptions | None
    ) -> SandboxSettings:
        if options is None and isinstance(state, DockerSandboxSessionState):
            return _settings(state)
        return self.settings(options)

    def check_manifest(self, manifest: Manifest) -> None:
        check_manifest(manifest, supports_users=True, provider=PROVIDER)
        _check_grants(manifest)

    def image_exists(self, image: str) -> bool:
        """Whether the engine has the image. Blocks.

        Args:
            image: The name of the image, with its tag.
        """
        errors = load_docker().errors
        try:
            self.docker_client.images.get(image)
        except errors.ImageNotFound:
            return False
        return True

    def get_container(self, container_id: str) -> Any:
        """The engine's object of a container; None if there is none. Blocks.

        Args:
            container_id: The container's id or name, such as ``session.container_id``.
        """
        errors = load_docker().errors
        try:
            return self.docker_client.containers.get(container_id)
        except errors.NotFound:
            return None

    async def close(self) -> None:
        """Close a connection that this client has opened. Sandboxes belong to their actor."""
        if self._own is not None:
            self._own.close()
            self._own = None


def _chosen(container: _Container) -> dict[str, Any]:
    return {name: getattr(container, name) for name in _Container.model_fields}


def _settings(container: _Container) -> SandboxSettings:
    options: dict[str, Any] = {"image": container.image}
    if container.labels:
        options["labels"] = dict(container.labels)
    for name in _OURS:
        value = getattr(container, name)
        if value != _Container.model_fields[name].default:
            options[name] = list(value) if isinstance(value, tuple) else value
    return SandboxSettings(
        ports=tuple(container.exposed_ports),
        network="none" if container.network_mode == "none" or container.egress else "host",
        limits=limits_of(container.limits),
        options=options,
        idle_s=container.idle_s,
        grants_inside=True,
    )


def _check_grants(manifest: Manifest) -> None:
    """A directory of the host cannot lie in the workspace, nor share its place with another."""
    root = PurePosixPath(posixpath.normpath(manifest.root))
    mounted: set[str] = set()
    seen: set[str] = set()
    for grant in manifest.extra_path_grants:
        path = PurePosixPath(grant.path)
        if grant.path in seen and (grant.host_path is not None or grant.path in mounted):
            raise ValueError(f"several path grants have the path {grant.path}")
        seen.add(grant.path)
        if grant.host_path is None:
            continue
        mounted.add(grant.path)
        if path.is_relative_to(root) or root.is_relative_to(path):
            raise ValueError(
                f"the path grant {grant.path} with a host_path must lie outside the workspace "
                f"{manifest.root}"
            )


def endpoint_of(client: Any) -> str:
    """Where a ``docker.DockerClient`` finds its engine.

    Raises:
        ValueError: for a connection that other clients cannot open, such as one over SSH.
    """
    url: str = client.api.base_url
    if not url.startswith("http+docker://"):
        return url
    path = getattr(client.api.get_adapter(url), "socket_path", "")
    if not path:
        raise ValueError(f"docker_client connects by {url}: give one with a unix socket or TCP")
    return f"unix://{path}"
