"""What our programs leave behind: processes, boxes, sockets, control groups, mounts, files.

A program is identified by one directory: it gets this directory as TMPDIR and has its state below
it. So programs can be watched side by side, and other activity on the machine does not count. A
process belongs to the directory if its command line, environment, working directory or open files
name it, or if its parent belongs to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

LOOK_S = 0.5
"""The interval between checks; each one scans all processes of the machine."""
STATE = "state"
"""The program's SANDSTREAM_HOME, below its directory."""
_GROUPS = Path("/sys/fs/cgroup")


def watched_environment(root: Path) -> dict[str, str]:
    """The environment variables that make a program watchable."""
    runtime = root / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    return {
        "SANDSTREAM_HOME": str(root / STATE),
        "TMPDIR": str(root),
        "XDG_RUNTIME_DIR": str(runtime),
        "XDG_STATE_HOME": str(root),
    }


def find(root: Path, *, homes: Iterable[Path] = (), files: bool = True) -> list[str]:
    """All leftovers, one line each. ``homes``: state directories besides those found below
    ``root``.

    ``files=False`` ignores what may remain until the machine is restarted, such as temporary files
    of a killed program.
    """
    found = [*_processes(root), *_sockets(root), *_mounts(root)]
    for home in {*homes, root / STATE, *homes_below(root)}:
        found += _of_home(home)
    if files:
        allowed = {STATE, "run"}
        found += [f"file {path}" for path in root.iterdir() if path.name not in allowed]
        found += [f"file {path}" for path in (root / "run").glob("*")]
    return sorted(found)


def homes_below(root: Path) -> Iterator[Path]:
    """State directories with sandboxes. Directories that disappear meanwhile are ignored."""
    for folder, names, _ in os.walk(root):
        if "sandboxes" in names:
            names.clear()
            yield Path(folder)


def wait_until_none(root: Path, *, within_s: float, files: bool = True) -> list[str]:
    """The leftovers after a while; returns as soon as there are none."""
    deadline = time.monotonic() + within_s
    while (found := find(root, files=files)) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return found


def _of_home(home: Path) -> list[str]:
    """What the provider made for boxes outside the home. The files of a box without processes are
    not leftovers: they may still be needed.
    """
    digest = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()
    found = [f"control group {it}" for it in _groups(digest[:8])]
    short = Path("/tmp") / f"sandstream-{os.getuid()}-{digest[:12]}"
    return [*found, *([f"directory {short}"] if short.exists() else [])]


def _groups(suffix: str) -> list[Path]:
    tops = [_GROUPS, *_GROUPS.glob("*")] if _GROUPS.is_dir() else []
    return [group for top in tops for group in top.glob(f"sandstream*/*-{suffix}")]


def _sockets(root: Path) -> list[str]:
    lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    paths = {line.split()[-1] for line in lines}
    return [f"socket {path}" for path in paths if path.startswith(f"{root}/")]


def _mounts(root: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = [line.split()[4] for line in lines]
    return [f"mount {place}" for place in places if place.startswith(f"{root}/")]


# --- processes ------------------------------------------------------------------------------------


def _processes(root: Path) -> list[str]:
    parents: dict[int, int] = {}
    ours: set[int] = set()
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):  # it ended while we look
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            if state in "ZX":
                continue
            parents[int(path.name)] = int(parent)
            if _names(path, root):
                ours.add(int(path.name))
    ours -= _line_of(os.getpid(), parents)
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return [f"process {pid}: {_command(pid)}" for pid in sorted(ours)]


def _line_of(pid: int, parents: dict[int, int]) -> set[int]:
    """The process itself and all its ancestors."""
    line = set()
    while pid in parents:
        line.add(pid)
        pid = parents[pid]
    return line


def _names(process: Path, root: Path) -> bool:
    wanted = os.fsencode(root)
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            if wanted in (process / name).read_bytes():
                return True
    links: Sequence[Path] = [process / "cwd"]
    with contextlib.suppress(OSError):
        links = [*links, *(process / "fd").iterdir()]
    for link in links:
        with contextlib.suppress(OSError):
            if os.fsencode(link.readlink()).startswith(wanted):
                return True
    return False


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        text = (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
        return text.strip()[:200] or "?"
    return "it has ended"
