"""The bubblewrap command line: what a box sees of the machine.

Read-only: ``/usr`` and a handful of files of ``/etc``. Fresh: ``/proc``, ``/dev``, temporary
directories of limited size. Writable: the workspace and the grants. Nothing else of the host
exists in there, nor any of its environment.

bubblewrap is no boundary when root runs it: the process inside stays the host's root by ownership.
So root becomes a user without rights first, and since that user cannot reach a private directory,
the launcher mounts the workspace over the first directory that keeps it out, for this box alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sandstream_providers.grants import AGENT_FOLDER, check_root
from sandstream_providers.interface import Grant, Limits
from sandstream_providers.local.cgroups import Groups
from sandstream_providers.processes import ChildFds

INSIDE_ID = 1000
"""The user and group that the box's own processes and files show inside."""

_LINKED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "pki",
    "protocols",
    "services",
    "ssl",
    "terminfo",
)
_ETC_WITH_NETWORK = ("resolv.conf",)
_ETC_TEXTS = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nuser:x:{INSIDE_ID}:{INSIDE_ID}::{{root}}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n",
    "group": f"root:x:0:\nuser:x:{INSIDE_ID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "gitconfig": "[safe]\n\tdirectory = *\n",
}
_TMP_MB = 1024
_SCRATCH = {
    "/tmp": _TMP_MB,
    "/run": 64,
    "/home": 64,
    "/root": 64,
    "/var/tmp": 256,
    "/dev/shm": 256,
}
"""Megabytes of the temporary directories at most; see ``scratch_sizes``."""
_AGENT_TASKS = 7
"""The agent, its threads and the process that starts commands count too."""
_MB = 1024 * 1024

_START = """\
remove() {
  tries=0
  while [ "$1" != -- ]; do
    if [ ! -d "$1" ] || rmdir "$1" || [ ! -d "$1" ]; then shift
    elif [ "$tries" -lt 100 ]; then tries=$((tries + 1)); sleep 0.1
    else shift; fi
  done
}
read -r _ <&3 || { remove "$@" 2>/dev/null; exit 70; }
cd /
"""
_ENTER = """\
while [ "$1" != -- ]; do shift; done; shift
if [ -n "$1" ]; then exec 3<"$1" 4>"$2" || exit 73; else exec 3<&-; fi
shift 2
while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit 71; shift; done; shift
while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 72; shift 2; done; shift
exec "$@"
"""
BECOMES = f"{_START}{_ENTER}"
"""Waits until the box is on record and its groups are made, or ends with its maker and removes
them. Then it joins the groups, before anything of the box can fork, and becomes the command.
Arguments: groups to remove, ``--``, the files for descriptors 3 and 4 (or empty), groups to join,
``--``, pairs of mounts, ``--``, the command.
"""
STAYS = f'{_START}(\n{_ENTER})\nremove "$@" 2>/dev/null\n'
"""The same, but it stays outside as the parent of the command, and removes the box's groups when
the command has ended: no other process may be there to do it. The command dies with it
(bubblewrap's ``--die-with-parent``).
"""
STAT_FD, PROCS_FD = 3, 4
"""What the command gets under these numbers if its commands have a group: the group's statistics,
and where a process joins it. The launcher opens them, as the group is made after it was started.
"""


def agent_path(key: str) -> str:
    """Where the agent lies inside. It names the box, for people who look at processes."""
    return f"{AGENT_FOLDER}/{key}"


def launcher(
    command: Sequence[str],
    *,
    groups: Groups | None = None,
    mounts: Sequence[tuple[Path, Path]],
    stays: bool = False,
) -> list[str]:
    """The first process. It expects the pipe that lets it go on as file descriptor 3 and, if the
    commands have a group, anything as 4. ``stays``: it is the parent of the command, and does not
    become it.
    """
    groups = groups or Groups(paths=[])
    pairs = [str(path) for pair in mounts for path in pair]
    own_mounts = ["unshare", "--mount", "--propagation", "private", "--"]
    inner = groups.commands
    files = ["", ""] if inner is None else [f"{inner}/memory.stat", f"{inner}/cgroup.procs"]
    return [
        *(own_mounts if mounts else []),
        *("/bin/sh", "-c", STAYS if stays else BECOMES, "sandstream-box"),
        *(*groups.to_remove, "--", *files, *groups.to_join, "--", *pairs, "--", *command),
    ]


