"""What this machine really offers, found by trying: isolation, an interpreter, control groups."""

from __future__ import annotations

import hashlib
import os
import pwd
import resource
import shutil
import sys
from pathlib import Path
from typing import Literal

import msgspec

from sandstream_providers.box.agent import landlock
from sandstream_providers.interface import Limits, ProviderUnavailable
from sandstream_providers.local import cage, seccomp
from sandstream_providers.local.cgroups import Hierarchies, find_hierarchies
from sandstream_providers.processes import LINUX, PATH, ChildFds, run_once

Isolation = Literal["required", "none"]

_FIRST_UID = 700_000
_UIDS = 60_000
_LEAST_UIDS = 1000
_LEAST_PYTHON = (3, 8)
_MOST_OPEN_FILES = 16_384
_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_TRY_S = 20.0
_ISOLATION_FAILED = ("bwrap: ", "setpriv: ", "prlimit: failed to set")
"""Said by what stands before the interpreter on the command line."""
_OPT_OUT = (
    "To run commands without isolation, as this user and with all its rights, say so: "
    'UnixLocalSandboxClient(isolation="none") or SANDSTREAM_LOCAL_ISOLATION=none'
)
_INSTALL = (
    "install bubblewrap and util-linux (apt-get install bubblewrap util-linux, "
    "dnf install bubblewrap util-linux, apk add bubblewrap util-linux-misc setpriv)"
)
_NO_NAMESPACES = (
    "Perhaps user namespaces are switched off. Allow them: sysctl "
    "kernel.unprivileged_userns_clone=1 (Debian), sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for bwrap (Ubuntu), "
    "user.max_user_namespaces > 0; in a container, allow the unshare and mount calls and an "
    "unmasked /proc (for instance --privileged)"
)
_SWITCHES = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user.max_user_namespaces": ("0", "15000"),
}
"""Settings of the kernel that forbid user namespaces: the value that does, and one that allows."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the boxes of this provider are made of."""

    bubblewrap: str | None
    """The program; None: no isolation."""
    version: str = ""
    python: str
    """Runs the agent; a path inside the box."""
    shown: list[str] = []
    """Machine paths that the interpreter needs inside."""
    as_root: bool
    first_uid: int = 0
    uid_count: int = 0
    """Whom boxes run as, where the provider is root."""
    groups: Hierarchies
    seccomp: bytes | None = None
    landlock: int = 0
    """The version of the kernel's Landlock; 0: none."""
    open_files: int

    @property
    def uids(self) -> range:
        return range(self.first_uid, self.first_uid + self.uid_count)


