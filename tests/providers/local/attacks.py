"""Ways out of a box. Runs inside it: ``python3 attacks.py JSON`` prints what each attempt got.

An attempt that raises was refused; one that returns something got out, and says how. Standard
library only: this file is sent into the box.
"""

# ruff: noqa: PTH110, PTH115, PTH123, PTH207, PTH208, SIM115
from __future__ import annotations

import ctypes
import fcntl
import glob
import json
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
facts: dict[str, Any] = {}
MS_REMOUNT_BIND = 32 | 4096
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
MARK_LIMIT = 10


class Refused(Exception):
    pass


def called(name: str, *arguments: Any) -> int:
    ctypes.set_errno(0)
    result: int = getattr(libc, name)(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(200).decode(errors="replace")


def write(path: str) -> str:
    with open(path, "a") as file:
        file.write("x")
    return "written: " + path


def must_be_new(found: str) -> str:
    if not found:
        raise Refused("nothing there")
    return found


# --- reading --------------------------------------------------------------------------------------


def read_the_shadow_file() -> str:
    return read("/etc/shadow")


def read_the_home_of_root() -> str:
    return must_be_new(" ".join(os.listdir("/root")))


def read_a_secret_in_the_home_of_the_provider() -> str:
    return read(facts["secret_file"])


def read_the_workspace_of_another_box() -> str:
    return read(facts["neighbour_file"])


def list_the_home_of_the_provider() -> str:
    return " ".join(os.listdir(facts["home"]))


def read_the_environment_of_the_provider() -> str:
    found = [os.environ.get("HOST_SECRET", "")]
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            found.append(read(path))
        except OSError:
            continue
    return must_be_new("yes" if facts["secret"] in "\n".join(found) else "")


def see_processes_of_the_host() -> str:
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        if path == f"/proc/{os.getpid()}/cmdline":
            continue  # the facts that were passed here
        try:
            with open(path, "rb") as file:
                found.append(file.read().decode(errors="replace"))
        except OSError:
            continue
    return must_be_new("yes" if any(facts["script"] in line for line in found) else "")


def inherit_an_open_file() -> str:
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
    kinds = [os.readlink(link) for link in links if os.path.lexists(link)]
    return must_be_new(" ".join(kind for kind in kinds if "/proc/" not in kind))


# --- the agent ------------------------------------------------------------------------------------


def open_the_files_of_the_agent() -> str:
    return must_be_new(" ".join(os.listdir("/proc/1/fd")))


def go_through_the_directories_of_the_agent() -> str:
    for fd in range(3, 20):
        try:
            return " ".join(os.listdir(f"/proc/1/fd/{fd}/../.."))
        except NotADirectoryError:
            continue
    raise Refused("no directory")


def look_through_the_root_of_the_agent() -> str:
    return must_be_new(" ".join(os.listdir("/proc/1/root/")))


def read_the_memory_of_the_agent() -> str:
    with open("/proc/1/mem", "rb") as file:
        return str(file)


def trace_the_agent() -> str:
    called("ptrace", PTRACE_ATTACH, 1, None, None)
    called("ptrace", PTRACE_DETACH, 1, None, None)
    return "attached"


def kill_the_agent() -> str:
    for number in range(1, 32):
        if number not in (signal.SIGCHLD, signal.SIGCONT):
            os.kill(1, number)
    raise Refused("sent; whether it had an effect shows in the next command")


def helpers_of_the_agent() -> list[str]:
    """Directories of processes that are the agent's own, but for the first."""
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        with open(folder + "/cmdline", "rb") as file:
            if b"\0/.sandstream/" in file.read() and folder != "/proc/1":
                found.append(folder)
    return found


def look_into_a_helper_of_the_agent() -> str:
    for folder in helpers_of_the_agent():
        for name in ("fd", "cwd", "root"):
            try:
                return " ".join(os.listdir(f"{folder}/{name}/"))
            except PermissionError:
                continue
        with open(folder + "/mem", "rb") as file:
            return str(file)
    raise Refused("there is none")


def trace_a_helper_of_the_agent() -> str:
    for folder in helpers_of_the_agent():
        called("ptrace", PTRACE_ATTACH, int(folder.rpartition("/")[2]), None, None)
        return "attached"
    raise Refused("there is none")


# --- the network ----------------------------------------------------------------------------------


def connect_to_a_port_of_the_host() -> str:
    with socket.create_connection(("127.0.0.1", facts["port"]), timeout=5) as connection:
        return str(connection.recv(10))


def connect_to_an_abstract_socket_of_the_host() -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + facts["abstract"])
        return str(connection.recv(10))


def connect_to_the_socket_of_the_agent() -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(facts["agent_socket"])
        return "connected"