def as_user(uid: int | None) -> list[str]:
    """The words that turn root into this user, without rights."""
    if uid is None:
        return []
    return [
        *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
        *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"),
    ]


def limits_prefix(limits: Limits, *, open_files: int) -> list[str]:
    """Run inside the box, so that only its own processes are counted."""
    prefix = ["prlimit", "--core=0:0", f"--nofile={open_files}:{open_files}"]
    if limits.processes is not None:
        count = limits.processes + _AGENT_TASKS
        prefix.append(f"--nproc={count}:{count}")
    if limits.file_mb is not None:
        size = limits.file_mb * _MB
        prefix.append(f"--fsize={size}:{size}")
    return prefix


def scratch_sizes(limits: Limits) -> dict[str, int]:
    """Bytes of the temporary directories. All together they hold half of the memory at most: they
    are full before the memory is, and a full directory ends no process.
    """
    whole = sum(_SCRATCH.values())
    half = whole if limits.memory_mb is None else limits.memory_mb / 2
    part = min(1.0, half / whole)
    return {path: int(size_mb * _MB * part) for path, size_mb in _SCRATCH.items()}


def bubblewrap(
    program: str,
    fds: ChildFds,
    *,
    root: str,
    network: bool,
    workspace: Path | None,
    limits: Limits,
    grants: Sequence[Grant] = (),
    read_only: Sequence[str] = (),
    agent: tuple[str, bytes] | None = None,
    seccomp: bytes | None = None,
    die_with_parent: bool = False,
) -> list[str]:
    """Everything up to the command to run. Without a workspace the root is kept in memory.

    ``read_only``: host paths shown where they are. ``agent``: a path inside and what it holds.
    """
    check_root(root)
    line = [program, "--unshare-all", "--unshare-user", "--disable-userns"]
    line += ["--uid", str(INSIDE_ID), "--gid", str(INSIDE_ID), "--hostname", "sandbox"]
    line += ["--share-net"] if network else []
    line += ["--die-with-parent"] if die_with_parent else []
    line += ["--clearenv", "--ro-bind", "/usr", "/usr"]
    for name in _LINKED:
        line += _linked(Path("/") / name)
    line += _etc(fds, root=root, network=network)
    line += ["--proc", "/proc", "--dev", "/dev"]
    for path, size in scratch_sizes(limits).items():
        line += _tmpfs(path, size, "0755" if path in ("/run", "/home", "/root") else "1777")
    for path in read_only:
        line += ["--ro-bind", path, path]
    if workspace is None:
        line += _tmpfs(root, (limits.disk_mb or _TMP_MB) * _MB, "0755")
    else:
        line += ["--bind", str(workspace), root]
    for grant in grants:
        line += ["--ro-bind" if grant.read_only else "--bind", grant.host_path, grant.path]
    if agent is not None:
        path, source = agent
        line += ["--perms", "0444", "--ro-bind-data", str(fds.add_data(source)), path]
    if seccomp is not None:
        line += ["--seccomp", str(fds.add_data(seccomp))]
    return [*line, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", root]


def _linked(path: Path) -> list[str]:
    """A top directory as the host has it: a link into /usr, or a directory of its own."""
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    if path.is_dir():
        return ["--ro-bind", str(path), str(path)]
    return []


def _etc(fds: ChildFds, *, root: str, network: bool) -> list[str]:
    line = ["--perms", "0755", "--dir", "/etc"]
    for name, text in _ETC_TEXTS.items():
        data = fds.add_data(text.replace("{root}", root).encode())
        line += ["--perms", "0444", "--ro-bind-data", str(data), f"/etc/{name}"]
    for name in (*_ETC, *(_ETC_WITH_NETWORK if network else ())):
        # The target of a link is shown under the name: where it lies need not exist inside.
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return line


def _tmpfs(path: str, size: int, mode: str) -> list[str]:
    return ["--perms", mode, "--size", str(size), "--tmpfs", path]