async def probe(isolation: Isolation) -> Machine:
    """Try it. Raises :class:`ProviderUnavailable` with what to do."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    open_files = _MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_OPEN_FILES)
    as_root = os.geteuid() == 0
    groups = find_hierarchies()
    if isolation == "none":
        return Machine(
            bubblewrap=None,
            python=sys.executable,
            as_root=as_root,
            groups=groups,
            open_files=open_files,
        )
    if not LINUX:
        raise ProviderUnavailable(
            f"sandboxes on this machine are isolated on Linux only, not on {sys.platform}. "
            f"Use a container provider. {_OPT_OUT}"
        )
    program = _programs(as_root)
    uids = range(0)
    if as_root:
        await _own_mounts()
        uids = _uids_here()
    machine = Machine(
        bubblewrap=program,
        version=await _said([program, "--version"]),
        python="",
        as_root=as_root,
        first_uid=uids.start,
        uid_count=len(uids),
        groups=groups,
        seccomp=seccomp.program(),
        landlock=landlock.abi(),
        open_files=open_files,
    )
    return await _with_python(machine)


def box_uid(machine: Machine, key: str) -> int | None:
    """The user that a box runs as: if the provider is root, one that does not exist otherwise."""
    if not machine.as_root or machine.bubblewrap is None:
        return None
    uids = machine.uids
    at = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big")
    for step in range(len(uids)):
        uid = uids[(at + step) % len(uids)]
        if not _is_real(uid):
            return uid
    raise ProviderUnavailable(f"all users from {uids[0]} to {uids[-1]} are real ones")


def free_uids(uid_map: str) -> range:
    """Users that boxes can run as: a high range, or the part of it that a container may use.

    Empty if root is the only user, as in a user namespace made by hand.
    """
    largest = range(0)
    for line in uid_map.splitlines():
        first, _, count = map(int, line.split())
        found = range(first, first + count)
        if found.start <= _FIRST_UID and found.stop >= _FIRST_UID + _UIDS:
            return range(_FIRST_UID, _FIRST_UID + _UIDS)
        if len(found) > len(largest):
            largest = found
    return largest[len(largest) // 2 :] if len(largest) >= _LEAST_UIDS else range(0)


def _is_real(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _programs(as_root: bool) -> str:
    needed = ["bwrap", "prlimit", *(["setpriv", "unshare", "mount"] if as_root else [])]
    missing = [name for name in needed if shutil.which(name, path=PATH) is None]
    if missing:
        raise ProviderUnavailable(
            f"sandboxes on this machine need {', '.join(missing)}: {_INSTALL}. {_OPT_OUT}"
        )
    return "bwrap"


def _uids_here() -> range:
    uids = free_uids(Path("/proc/self/uid_map").read_text())
    if not uids:
        raise ProviderUnavailable(
            "root runs sandboxes as users without rights, and in this user namespace there are no "
            f"other users (/proc/self/uid_map). Run as an ordinary user. {_OPT_OUT}"
        )
    return uids


async def _own_mounts() -> None:
    code, said = await _run(["unshare", "--mount", "--propagation", "private", "--", "true"])
    if code != 0:
        raise ProviderUnavailable(
            "root starts sandboxes through a mount namespace of its own, and may not make one: "
            f"{said}. Run as an ordinary user, or allow it (CAP_SYS_ADMIN). {_OPT_OUT}"
        )


async def _with_python(machine: Machine) -> Machine:
    """The first interpreter that starts in a real box and is new enough."""
    failures: list[str] = []
    for python, shown in _pythons():
        tried = msgspec.structs.replace(machine, python=python, shown=shown)
        code, said = await _try(tried)
        if "SECCOMP" in said:
            tried = msgspec.structs.replace(tried, seccomp=None)
            code, said = await _try(tried)
        if code == 0:
            return tried
        failures.append(f"{python}: {said or f'exit code {code}'}")
        if "nknown option" in said:
            raise ProviderUnavailable(
                f"{machine.version} is too old: version 0.8 or newer is needed ({said}). {_OPT_OUT}"
            )
        if any(text in said for text in _ISOLATION_FAILED) and not shown:
            raise ProviderUnavailable(
                f"{machine.version} cannot make a sandbox here: {said}. "
                f"{_forbidden() or _NO_NAMESPACES}. {_OPT_OUT}"
            )
    raise ProviderUnavailable(
        f"sandboxes need Python {_LEAST_PYTHON[0]}.{_LEAST_PYTHON[1]} or newer at {_PYTHONS[0]} "
        f"(apt-get install python3). Tried: {'; '.join(failures) or 'none found'}. "
        f"{_OPT_OUT}"
    )


def _forbidden(settings: Path = Path("/proc/sys")) -> str:
    """Which settings of this kernel forbid user namespaces, and how to change them."""
    wrong: list[str] = []
    for name, (forbids, allows) in _SWITCHES.items():
        file = settings / name.replace(".", "/")
        if file.exists() and file.read_text().strip() == forbids:
            wrong.append(f"{name} is {forbids} (sysctl {name}={allows})")
    return f"The kernel forbids user namespaces: {', '.join(wrong)}" if wrong else ""


def _pythons() -> list[tuple[str, list[str]]]:
    """Interpreters on this machine, each with the paths that a box must see to run it."""
    base = Path(sys.base_prefix).resolve()
    own = str(base / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    nothing: list[str] = []
    found = [*((path, nothing) for path in _PYTHONS), (own, [str(base)])]
    return [(python, shown) for python, shown in found if Path(python).exists()]


async def _try(machine: Machine) -> tuple[int, str]:
    assert machine.bubblewrap is not None
    limits = Limits()
    with ChildFds() as fds:
        argv = [
            *cage.as_user(box_uid(machine, "probe")),
            *cage.bubblewrap(
                machine.bubblewrap,
                fds,
                root="/workspace",
                network=False,
                workspace=None,
                limits=limits,
                read_only=machine.shown,
                seccomp=machine.seccomp,
                die_with_parent=True,
            ),
            "--",
            *cage.limits_prefix(limits, open_files=machine.open_files),
            *(machine.python, "-I", "-S", "-c"),
            f"import sys, _ctypes; sys.exit(sys.version_info < {_LEAST_PYTHON})",
        ]
        code, said = await run_once(argv, {"PATH": PATH}, fds, timeout_s=_TRY_S)
        return code, said.strip()


async def _said(argv: list[str]) -> str:
    return (await _run(argv))[1]


async def _run(argv: list[str]) -> tuple[int, str]:
    with ChildFds() as fds:
        code, said = await run_once(argv, {"PATH": PATH}, fds, timeout_s=_TRY_S)
    return code, said.strip()


def powers_of(isolation: Isolation, machine: Machine | None) -> frozenset[str]:
    """What boxes can do; before it was tried, what they can do at the least."""
    powers = {"pty", "ports", "pause", "limits.memory"}
    if isolation == "required":
        powers |= {"isolated", "limits.disk"}
    if machine is not None and machine.groups.version("cpu") is not None:
        powers.add("limits.cpu")
    return frozenset(powers)


def describe(machine: Machine) -> dict[str, str]:
    """For people."""
    isolated = machine.bubblewrap is not None
    memory, cpu, pids = (machine.groups.version(name) for name in ("memory", "cpu", "pids"))
    user = (
        f"uid {box_uid(machine, 'probe')} and others" if machine.as_root else f"uid {os.getuid()}"
    )
    return {
        "isolation": f"{machine.version}, {user}" if isolated else "none",
        "network": "none unless a sandbox asks for the host's" if isolated else "the host's",
        "memory": f"cgroup {memory}" if memory else "watchdog",
        "cpu": f"cgroup {cpu}" if cpu else "not limited",
        "processes": f"cgroup {pids}" if pids else "rlimit" if isolated else "not limited",
        "pause": "cgroup" if machine.groups.can_freeze else "signals",
        "seccomp": "on" if machine.seccomp is not None else "off",
        "landlock": _landlock(machine),
        "python": machine.python,
    }


def _landlock(machine: Machine) -> str:
    if machine.bubblewrap is None:
        return "off"
    if machine.landlock == 0:
        return "off (not in this kernel, or switched off)"
    if machine.landlock < landlock.LEAST_ABI:
        return f"off (version {machine.landlock} of the kernel is too old)"
    return f"on (version {machine.landlock})"
