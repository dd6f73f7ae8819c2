"""What the user may say about a container: the ``options`` of a box specification."""

from __future__ import annotations

import msgspec

from sandstream_providers.interface import BoxSpec, ProviderError


class DockerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of one box."""

    image: str = ""
    runtime: str = ""
    """``runsc`` or another runtime that the engine knows. Empty: the engine's own."""
    user: str = ""
    """As ``docker run --user`` takes it. Empty: the image's, and 1000:1000 if that is root."""
    labels: dict[str, str] = {}
    read_only: bool = False
    """Only the workspace, the temporary directories and the grants can be written."""
    platform: str = ""
    """``linux/arm64`` and the like. Empty: the engine's own."""
    egress: list[str] = []
    """Hosts that the box may reach although it has no network."""
    pool: int = 0
    """How many containers of this kind to keep ready."""
    users: list[str] = []
    """Accounts to make in the container. With any, the agent is root."""
    groups: dict[str, list[str]] = {}
    """Groups to make, with their members."""
    agent: bool | None = None
    """False: use only the shell, even if the image has Python. True: fail without Python."""

    @property
    def has_users(self) -> bool:
        return bool(self.users or self.groups)


def options_of(spec: BoxSpec) -> DockerOptions:
    """Raises ProviderError for an unknown option, a wrong type, or no image."""
    known = DockerOptions.__struct_fields__
    unknown = sorted(set(spec.options) - set(known))
    if unknown:
        raise ProviderError(
            f"the Docker provider has no option {', '.join(map(repr, unknown))}; it has: "
            f"{', '.join(known)}"
        )
    try:
        options = msgspec.convert(spec.options, DockerOptions)
    except msgspec.ValidationError as error:
        raise ProviderError(f"an option of the Docker provider is wrong: {error}") from error
    if not options.image:
        raise ProviderError(
            "a Docker sandbox needs an image: DockerSandboxClientOptions(image="
            "'python:3.13-slim'), or --image on the command line"
        )
    if options.has_users and options.read_only:
        raise ProviderError("users cannot be made in a sandbox whose root is read-only")
    return options