def send_a_datagram_away() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return str(sender.sendto(b"x", ("192.0.2.1", 9)))


def see_a_network_interface() -> str:
    return must_be_new(" ".join(name for _, name in socket.if_nameindex() if name != "lo"))


# --- writing --------------------------------------------------------------------------------------


def write_to_usr() -> str:
    return write("/usr/planted")


def write_to_etc() -> str:
    return write("/etc/planted")


def write_to_passwd() -> str:
    return write("/etc/passwd")


def write_to_the_top() -> str:
    return write("/planted")


def write_the_core_pattern() -> str:
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return "could be written"


def write_other_settings_of_the_kernel() -> str:
    for path in (
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/vm/overcommit_memory",
    ):
        try:
            os.close(os.open(path, os.O_WRONLY))
            return path
        except OSError:
            continue
    raise Refused("none")


def remount_usr_writable() -> str:
    called("mount", b"none", b"/usr", None, MS_REMOUNT_BIND, None)
    return write("/usr/planted")


def remount_usr_by_program() -> str:
    subprocess.run(["mount", "-o", "remount,rw,bind", "/usr"], check=True, capture_output=True)
    return "remounted"


def unmount_etc() -> str:
    called("umount2", b"/etc/passwd", 2)
    return "unmounted"


def become_root_in_a_namespace_and_remount() -> str:
    called("unshare", CLONE_NEWUSER | CLONE_NEWNS)
    called("mount", b"none", b"/usr", None, MS_REMOUNT_BIND, None)
    return "remounted"


def make_a_user_namespace() -> str:
    if os.fork() == 0:
        try:
            called("unshare", CLONE_NEWUSER)
        except OSError:
            os._exit(1)
        os._exit(0)
    return must_be_new("made" if os.wait()[1] == 0 else "")


# --- rights ---------------------------------------------------------------------------------------


def hold_capabilities() -> str:
    lines = [line.split() for line in open("/proc/self/status") if line.startswith("Cap")]
    return must_be_new(" ".join(name for name, value in lines if int(value, 16)))


def gain_rights_by_set_uid_programs() -> str:
    (line,) = [line for line in open("/proc/self/status") if line.startswith("NoNewPrivs")]
    return must_be_new("" if line.split()[1] == "1" else line)


def become_root() -> str:
    os.setuid(0)
    return "root"


def make_a_device() -> str:
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(254, 0))
    return read("disk")


def open_a_disk() -> str:
    disks = [
        path
        for path in ("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/mem")
        if os.path.exists(path)
    ]
    return must_be_new(" ".join(disks))


def type_into_a_terminal() -> str:
    _, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSTI, b"x")
    return "typed"


def change_root() -> str:
    os.chroot("/tmp")
    return "changed"


def use_the_key_ring() -> str:
    return str(called("syscall", {"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -3, 0))


def load_a_kernel_program() -> str:
    number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    return str(called("syscall", number, 0, struct.pack("IIII", 1, 4, 4, 1), 16))


def signal_processes_of_the_host() -> str:
    os.kill(facts["pid"], 0)
    return "there"


def get_rid_of_the_mark_of_the_command() -> str:
    """A process that is marked with a number must not get a higher one, or none, again."""
    soft, hard = resource.getrlimit(MARK_LIMIT)
    if hard == resource.RLIM_INFINITY:
        return "not marked"
    resource.setrlimit(MARK_LIMIT, (soft, resource.RLIM_INFINITY))
    return "unmarked"


# --- limits ---------------------------------------------------------------------------------------


def start_many_processes() -> str:
    children = []
    try:
        for _ in range(facts["processes"] + 5):
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return str(len(children))


def take_much_memory() -> str:
    size = (facts["memory_mb"] + 200) << 20
    code = f"x = bytearray({size})\nfor i in range(0, {size}, 4096): x[i] = 1\n"
    code += "import time\ntime.sleep(3)"
    subprocess.run([sys.executable, "-c", code], check=True)
    return "taken"


def write_a_big_file() -> str:
    with open("big", "wb") as file:
        file.write(bytes((facts["file_mb"] << 20) + 1))
    return "written"


def main() -> None:
    facts.update(json.loads(sys.argv[1]))
    attempts: dict[str, Callable[..., Any]] = {
        name: value
        for name, value in globals().items()
        if callable(value)
        and getattr(value, "__module__", "") == "__main__"
        and value not in (called, read, write, must_be_new, helpers_of_the_agent, main, Refused)
    }
    results = {}
    for name in facts["only"] or [name for name in attempts if name != "take_much_memory"]:
        try:
            results[name] = {"got": attempts[name]()}
        except (OSError, ValueError, Refused, subprocess.SubprocessError) as error:
            results[name] = {"refused": repr(error)}
    print(json.dumps(results))


main()
