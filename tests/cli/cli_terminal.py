"""A command on a terminal of 80 columns, and what a person sees there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios

from cli.cli_process import Cli

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(cli: Cli, *arguments: str, typed: str = "") -> tuple[int, str, str]:
    """The exit code, what a person saw in 80 columns, and the same with colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = cli.start(
        *arguments, env={"TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    raw = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        raw += piece
    os.close(ours)
    text = raw.decode().replace("\r\n", "\n")
    return process.wait(30), _ESCAPES.sub("", text), text
