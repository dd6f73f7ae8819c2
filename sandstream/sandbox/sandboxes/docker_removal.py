"""The removal service of the Docker client, for programs that were written for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandstream.sandbox.sandboxes._docker_package import load_docker

if TYPE_CHECKING:
    from docker import DockerClient


class DockerRemovalService:
    """Holds a connection to an engine and limits. It does not remove anything itself.

    In the original SDK, a helper with the rights of the host removes directory trees, because the
    program cannot trust commands of the container with it. Here the agent or the script inside the
    container removes them: it never leaves the container's own files, needs no rights on the host,
    and checks every path after following links. So the limits are kept, but nothing has to be
    limited, and the service needs neither root nor the machine of the engine.

    Args:
        max_concurrent_removals: Must be positive; has no effect.
        max_entry_visits: Must be positive; has no effect.
        max_cpu_seconds: Must be positive; has no effect.
        socket_path: The engine's socket.

    Raises:
        ValueError: A limit is not positive.

    Example:
        service = DockerRemovalService(
            max_concurrent_removals=4, max_entry_visits=100_000, max_cpu_seconds=10
        )
        client = DockerSandboxClient(service.docker_client, removal_service=service)
    """

    def __init__(
        self,
        *,
        max_concurrent_removals: int,
        max_entry_visits: int,
        max_cpu_seconds: int,
        socket_path: str = "/var/run/docker.sock",
    ) -> None:
        if min(max_concurrent_removals, max_entry_visits, max_cpu_seconds) <= 0:
            raise ValueError("the limits of a DockerRemovalService must be positive")
        self.max_concurrent_removals = max_concurrent_removals
        self.max_entry_visits = max_entry_visits
        self.max_cpu_seconds = max_cpu_seconds
        self.docker_client: DockerClient = load_docker().DockerClient(
            base_url=f"unix://{socket_path}"
        )

    def close(self) -> None:
        """Close the connection."""
        self.docker_client.close()
