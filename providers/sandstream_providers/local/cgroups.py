"""Control groups, version 1, 2 or both at once: whichever of them this process may write.

A box gets one group in every hierarchy that is needed, below ``sandstream`` at the top of what this
process sees, so that the end of the service that made the box does not end the box. Which version
holds a controller is looked up, not guessed: many machines keep memory and cpu in version 1 and
offer freezing and killing in version 2. An ordinary user has what was handed over to it.

Where memory is limited, the box's group has two below it: the limit is that of the commands, and
the agent is in the other one, so that it never falls victim to a limit that they have reached.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from sandstream_providers.interface import Limits
from sandstream_providers.processes import LINUX, until

_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1_000
_ROOM_FOR_US = 10
"""Tasks in a box's group that are not the user's: bubblewrap, the agent and its threads."""
_OURS = "sandstream"
_AGENT, _COMMANDS = "agent", "commands"
_ROOM_FOR_AGENT_MB = 512
"""Memory that the agent may need besides: for what it knows of a workspace of many files."""
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
    as_root = os.geteuid() == 0
    for mount, kind, options in mounts():
        ours = _usable(mount / _OURS) if as_root else handed_over(mount, options)
        if ours is None:
            continue
        if kind == "cgroup2":
            v2, controllers = ours, _enabled(ours)
        else:
            for name in {"memory", "pids", "cpu", "freezer"} & options:
                v1[name] = ours
    return Hierarchies(v2=v2, v2_controllers=controllers, v1=v1)


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of one box, whether they exist yet or not."""

    paths: list[Path]
    """The outermost, one in every hierarchy that has a part in it."""
    split: Path | None = None
    """The one of them that has a group for the agent and one for the commands below it."""

    @property
    def commands(self) -> Path | None:
        """The group that limits the memory of commands."""
        return None if self.split is None else self.split / _COMMANDS

    @property
    def to_join(self) -> list[str]:
        """The groups that the first process of a box enters."""
        return [str(path / _AGENT if path == self.split else path) for path in self.paths]

    @property
    def to_remove(self) -> list[str]:
        """All directories, in the order in which they can be removed."""
        inner = [] if self.split is None else [self.split / _AGENT, self.split / _COMMANDS]
        return [str(path) for path in [*inner, *self.paths]]


def plan(hierarchies: Hierarchies, name: str, limits: Limits) -> Groups:
    """A group of this name in every hierarchy that has a part in these limits. Makes nothing."""
    settings = _settings(hierarchies, limits)
    folders = list(settings)
    if hierarchies.v2 is not None and hierarchies.v2 not in settings:
        folders.append(hierarchies.v2)
    elif hierarchies.v2 is None and "freezer" in hierarchies.v1:
        folders.append(hierarchies.v1["freezer"])
    paths = [folder / name for folder in dict.fromkeys(folders)]
    split: Path | None = None
    if limits.memory_mb is not None:
        version = hierarchies.version("memory")
        folder = hierarchies.v2 if version == "v2" else hierarchies.v1.get("memory")
        split = None if version is None or folder is None else folder / name
    return Groups(paths=paths, split=split)


def make(hierarchies: Hierarchies, groups: Groups, limits: Limits) -> None:
    """Make the groups, with their limits."""
    settings = _settings(hierarchies, limits)
    for group in groups.paths:
        group.mkdir(exist_ok=True)
        _set(group, settings.get(group.parent, {}))
    if groups.split is None or limits.memory_mb is None:
        return
    version = hierarchies.version("memory")
    assert version is not None
    if version == "v2":
        (groups.split / "cgroup.subtree_control").write_text("+memory")
    for inner in (_AGENT, _COMMANDS):
        (groups.split / inner).mkdir(exist_ok=True)
    _set(groups.split / _COMMANDS, _memory(limits.memory_mb + (limits.disk_mb or 0), version))


def _set(group: Path, values: dict[str, str]) -> None:
    for file, value in values.items():
        if (group / file).exists():
            (group / file).write_text(value)


