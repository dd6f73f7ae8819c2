"""What the manifest of an agent gives its boxes is there in each turn of a session."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from actors.sessions.desk import desk, obedient
from sandstream_bus.wire.sessions import ForkSession, PauseSession, RewindSession
from support.nats_server import NatsServer

from sandstream.sandbox import Manifest, SandboxAgent
from sandstream.sandbox.entries import File, LocalDir
from sandstream.sandbox.workspace_paths import SandboxPathGrant

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def library() -> Iterator[Path]:
    """A directory that boxes may enter, which are other users."""
    with tempfile.TemporaryDirectory(prefix="sandstream-library-", dir="/var/tmp") as path:
        library = Path(path)
        library.chmod(0o755)
        (library / "books").mkdir()
        (library / "books" / "one").write_text("book\n")
        (library / "note").write_text("monday\n")
        yield library


def test_files_and_grants_are_there_in_each_box_of_a_session(
    nats_server: NatsServer, tmp_path: Path, library: Path
) -> None:
    grant = SandboxPathGrant(path=str(library), read_only=True)
    manifest = Manifest(
        entries={
            "given": File(content=b"given\n"),
            "shelf": LocalDir(src=library / "books"),
            "passing": File(content=b"passing\n", ephemeral=True),
        },
        extra_path_grants=(grant,),
    )
    reader = SandboxAgent(name="reader", model="gpt-test", default_manifest=manifest)
    steps = obedient(
        {
            "look": f"cat given shelf/one passing {library}/note >> seen 2>&1; "
            f"touch {library}/new 2>/dev/null && echo written >> seen; echo done"
        }
    )
    seen = "given\nbook\npassing\n{}\n"

    async def main() -> None:
        async with desk(nats_server, tmp_path / "home", steps, {"reader": reader}) as it:

            async def looked(session: str, turn: int) -> str:
                state = await it.say(session, "look")
                assert (state.status, state.trouble) == ("completed", "")
                record = await it.bus.sessions.turn(session, turn)
                assert record is not None
                return await it.saved(record.tree, "seen")

            await it.create("a", "reader", idle_s=None)
            expected = seen.format("monday")
            assert await looked("a", 1) == expected
            await it.ask("a", PauseSession())
            await it.until_box("a", "asleep")
            (library / "note").write_text("tuesday\n")  # a grant shows what the host has now
            assert await looked("a", 2) == expected + seen.format("tuesday")
            await it.ask("b", ForkSession(source="a", turn=1))
            await it.ask("a", RewindSession(turn=1))
            for session, turn in (("b", 1), ("a", 3)):
                assert await looked(session, turn) == expected + seen.format("tuesday")
            assert not (library / "new").exists()

    asyncio.run(main())
