"""Which paths of the host a box may see, and where its workspace may lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sandstream_providers.interface import Grant, ProviderError

AGENT_FOLDER = "/.sandstream"
"""Where our own files lie in a box."""
_RESERVED = ("/usr", "/etc", "/proc", "/dev", "/bin", "/sbin", "/lib", "/lib64", AGENT_FOLDER)
_KERNEL = ("/proc", "/sys", "/dev")


def check_grants(grants: Sequence[Grant], home: Path, *, other_user: bool = False) -> None:
    """Grants show directories of the host, not the system's own ways in, nor other boxes."""
    for grant in grants:
        inside, outside = Path(grant.path), Path(grant.host_path)
        if not (_is_plain(grant.path) and _is_plain(grant.host_path)) or inside == Path("/"):
            raise ProviderError(f"a path grant needs absolute directories, not {grant.path!r}")
        real = outside.resolve()
        for path, taken in ((inside, (*_KERNEL, AGENT_FOLDER)), (real, _KERNEL)):
            if any(path.is_relative_to(it) for it in taken):
                raise ProviderError(f"{path} cannot be granted: the system lies there")
        if real.is_relative_to(home.resolve()) or home.resolve().is_relative_to(real):
            raise ProviderError(
                f"{grant.host_path} cannot be granted: the sandboxes themselves are kept in {home}"
            )
        if not real.exists():
            raise ProviderError(f"{grant.host_path} cannot be granted: it does not exist here")
        closed = first_closed(real if real.is_dir() else real.parent) if other_user else None
        if closed is not None:
            raise ProviderError(
                f"{grant.host_path} cannot be granted: a sandbox is another user, and {closed} is "
                f"closed to others (chmod o+x {closed} opens the way, or copy the files in)"
            )


def _is_plain(path: str) -> bool:
    return path.startswith("/") and not path.startswith("//") and ".." not in Path(path).parts


def check_root(root: str) -> None:
    parts = Path(root)
    if not _is_plain(root) or root == "/":
        raise ProviderError(f"the root of a sandbox must be an absolute directory, not {root!r}")
    if any(parts.is_relative_to(taken) for taken in _RESERVED):
        raise ProviderError(f"the root of a sandbox cannot be {root!r}: the system lies there")


def first_closed(path: Path) -> Path | None:
    """The uppermost directory on the way that a user without rights cannot pass."""
    absolute = path.absolute()
    for folder in [*reversed(absolute.parents), absolute]:
        if not folder.stat().st_mode & 0o001:
            return folder
    return None