@contextlib.contextmanager
def unless_gone() -> Iterator[None]:
    """Ignore that a group is gone: the launcher of a box that has ended removes its groups at any
    moment. A file of such a group is missing, or has no device any more if it was opened before.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def freeze(groups: Iterable[str], frozen: bool) -> bool:
    """Stop all processes of a box, or let them go on. False: none of its groups can do it, or they
    are gone.
    """
    for group in map(Path, groups):
        with unless_gone():
            if (group / "cgroup.freeze").exists():
                (group / "cgroup.freeze").write_text("1" if frozen else "0")
                return True
            if (group / "freezer.state").exists():
                (group / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
                return True
    return False


def is_frozen(groups: Iterable[str]) -> bool:
    for group in map(Path, groups):
        with unless_gone():
            if (group / "cgroup.freeze").exists():
                return "frozen 1" in (group / "cgroup.events").read_text()
            if (group / "freezer.state").exists():
                return (group / "freezer.state").read_text().strip() == "FROZEN"
    return False


def kill(groups: Iterable[str]) -> None:
    """End all processes in the groups, where the kernel does that by itself."""
    for group in map(Path, groups):
        with unless_gone():
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
    for inner in (_AGENT, _COMMANDS):
        if (Path(group) / inner).is_dir() and not _removed(f"{group}/{inner}"):
            return False
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
        size_mb = limits.memory_mb + (limits.disk_mb or 0) + _ROOM_FOR_AGENT_MB
        put("memory", _memory(size_mb, "v1"), _memory(size_mb, "v2"))
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


def _memory(size_mb: int, version: Version) -> dict[str, str]:
    size = str(size_mb * 1024 * 1024)
    if version == "v1":
        return {"memory.limit_in_bytes": size, "memory.memsw.limit_in_bytes": size}
    return {"memory.max": size, "memory.swap.max": "0", "memory.oom.group": "0"}


def _usable(folder: Path) -> Path | None:
    """The directory, made if need be, if groups can be made in it."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def handed_over(mount: Path, options: set[str]) -> Path | None:
    """Where this user may make groups and put its processes into them, of one hierarchy.

    Either ``sandstream-UID`` at the top, made for it by the administrator, or something above the
    group that this process is in: a systemd service with ``Delegate=yes``, or the user's own
    manager. The uppermost such group lives longest.
    """
    candidates = [mount / f"{_OURS}-{os.getuid()}"]
    own = _own_group(options)
    if own is not None:
        above = [mount / own, *(mount / own).parents]
        inside = [folder for folder in above if folder.is_relative_to(mount)]
        candidates += [folder / _OURS for folder in reversed(inside)]
    for folder in candidates:
        if folder.is_dir() or os.access(folder.parent, os.W_OK):
            usable = _usable(folder)
            if usable is not None and _can_join(usable):
                return usable
    return None


def _own_group(options: set[str]) -> str | None:
    """Of this process, in the hierarchy with these controllers; version 2 has none in its line."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if (set(controllers.split(",")) & options) if controllers else "cgroup2" in options:
            return path.lstrip("/")
    return None


def _can_join(folder: Path) -> bool:
    """Version 2 also asks for rights on what is above both the old and the new group."""
    probe = folder / f"probe-{os.getpid()}"
    try:
        probe.mkdir(exist_ok=True)
    except OSError:
        return False
    try:
        argv = ["/bin/sh", "-c", 'echo $$ >"$1/cgroup.procs"', "probe", str(probe)]
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    finally:
        probe.rmdir()


def mounts() -> Iterable[tuple[Path, str, set[str]]]:
    """Where hierarchies are, of which version, with which options and controllers."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, source = line.partition(" - ")
        kind, _, options = source.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            yield Path(place.split()[4]), kind, {*options.split(","), kind}


def _enabled(ours: Path) -> frozenset[str]:
    """Pass controllers down to our directory; those that the kernel refuses we do without."""
    _make_room(ours.parent)
    for name in ("cpu", "memory", "pids"):
        for folder in (ours.parent, ours):
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(f"+{name}")
    return frozenset((ours / "cgroup.subtree_control").read_text().split())


def _make_room(above: Path) -> None:
    """A group of version 2 passes controllers down only if no process is in it. A service that was
    handed its own group is in it, alone: it moves one down.
    """
    if os.geteuid() == 0 or (above / "cgroup.procs").read_text().split() != [str(os.getpid())]:
        return
    own = above / f"{_OURS}-actor"
    with contextlib.suppress(OSError):
        own.mkdir(exist_ok=True)
        (own / "cgroup.procs").write_text("0")
