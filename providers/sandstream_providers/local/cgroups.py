"""Control groups, version 1, 2 or both at once: whichever of them this process may write.

A box gets one group in every hierarchy that is needed, below ``sandstream`` at the top of what this
process sees, so that the end of the service that made the box does not end the box. Which version
holds a controller is looked up, not guessed: many machines keep memory and cpu in version 1 and
offer freezing and killing in version 2.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from sandstream_providers.interface import Limits
from sandstream_providers.local.processes import LINUX, until

_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1_000
_ROOM_FOR_US = 10
"""Tasks in a box's group that are not the user's: bubblewrap, the agent and its threads."""
_OURS = "sandstream"
_REMOVE_S = 5.0

Version = Literal["v1", "v2"]


class Hierarchies(msgspec.Struct, frozen=True, kw_only=True):
    """Directories in which groups for boxes can be made."""

    v2: Path | None = None
    v2_controllers: frozenset[str] = frozenset()
    v1: dict[str, Path] = {}

    def version(self, controller: str) -> Version | None:
        """Where a controller can be used. Version 2 freezes and kills without a controller."""
        if controller in self.v2_controllers:
            return "v2"
        if controller in self.v1:
            return "v1"
        return None

    @property
    def can_freeze(self) -> bool:
        return self.v2 is not None or "freezer" in self.v1


def find_hierarchies() -> Hierarchies:
    """Look at what is mounted and try to make our directory in it."""
    if not LINUX:
        return Hierarchies()
    v2: Path | None = None
    controllers: frozenset[str] = frozenset()
    v1: dict[str, Path] = {}
    for mount, kind, options in _mounts():
        ours = mount / _OURS
        try:
            ours.mkdir(exist_ok=True)
        except OSError:
            continue
        if not os.access(ours, os.W_OK):
            continue
        if kind == "cgroup2":
            v2, controllers = ours, _enabled(mount, ours)
        else:
            for name in {"memory", "pids", "cpu", "freezer"} & options:
                v1[name] = ours
    return Hierarchies(v2=v2, v2_controllers=controllers, v1=v1)


def make(hierarchies: Hierarchies, name: str, limits: Limits) -> list[str]:
    """A group of this name with these limits in every hierarchy that has a part in it."""
    settings = _settings(hierarchies, limits)
    folders = list(settings)
    if hierarchies.v2 is not None and hierarchies.v2 not in settings:
        folders.append(hierarchies.v2)
    elif hierarchies.v2 is None and "freezer" in hierarchies.v1:
        folders.append(hierarchies.v1["freezer"])
    groups = [folder / name for folder in dict.fromkeys(folders)]
    for group in groups:
        group.mkdir(exist_ok=True)
        for file, value in settings.get(group.parent, {}).items():
            if (group / file).exists():
                (group / file).write_text(value)
    return [str(group) for group in groups]


def freeze(groups: Iterable[str], frozen: bool) -> bool:
    """Stop all processes of a box, or let them go on. False: none of its groups can do it."""
    for group in map(Path, groups):
        if (group / "cgroup.freeze").exists():
            (group / "cgroup.freeze").write_text("1" if frozen else "0")
            return True
        if (group / "freezer.state").exists():
            (group / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
            return True
    return False


def is_frozen(groups: Iterable[str]) -> bool:
    for group in map(Path, groups):
        if (group / "cgroup.freeze").exists():
            return "frozen 1" in (group / "cgroup.events").read_text()
        if (group / "freezer.state").exists():
            return (group / "freezer.state").read_text().strip() == "FROZEN"
    return False


def kill(groups: Iterable[str]) -> None:
    """End all processes in the groups, where the kernel does that by itself."""
    for group in map(Path, groups):
        with contextlib.suppress(FileNotFoundError):
            if (group / "cgroup.kill").exists():
                (group / "cgroup.kill").write_text("1")


async def remove(groups: Iterable[str]) -> list[str]:
    """Remove the groups of a box that has ended. Returns those that are still in use."""
    left = list(groups)

    def all_removed() -> bool:
        left[:] = [group for group in left if not _removed(group)]
        return not left

    await until(all_removed, timeout_s=_REMOVE_S)
    return left


def _removed(group: str) -> bool:
    try:
        Path(group).rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _settings(hierarchies: Hierarchies, limits: Limits) -> dict[Path, dict[str, str]]:
    """Which file in which hierarchy gets which value. In order: swap comes after memory."""
    found: dict[Path, dict[str, str]] = {}

    def put(controller: str, v1: dict[str, str], v2: dict[str, str]) -> None:
        version = hierarchies.version(controller)
        if version == "v2" and hierarchies.v2 is not None:
            found.setdefault(hierarchies.v2, {}).update(v2)
        elif version == "v1":
            found.setdefault(hierarchies.v1[controller], {}).update(v1)

    if limits.memory_mb is not None:
        size = str((limits.memory_mb + (limits.disk_mb or 0)) * 1024 * 1024)
        put(
            "memory",
            {"memory.limit_in_bytes": size, "memory.memsw.limit_in_bytes": size},
            {"memory.max": size, "memory.swap.max": "0"},
        )
    if limits.processes is not None:
        count = str(limits.processes + _ROOM_FOR_US)
        put("pids", {"pids.max": count}, {"pids.max": count})
    if limits.cpus is not None:
        quota = str(max(_LEAST_QUOTA_US, int(limits.cpus * _PERIOD_US)))
        put(
            "cpu",
            {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": quota},
            {"cpu.max": f"{quota} {_PERIOD_US}"},
        )
    return found


def _mounts() -> Iterable[tuple[Path, str, set[str]]]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, source = line.partition(" - ")
        kind, _, options = source.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            yield Path(place.split()[4]), kind, set(options.split(","))


def _enabled(mount: Path, ours: Path) -> frozenset[str]:
    """Pass controllers down to our directory; those that the kernel refuses we do without."""
    for name in ("cpu", "memory", "pids"):
        for folder in (mount, ours):
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(f"+{name}")
    return frozenset((ours / "cgroup.subtree_control").read_text().split())
