"""Things that a box must stand or be able to do: ``python trials.py HOME TRIAL [ARGUMENT...]``.

Each trial makes its box, and prints what it found as JSON. A program of its own, so that another
user can run it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from sandstream_providers.interface import Box, BoxSpec, ExecSpec, Limits, Output
from sandstream_providers.local import LocalProvider

HERE = Path(__file__).parent
_numbers = itertools.count()


@contextlib.asynccontextmanager
async def a_box(home: Path, **fields: Any) -> AsyncIterator[Box]:
    provider = LocalProvider(home)
    try:
        yield await provider.create(BoxSpec(key="box", labels={"owner": "tests"}, **fields))
    finally:
        await provider.delete("box")
        await provider.close()


async def run(box: Box, *argv: str, wait_s: float | None = None, **fields: Any) -> Output:
    fields.setdefault("timeout_s", 40)
    spec = ExecSpec(argv=list(argv), cwd=box.root, **fields)
    return await box.run(f"op-{next(_numbers)}", spec, wait_s=wait_s)


async def checked(home: Path) -> dict[str, str]:
    """What the provider says of this machine."""
    provider = LocalProvider(home)
    try:
        return await provider.check()
    finally:
        await provider.close()


async def calls(home: Path, wanted: str) -> Any:
    """What system calls answer in a box."""
    async with a_box(home) as box:
        source = (HERE / "call_probe.py").read_bytes()
        output = await run(box, "/usr/bin/python3", "-", wanted, stdin=source)
        assert output.exit_code == 0, output
        return json.loads(output.stdout)


async def work(home: Path, script: str) -> Any:
    """What a script of ordinary work answers in a box."""
    async with a_box(home, limits=Limits()) as box:
        output = await run(box, "sh", "-e", "-c", script)
        return [output.exit_code, output.stdout.decode(), output.stderr.decode()]


async def put_greedy(box: Box) -> None:
    source = (HERE / "greedy.py").read_bytes()
    written = await run(box, "sh", "-c", "cat > greedy.py", stdin=source)
    assert written.exit_code == 0, written


async def greed(home: Path, name: str) -> Any:
    """What comes of a command that takes more than its share, and of the others in the box."""
    async with a_box(home, limits=Limits(memory_mb=MEMORY_MB, file_mb=4096)) as box:
        started = await run(box, "python3", "-c", BYSTANDER, wait_s=2, timeout_s=None)
        assert started.state == "running", started
        agent = await run(box, "cut", "-d ", "-f22", "/proc/1/stat")
        await put_greedy(box)
        greedy = await run(box, "python3", "greedy.py", name, wait_s=15, timeout_s=None)
        await asyncio.sleep(SETTLE_S)
        held = await run(box, "python3", "-c", HELD)
        again = await run(box, "python3", "-c", "print(len(bytearray(b'x') * (40 << 20)))")
        bystander = await box.interact("look", started.session, b"", wait_s=0)
        same = await run(box, "cut", "-d ", "-f22", "/proc/1/stat")
        return {
            "bystander": bystander.state,
            "exit_code": greedy.exit_code,
            "said": greedy.stdout.decode(),
            "errors": greedy.stderr.decode()[-2000:],
            "killed": greedy.killed,
            "held_mb": int(held.stdout or -1),
            "again": again.stdout.decode().strip(),
            "same_agent": same.stdout == agent.stdout != b"",
        }


async def time_limit(home: Path) -> Any:
    """Whether what has detached itself ends with a command that took too long, and only then."""
    async with a_box(home) as box:
        await put_greedy(box)
        late = await run(box, "python3", "greedy.py", "linger", timeout_s=2)
        left = await run(box, "pgrep", "-fc", "linger-on")
        server = await run(box, "sh", "-c", "setsid env -i /bin/sleep 1234 >/dev/null 2>&1 &")
        also_late = await run(box, "sleep", "30", timeout_s=0.5)
        kept = await run(box, "pgrep", "-xc", "sleep")
        return {
            "killed": [late.killed, also_late.killed, server.killed],
            "left": int(left.stdout),
            "kept": int(kept.stdout),
        }


async def abstract_sockets(home: Path) -> Any:
    """Whether a box with the host's network reaches abstract sockets of the host, and its own."""
    name = f"sandstream-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        async with a_box(home, network="host") as box:
            return [
                (await run(box, "python3", "-c", CONNECT, own, name)).stdout.decode().strip()
                for own in ("own", "host")
            ]


CONNECT = """
import socket, sys
kind, name = sys.argv[1:]
if kind == "own":
    name += "-own"
    listener = socket.socket(socket.AF_UNIX); listener.bind("\\0" + name); listener.listen()
try:
    socket.socket(socket.AF_UNIX).connect("\\0" + name)
    print("connected")
except OSError as error:
    print(error.strerror)
"""
MEMORY_MB = 256
SETTLE_S = 2.0
BYSTANDER = "x = bytearray(b'x' * (20 << 20)); import time; time.sleep(300)"
HELD = """
import glob, os
total = 0
seen = set()
for path in glob.glob("/proc/[0-9]*"):
    try:
        for line in open(path + "/status"):
            if line.startswith(("RssAnon", "RssShmem")):
                total += int(line.split()[1]) << 10
        for fd in glob.glob(path + "/fd/*"):
            facts = os.stat(fd)
            if os.readlink(fd).startswith("/memfd:") and facts.st_ino not in seen:
                seen.add(facts.st_ino)
                total += facts.st_blocks * 512
    except OSError:
        pass
for line in open("/proc/sysvipc/shm").readlines()[1:]:
    total += int(line.split()[14])
for folder in ("/tmp", "/run", "/home", "/root", "/var/tmp", "/dev/shm"):
    facts = os.statvfs(folder)
    total += (facts.f_blocks - facts.f_bfree) * facts.f_frsize
print(total >> 20)
"""
"""Megabytes that the whole box holds."""

TRIALS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    "checked": checked,
    "calls": calls,
    "work": work,
    "greed": greed,
    "time_limit": time_limit,
    "abstract_sockets": abstract_sockets,
}


def main() -> None:
    home, name, *arguments = sys.argv[1:]
    print(json.dumps(asyncio.run(TRIALS[name](Path(home), *arguments))))


main()
