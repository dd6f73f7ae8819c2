"""``sudo`` of a vendor box, for a user who needs no password: process 1 starts the command.

A copy of this file is shown to the box, so it imports nothing of ours. Of the real program it has
the options ``-n``, ``-E`` and ``-u root``, and its rules for the environment.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys

_SOCKET = "/run/sudo.sock"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEPT = ("TERM", "LANG", "DISPLAY")
_OURS = ("PYTHONHOME", "LD_LIBRARY_PATH")
"""What this program itself was started with."""


def _command(words: list[str]) -> tuple[list[str], bool]:
    """The command, and whether it keeps the environment."""
    keeps = False
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "--":
            break
        if option == "-E":
            keeps = True
        elif option == "-u":
            if words.pop(0) not in ("root", "0", "#0"):
                sys.exit("sudo: this box knows root only")
        elif option != "-n":
            sys.exit(f"sudo: unknown option {option}")
    return words, keeps


def main() -> None:
    argv, keeps = _command(sys.argv[1:])
    given = {name: value for name, value in os.environ.items() if name not in _OURS}
    env = given if keeps else {name: given[name] for name in _KEPT if name in given}
    env = {"HOME": "/root", **env, "PATH": _PATH, "USER": "root", "LOGNAME": "root"}
    env["SUDO_USER"] = given.get("USER", "")
    text = os.memfd_create("task")
    with os.fdopen(os.dup(text), "wb") as file:
        file.write(json.dumps({"argv": argv, "cwd": os.getcwd(), "env": env}).encode())  # noqa: PTH109
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as service:
        service.connect(_SOCKET)
        rights = array.array("i", [text, 0, 1, 2])
        service.sendmsg([b"sudo"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        code = int(service.recv(16) or b"1")
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
