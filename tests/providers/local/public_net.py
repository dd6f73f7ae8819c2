"""A network of its own in which this machine is also a public host, for tests of what leaves it.

Run as ``unshare --net python -m providers.local.public_net <scenario> <folder>``: the loopback
device gets a public address, so a git server can be public without any real network.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from providers.local.local_boxes import local_provider, new_spec, said
from sandstream_providers.interface import GitFailed
from support.git_server import GitServer, git, git_server, make_repository

PUBLIC, PRIVATE = "1.2.3.4", "127.0.0.1"
_SET_ADDRESS, _SET_FLAGS, _UP = 0x8916, 0x8914, 1


def be_public() -> None:
    """Bring loopback up, and give it the public address as well."""
    address = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(PUBLIC))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
        fcntl.ioctl(any_socket, _SET_ADDRESS, struct.pack("16s16s", b"lo:1", address))


class Names:
    """What names mean here. ``flip.example`` is public only when it is first asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if host == "good.example":
            return [PUBLIC]
        if host == "flip.example":
            return [PUBLIC if self.asked.count(host) == 1 else PRIVATE]
        return [PRIVATE if host == "evil.example" else host]


@contextlib.contextmanager
def git_daemon(folder: Path) -> Iterator[str]:
    """Serves ``folder`` by git's own protocol, at the public address."""
    options = ["--export-all", f"--listen={PUBLIC}", f"--base-path={folder}", "--verbose"]
    env = {**os.environ, "GIT_CONFIG_COUNT": "1"}
    env |= {"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    with subprocess.Popen(["git", "daemon", *options], stderr=subprocess.PIPE, env=env) as daemon:
        try:
            assert daemon.stderr is not None
            assert b"Ready" in daemon.stderr.readline()
            yield "git://good.example/r"
        finally:
            daemon.terminate()


async def fetch(home: Path, url: str, ref: str, names: Names, then: str) -> str:
    """What the box says of the repository, or why there is none."""
    isolation = os.environ["ISOLATION"]
    async with local_provider(home, isolation=isolation, resolve=names.resolve) as provider:
        box = await provider.create(new_spec())
        try:
            await provider.fetch_git(box, url, ref, f"{box.root}/r", public_only=True)
        except GitFailed as error:
            return f"{error.data['reason']}: {error}"
        return await said(box, then)


def main() -> None:
    scenario, folder = sys.argv[1], Path(sys.argv[2])
    be_public()
    with (
        git_server(folder, PUBLIC) as good,
        git_server(folder, PRIVATE) as evil,
        contextlib.ExitStack() as stack,
    ):
        os.environ["http_proxy"] = os.environ["ALL_PROXY"] = f"http://{PRIVATE}:{evil.port}"
        names = Names()
        url, ref, then = prepare(scenario, folder, good, evil)
        if scenario == "git daemon":
            url = stack.enter_context(git_daemon(folder))
        if scenario == "rebinding":
            asyncio.run(names.resolve("flip.example", 0))  # the check before anything is made
        answer = asyncio.run(fetch(folder / "home", url, ref, names, then))
        facts = {"answer": answer, "evil": evil.connections, "good": good.connections}
        print(json.dumps(facts))


def prepare(scenario: str, folder: Path, good: GitServer, evil: GitServer) -> tuple[str, str, str]:
    make_repository(folder / "r", {"hello": "hello\n"})
    base = f"http://good.example:{good.port}"
    private = f"http://{PRIVATE}:{evil.port}"
    if scenario == "moved within":
        good.moved = {"/old": f"{base}/r"}
        return f"{base}/old", "main", "cat r/hello"
    if scenario == "moved to an address":
        good.moved = {"/r": f"{private}/r"}
    if scenario == "moved to a name":
        good.moved = {"/r": f"http://evil.example:{evil.port}/r"}
    if scenario == "rebinding":
        return f"http://flip.example:{evil.port}/r", "main", "cat r/hello"
    if scenario == "git protocol":
        return f"git://evil.example:{evil.port}/r", "main", "cat r/hello"
    if scenario == "ssh":
        return f"git@evil.example:{evil.port}", "main", "cat r/hello"
    if scenario == "submodule":
        modules = f'[submodule "s"]\n\tpath = s\n\turl = {private}/r\n'
        (folder / "r" / ".gitmodules").write_text(modules)
        commit = git(folder / "r", "rev-parse", "HEAD")
        git(folder / "r", "update-index", "--add", "--cacheinfo", f"160000,{commit},s")
        git(folder / "r", "add", ".gitmodules")
        git(folder / "r", "commit", "-q", "-m", "two")
        return f"{base}/r", "main", "cat r/hello; ls r/s"
    if scenario == "commit":
        return f"{base}/r", git(folder / "r", "rev-parse", "HEAD")[:10], "cat r/hello"
    return f"{base}/r", "main", "cat r/hello"


if __name__ == "__main__":
    main()
