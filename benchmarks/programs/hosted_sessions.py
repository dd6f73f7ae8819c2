"""Sessions at a vendor, step by step, so that the lab can count the vendor's calls of each step.

    python hosted_sessions.py sandstream|agents asyncio|uvloop

BENCH_VENDOR names the vendor; its own variables name the server.
"""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import lab_desk
from sandbox_sessions import FILL, SIDE, Sessions, checked, has_all, manifest_of, timed


class HostedSessions(Sessions):
    """Every step works in the sandbox that was opened last."""

    _state: Any = None

    async def do_made(self, files: int) -> dict[str, Any]:
        """A sandbox from a manifest, which stays."""
        manifest = manifest_of(files)
        began = time.perf_counter()
        session = await self._create(manifest=manifest)
        await session.start()
        wall_s = time.perf_counter() - began
        self._sessions.append(session)
        return {"wall_s": wall_s}

    async def do_count(self, files: int) -> dict[str, Any]:
        """Are so many files there?"""
        found = await self._sessions[-1].exec("find . -type f | wc -l")
        if int(found.stdout) != files:
            raise RuntimeError(f"wrong result: {found}")
        return {}

    async def do_fill(self, files: int, size: int) -> dict[str, Any]:
        session = self._sessions[-1]
        await session.write("fill.py", io.BytesIO(FILL.encode()))
        await checked(session, f"python3 fill.py {files // 100} {size} && rm fill.py")
        return {}

    async def do_change(self) -> dict[str, Any]:
        await checked(self._sessions[-1], "echo changed > d0/f0")
        return {}

    async def do_stop(self) -> dict[str, Any]:
        """Save the workspace."""
        return {"wall_s": await timed(self._sessions[-1].stop())}

    async def do_leave(self) -> dict[str, Any]:
        """Keep the state as text, and let the box go."""
        session = self._sessions.pop()
        self._state = self._client.serialize_session_state(session.state)
        await session.shutdown()
        return {}

    async def do_resume(self) -> dict[str, Any]:
        """In a new box, from what was saved."""
        began = time.perf_counter()
        session = await self._client.resume(self._client.deserialize_session_state(self._state))
        await session.start()
        wall_s = time.perf_counter() - began
        self._sessions.append(session)
        return {"wall_s": wall_s}

    async def do_all_there(self, files: int) -> dict[str, Any]:
        await has_all(self._sessions[-1], files)
        return {}

    async def _delete(self, session: Any) -> None:
        if SIDE == "agents":  # its client leaves a box at E2B running
            await session.shutdown()
        else:
            await super()._delete(session)


async def opened() -> lab_desk.Handler:
    return HostedSessions()


lab_desk.serve(opened, sys.argv[2])
