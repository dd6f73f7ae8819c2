"""Sandbox sessions, the same on either side: commands, files, snapshots, agents that work in them.

    python sandbox_sessions.py sandstream|sandstream-remote|agents asyncio|uvloop

`sandstream` has its sandbox actor in this process, `sandstream-remote` in another one. The
baseline's sandboxes are directories of this process. If BENCH_IMAGE names an image, all sandboxes
are Docker containers of it; with `sandstream-shell` ours have no agent in them.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import lab_desk
from sandbox_clients import IMAGE, new_client

SIDE = sys.argv[1]
MODEL = "gpt-4.1"

if SIDE == "agents":
    from agents import RunConfig, Runner
    from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
    from agents.sandbox.entries import File
    from agents.sandbox.snapshot import LocalSnapshotSpec
else:
    from sandstream import RunConfig, Runner
    from sandstream.sandbox import File, Manifest, SandboxAgent, SandboxRunConfig

FILL = """
import hashlib, os, sys
folders, size = int(sys.argv[1]), int(sys.argv[2])
for folder in range(folders):
    os.mkdir(f"d{folder}")
    for number in range(100):
        block = hashlib.sha256(f"{folder}/{number}".encode()).digest()
        with open(f"d{folder}/f{number}", "wb") as file:
            file.write((block * (size // 32 + 1))[:size])
"""


class Sessions:
    """What is measured. Times are of the calls alone; each result is looked at."""

    def __init__(self) -> None:
        self._client, self._options = new_client(SIDE)
        self._sessions: list[Any] = []
        self._snapshots = Path(tempfile.gettempdir()) / "snapshots"

    async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        method = getattr(self, f"do_{request.pop('do')}")
        answer: dict[str, Any] = await method(**request)
        return answer

    async def _create(self, manifest: Any = None, snapshot: Any = None) -> Any:
        if SIDE == "agents":
            # without it the baseline keeps nothing
            snapshot = snapshot or LocalSnapshotSpec(base_path=self._snapshots)
            return await self._client.create(
                manifest=manifest or Manifest(), snapshot=snapshot, options=self._options
            )
        session = await self._client.create(
            manifest=manifest, snapshot=snapshot, options=self._options
        )
        if SIDE == "sandstream-remote":
            await elsewhere(session)
        return session

    async def _delete(self, session: Any) -> None:
        await self._client.delete(session)

    async def do_open(self, count: int) -> dict[str, Any]:
        """So many empty sandboxes at once, which stay."""
        began = time.perf_counter()
        opened = [await self._create() for _ in range(count)]
        await asyncio.gather(*(session.start() for session in opened))
        wall_s = time.perf_counter() - began
        self._sessions += opened
        return {"wall_s": wall_s}

    async def do_close(self) -> dict[str, Any]:
        sessions, self._sessions = self._sessions, []
        began = time.perf_counter()
        await asyncio.gather(*(self._delete(session) for session in sessions))
        return {"wall_s": time.perf_counter() - began}

    # --- commands ------------------------------------------------------------------------------

    async def do_exec(self, times: int) -> dict[str, Any]:
        """One after the other in the last sandbox."""
        session = self._sessions[-1]
        took = []
        for _ in range(times):
            began = time.perf_counter()
            done = await session.exec("true")
            took.append(time.perf_counter() - began)
            if done.exit_code != 0:
                raise RuntimeError(f"wrong result: {done}")
        return {"exec_s": took}

    async def do_first(self) -> dict[str, Any]:
        """From nothing to the end of the first command, in a sandbox that is removed again."""
        began = time.perf_counter()
        session = await self._create()
        await session.start()
        await checked(session, "true")
        first_s = time.perf_counter() - began
        await self._delete(session)
        return {"first_s": first_s}

    async def do_exec_each(self) -> dict[str, Any]:
        """One in each sandbox, at once."""
        began = time.perf_counter()
        await asyncio.gather(*(session.exec("true") for session in self._sessions))
        return {"wall_s": time.perf_counter() - began}

    # --- agents --------------------------------------------------------------------------------

    async def do_runs(self, runs: int, turns: int, own: bool) -> dict[str, Any]:
        """Runs of an agent with a command per turn; ``own``: each with a sandbox of its own."""
        agent = SandboxAgent(name="Worker", instructions="Work.", model=MODEL)
        of_its_own = {"client": self._client, "options": self._options}
        given = of_its_own if own else {"session": self._sessions[-1]}
        config = RunConfig(sandbox=SandboxRunConfig(**given))
        began = time.perf_counter()
        for number in range(runs):
            result = await Runner.run(agent, f"Work {number}, please.", run_config=config)
            if result.final_output != "done" or len(result.raw_responses) != turns:
                raise RuntimeError(f"wrong result: {result}")
        return {"wall_s": time.perf_counter() - began}

    # --- files ---------------------------------------------------------------------------------

    async def do_manifest(self, files: int) -> dict[str, Any]:
        """Make a sandbox from a manifest, remove it."""
        manifest = manifest_of(files)
        began = time.perf_counter()
        session = await self._create(manifest=manifest)
        await session.start()
        started = time.perf_counter()
        found = await session.exec("find . -type f | wc -l")
        if int(found.stdout) != files:
            raise RuntimeError(f"wrong result: {found}")
        deleting = time.perf_counter()
        await self._delete(session)
        deleted = time.perf_counter()
        return {"start_s": started - began, "delete_s": deleted - deleting}

    async def do_snapshots(self, files: int, size: int) -> dict[str, Any]:
        """The life of a workspace: stop, change, stop, resume, fork."""
        session = await self._create()
        await session.start()
        await session.write("fill.py", io.BytesIO(FILL.encode()))
        await checked(session, f"python3 fill.py {files // 100} {size} && rm fill.py")
        cold_s = await timed(session.stop())
        await checked(session, "echo changed > d0/f0")
        again_s = await timed(session.stop())
        took = {"cold_s": cold_s, "again_s": again_s}
        if SIDE == "agents" and not IMAGE:
            took["tar_s"] = await asyncio.to_thread(_tar, Path(session.state.manifest.root))
        state = self._client.deserialize_session_state(
            self._client.serialize_session_state(session.state)
        )
        if SIDE == "agents":
            await self._delete(session)  # a snapshot is only used where no files are left
        else:
            await session.shutdown()
        began = time.perf_counter()
        resumed = await self._client.resume(state)
        if SIDE == "sandstream-remote":
            await elsewhere(resumed)
        await resumed.start()
        took["resume_s"] = time.perf_counter() - began
        await has_all(resumed, files)
        began = time.perf_counter()
        fork = await self._create(snapshot=resumed.state.snapshot)
        took["name_fork_s"] = time.perf_counter() - began
        await fork.start()
        took["fork_s"] = time.perf_counter() - began
        await has_all(fork, files)
        took["fork_stop_s"] = await timed(fork.stop())
        for each in (resumed, fork):
            await self._delete(each)
        return took


def manifest_of(files: int) -> Any:
    entries = {f"d{n % 10}/f{n}": File(content=b"%d\n" % n * 100) for n in range(files)}
    return Manifest(entries=entries)


async def timed(work: Any) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def checked(session: Any, command: str) -> None:
    done = await session.exec(command)
    if done.exit_code != 0:
        raise RuntimeError(f"{command}: {done}")


async def has_all(session: Any, files: int) -> None:
    found = await session.exec("find . -type f | wc -l; cat d0/f0")
    if found.stdout.split() != [b"%d" % files, b"changed"]:
        raise RuntimeError(f"wrong result: {found}")


def _tar(root: Path) -> float:
    """What a plain archive of the same files takes."""
    began = time.perf_counter()
    with tarfile.open(root.with_suffix(".tar"), "w") as tar:
        tar.add(root, arcname=".")
    return time.perf_counter() - began


async def elsewhere(session: Any) -> None:
    """Its sandbox is that of whichever actor serves this machine, not of this process's own."""
    from sandstream._run.process import Process
    from sandstream.sandbox.session.link import BusLink

    session.remote.link = BusLink((await Process.of_this_loop()).bus, "local")


async def opened() -> lab_desk.Handler:
    return Sessions()


if __name__ == "__main__":
    lab_desk.serve(opened, sys.argv[2])
