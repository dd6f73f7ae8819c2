"""``agent background CONFIG``: connects its terminal to the one agent of this box.

For hosts that can only open a terminal in a box. The agent is started if none answers, and lives on
when the terminal ends. Several terminals may try at once: a lock lets one of them start it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import sys
import time

from sandstream_providers.box.agent.network.relay import relay

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any

MARK = "SANDSTREAM-"
START_S = 30.0
_LOOK_S = 0.01
_OF_TERMINAL = (
    "TERM",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "PS1",
    "PS2",
    "COLUMNS",
    "LINES",
    "PROMPT_COMMAND",
)


def background(text: str) -> None:
    """Does not return. Says ``LINKED <name of this start>`` or ``FAILED <why>`` first; what comes
    after ``LINKED`` is packed.
    """
    config: dict[str, Any] = json.loads(text)
    folder = config.pop("folder")
    idle_s = config.pop("idle_link_s")
    config["jobs"] = f"{folder}/jobs"
    config["listen_unix"] = path = f"{folder}/agent.sock"
    config["env"] = {**_environment(), **config["env"]}
    try:
        started = _ensured(folder, path, config)
    except (OSError, RuntimeError) as error:
        _say("FAILED", str(error))
        os._exit(1)
    _say("LINKED", started)
    relay(path, idle_s, packed=True)


def _ensured(folder: str, path: str, config: dict[str, Any]) -> str:
    """The name of the agent's start, which is another one after each start."""
    lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        if not _answers(path):
            _start(folder, path, config)
        with open(f"{folder}/started") as file:
            return file.read()
    finally:
        os.close(lock)


def _start(folder: str, path: str, config: dict[str, Any]) -> None:
    settings = f"{folder}/start.json"
    descriptor = os.open(settings, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as file:
        json.dump(config, file)
    with open(f"{folder}/started", "w") as file:
        file.write(secrets.token_hex(8))
    agent = _orphan(folder, settings)
    deadline = time.monotonic() + START_S
    while not _answers(path):
        if _has_ended(agent):
            raise RuntimeError(f"the agent ended at once: {_tail(folder)}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the agent does not answer: {_tail(folder)}")
        time.sleep(_LOOK_S)


def _orphan(folder: str, settings: str) -> int:
    """Start the agent and return its pid. Vendors that end a terminal also end all processes that
    descend from its shell, so the agent has no parent there.
    """
    ours, theirs = os.pipe()
    between = os.fork()
    if between == 0:
        agent = os.fork()
        if agent == 0:
            _become_agent(folder, settings)
        os.write(theirs, str(agent).encode())
        os._exit(0)
    os.waitpid(between, 0)
    try:
        return int(os.read(ours, 32))
    finally:
        os.close(ours)
        os.close(theirs)


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except ProcessLookupError:
        return True
    except OSError:
        return False  # without /proc a process that nothing waits for looks alive


def _become_agent(folder: str, settings: str) -> None:
    """In the child: a session of its own, so that the end of the terminal does not reach it."""
    try:
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDWR)
        log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        os.execv(sys.executable, [sys.executable, "-I", "-S", sys.argv[0], "from", settings])
    finally:
        os._exit(127)


def _answers(path: str) -> bool:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except OSError:
        return False
    finally:
        sock.close()
    return True


def _environment() -> dict[str, str]:
    """What the vendor and the image gave to the login shell, without what is the terminal's."""
    return {name: value for name, value in os.environ.items() if name not in _OF_TERMINAL}


def _tail(folder: str) -> str:
    with open(f"{folder}/log", errors="replace") as file:
        return " ".join(file.read()[-500:].split()) or "it said nothing"


def _say(what: str, text: str) -> None:
    line = f"{MARK}{what} {' '.join(text.split())}\n".encode(errors="replace")
    os.write(1, line)
