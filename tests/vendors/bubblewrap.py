"""The namespaces of a vendor box: bubblewrap started around the supervisor."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from vendors.box_files import BoxFiles

LOG = "machine.log"
"""In the directory of the box: what bubblewrap and the supervisor said."""
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_HIDDEN_WITHOUT_PYTHON = ("python*", "pypy*")
_SUDO = Path(__file__).with_name("sudo.py")
_CAPABILITIES = ("CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN")
"""What a privileged process may: write everywhere in its box and change owners and modes."""
_CAPABILITIES_OF_ROOT = ("CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID")
"""In a box with several users: become one of them, and end what they started."""


def launch(
    files: BoxFiles, *, hostname: str, python: bool, sudo: bool, control: int
) -> subprocess.Popen[bytes]:
    """Start a box whose supervisor serves the socket ``control``."""
    arguments = _arguments(files, hostname, python, sudo, control)
    info_r, info_w = os.pipe()
    block_r, block_w = os.pipe()
    fds = [control]
    if files.has_users:
        fds += [info_w, block_r]
        arguments[1:1] = ["--info-fd", str(info_w), "--userns-block-fd", str(block_r)]
    try:
        with (files.directory / LOG).open("wb") as said:
            child = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=fds,
                start_new_session=True,
            )
        os.close(info_w)
        info_w = -1
        if files.has_users:
            with os.fdopen(os.dup(info_r)) as info:
                told = info.read()
            if told:  # else it has ended: the caller reads why
                _map_users(files, json.loads(told)["child-pid"])
            os.write(block_w, b"1")
        return child
    finally:
        for fd in (info_r, info_w, block_r, block_w):
            if fd != -1:
                os.close(fd)


def _map_users(files: BoxFiles, pid: int) -> None:
    """Give a box all its users: the one whose files the server writes is the server's user."""
    lines = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in files.users())
    for name in ("gid_map", "uid_map"):
        Path("/proc", str(pid), name).write_text(lines)


def _arguments(files: BoxFiles, hostname: str, python: bool, sudo: bool, control: int) -> list[str]:
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        raise FileNotFoundError("bubblewrap is not installed (apt-get install bubblewrap)")
    uid = files.uid
    boot_id = files.directory / "boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    home = "/.vendor/python"
    interpreter = Path(os.path.realpath(sys.executable)).relative_to(sys.base_prefix)
    vendor = files.directory / "vendor"
    for name in ("python", "usr"):
        (vendor / name).mkdir(parents=True, exist_ok=True)
    for source in (_SUPERVISOR, _SUDO):
        (vendor / source.name).write_text(source.read_text())
    _write_sudo(vendor / "bin", f"{home}/{interpreter}" if sudo else None)
    arguments = [bubblewrap, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--uid", str(uid), "--gid", str(uid), "--hostname", hostname]
    arguments += ["--die-with-parent", "--as-pid-1", "--clearenv", *files.mounts()]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--chdir", "/"]
    arguments += ["--ro-bind", str(boot_id), "/proc/sys/kernel/random/boot_id"]
    arguments += ["--ro-bind", str(vendor), "/.vendor", "--ro-bind", sys.base_prefix, home]
    if not python:
        arguments += _without_python(files)
    arguments += ["--cap-drop", "ALL"]
    for capability in (*_CAPABILITIES, *(_CAPABILITIES_OF_ROOT if files.has_users else ())):
        arguments += ["--cap-add", capability]
    arguments += ["--setenv", "PYTHONHOME", home, "--setenv", "LD_LIBRARY_PATH", f"{home}/lib"]
    program = [f"{home}/{interpreter}", "-S", "-s", "-P", f"/.vendor/{_SUPERVISOR.name}"]
    return [*arguments, "--", *program, str(control), *(["sudo"] if sudo else [])]


def _write_sudo(folder: Path, python: str | None) -> None:
    """``sudo`` for the box, or none. Set-user-ID programs do not work below bubblewrap."""
    folder.mkdir(exist_ok=True)
    program = folder / "sudo"
    program.unlink(missing_ok=True)
    if python is not None:
        home = python.rpartition("/bin/")[0]
        variables = f"PYTHONHOME={home} LD_LIBRARY_PATH={home}/lib"
        line = f'exec env {variables} {python} -S -s -P /.vendor/{_SUDO.name} "$@"'
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)


def _without_python(files: BoxFiles) -> list[str]:
    """Replace the directories of programs by links to all programs but the hidden ones."""
    arguments = ["--ro-bind", "/usr", "/.vendor/usr"]
    shared = files.directory.parent / ".without-python"
    for place in ("bin", "local/bin"):
        links = shared / place
        if not links.exists():  # the boxes of one vendor share them: there are thousands
            links.mkdir(parents=True)
            for name in sorted(path.name for path in Path("/usr", place).iterdir()):
                if not any(fnmatch.fnmatch(name, pattern) for pattern in _HIDDEN_WITHOUT_PYTHON):
                    (links / name).symlink_to(f"/.vendor/usr/{place}/{name}")
        arguments += ["--ro-bind", str(links), f"/usr/{place}"]
    return arguments
