"""The agent itself: take over the descriptors, become the parent of orphans, run."""

from __future__ import annotations

import json
import os
import socket
import sys

from sandstream_providers.box.agent import landlock, lease
from sandstream_providers.box.agent.loop import READ, Loop
from sandstream_providers.box.agent.network import transports
from sandstream_providers.box.agent.server import Server

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36


def serve(argv: list[str]) -> None:
    """Does not return."""
    config: dict[str, Any] = _settings(argv)
    _fill_standard_descriptors()
    _protect()
    token = transports.take_token(config)
    if config.get("listen_streams"):
        config["streams"] = transports.take_streams()
    if "jobs" in config:
        config["jobs_fd"] = _own_folders(config)
    landlock.restrict(config.get("landlock"), [config["jobs_fd"]])
    ports = config.get("ports") or {}
    groups = config.get("command_group_fds") or []
    others = [fd for fd in (config.get("memory_stat_fd"),) if fd is not None]
    listeners = [config["listen_fd"]] if config.get("listen_fd") is not None else []
    for fd in (*listeners, config["jobs_fd"], *ports.values(), *groups, *others):
        os.set_inheritable(fd, False)
    sys.setswitchinterval(0.001)  # a worker that hashes must not slow the loop down
    os.umask(0o022)
    loop = Loop()
    server = Server(loop, config)
    if config.get("take_ports"):
        from sandstream_providers.box.agent.network.handover import Handover  # not in every box

        Handover(loop, config["take_ports"], token)
    transports.open_all(loop, config, token, server.request, server.commands.forget)
    if ports or config.get("way_out"):
        _forward(loop, ports, config.get("way_out"))
    _watch_for_death(loop, config.get("death_fd"))
    lease.watch(loop, config, lambda: bool(server.commands.live()))
    loop.catch_signals(server.commands.reap)
    server.commands.reap()
    loop.run()
    server.commands.end_everything()
    os._exit(0)


def _settings(argv: list[str]) -> dict[str, Any]:
    """From the command line, or from a file that is removed at once: the command line of a process
    can be read by others, and that of a container by all who may ask the engine.
    """
    if argv[1] != "from":
        return dict(json.loads(argv[1]))
    with open(argv[2], "rb") as file:
        config = dict(json.load(file))
    os.unlink(argv[2])
    if config.get("lease"):
        config["lease_fd"] = os.open(config["lease"], os.O_RDONLY | os.O_CLOEXEC)
    return config


def _own_folders(config: dict[str, Any]) -> int:
    """Make the directories of a box that are named by path; the one of the jobs is opened."""
    os.makedirs(config["root"], exist_ok=True)
    os.makedirs(config["jobs"], mode=0o700, exist_ok=True)
    return os.open(config["jobs"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _fill_standard_descriptors() -> None:
    """A pipe must not get one of these numbers."""
    while True:
        fd = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        if fd > 2:
            os.close(fd)
            return


def _protect() -> None:
    """Commands run as the same user; they must not look into this process."""
    try:
        import _ctypes
    except ImportError:
        return  # a Python without ctypes: the other protections have to do
    # the whole ctypes package takes 10 ms to load
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    _ctypes.call_function(prctl, (PR_SET_DUMPABLE, 0, 0, 0, 0))
    if os.getpid() != 1:
        _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def _forward(loop: Loop, ports: dict[str, int], way_out: list[Any] | None) -> None:
    from sandstream_providers.box.agent.network.ports import Forwarder  # not in every box

    if way_out:
        port, path = way_out
        Forwarder(loop, transports.tcp_listener(f"127.0.0.1:{port}"), str(path))
    for port, fd in ports.items():
        Forwarder(loop, socket.socket(fileno=fd), int(port))


def _watch_for_death(loop: Loop, fd: int | None) -> None:
    if fd is None:
        return
    os.set_inheritable(fd, False)
    os.set_blocking(fd, False)

    def readable(_events: int) -> None:
        try:
            if os.read(fd, 4096):
                return
        except BlockingIOError:
            return
        loop.stop()

    loop.watch(fd, READ, readable)
