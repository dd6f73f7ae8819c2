"""A batch of changes happens as a whole or not at all."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from providers.box.agent_process import AgentProcess, running_agent, shell
from sandstream_providers.box.client import AgentBox
from sandstream_providers.interface import FileWrite, NotFound, ProviderError, WrongKind


def tree(root: Path) -> dict[str, object]:
    """Everything below, as data."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        mode = path.lstat().st_mode
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[name] = oct(mode)
        else:
            found[name] = (oct(mode), path.read_bytes())
    return found


def test_all_kinds_in_one_batch(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root = agent.root
            (root / "old").write_text("old")
            (root / "old").chmod(0o751)
            (root / "gone").mkdir()
            (root / "gone" / "file").write_text("x")
            (root / "from").write_text("moved")
            changes = [
                FileWrite(path=f"{root}/new/deep/file", data=b"\0\xff", mode=0o600),
                FileWrite(path=f"{root}/old", data=b"new"),
                FileWrite(path=f"{root}/dir", kind="dir", mode=0o700),
                FileWrite(path=f"{root}/dir/link", kind="link", target="../old"),
                FileWrite(path=f"{root}/gone", kind="remove"),
                FileWrite(path=f"{root}/none", kind="remove"),
                FileWrite(path=f"{root}/from", kind="move", target=f"{root}/to/there"),
                FileWrite(path=f"{root}/gone", data=b"a file now", exclusive=True),
                FileWrite(path=f"{root}/\udcff", data=b"odd"),
                FileWrite(path=f"{root}/new/deep", kind="dir", must_exist=True),
                FileWrite(path=f"{root}/to/there", data=b"moved", must_exist=True),
            ]
            await agent.box().change("op", changes, agent.rule)
            assert tree(root) == {
                "dir": "0o40700",
                "dir/link": "-> ../old",
                "gone": ("0o100644", b"a file now"),
                "new": "0o40755",
                "new/deep": "0o40755",
                "new/deep/file": ("0o100600", b"\0\xff"),
                "old": ("0o100751", b"new"),
                "to": "0o40755",
                "to/there": ("0o100644", b"moved"),
                "\udcff": ("0o100644", b"odd"),
            }

    asyncio.run(main())


def bad_ends(root: Path) -> list[tuple[FileWrite, type[ProviderError]]]:
    return [
        (FileWrite(path=f"{root}/file", exclusive=True), WrongKind),
        (FileWrite(path=f"{root}/none", must_exist=True), NotFound),
        (FileWrite(path=f"{root}/none", kind="remove", must_exist=True), NotFound),
        (FileWrite(path=f"{root}/folder"), WrongKind),
        (FileWrite(path=f"{root}/file", kind="dir"), WrongKind),
        (FileWrite(path=f"{root}/folder", kind="link", target="x"), WrongKind),
        (FileWrite(path=f"{root}/none", kind="move", target=f"{root}/x"), NotFound),
        (FileWrite(path=f"{root}/file", kind="move", target=f"{root}/folder"), WrongKind),
        (FileWrite(path=f"{root}/file/below"), WrongKind),
        (FileWrite(path=f"{root}/{'n' * 300}"), WrongKind),
        # only seen when the changes before it are made
        (FileWrite(path=f"{root}/made/by/batch", exclusive=True), WrongKind),
        (FileWrite(path=f"{root}/moved", must_exist=True), NotFound),
        (FileWrite(path=f"{root}/made/by", kind="link", target="x"), WrongKind),
    ]


@pytest.mark.parametrize("index", range(13))
def test_a_failure_undoes_all(tmp_path: Path, index: int) -> None:
    async def main(agent: AgentProcess, box: AgentBox) -> None:
        root = agent.root
        (root / "folder" / "inner").mkdir(parents=True)
        (root / "folder" / "inner" / "leaf").write_text("leaf")
        for name in ("file", "replaced", "moved", "target", "removed"):
            (root / name).write_text(name)
        (root / "link").symlink_to("file")
        (root / "folder").chmod(0o711)
        before = tree(root)
        bad, error = bad_ends(root)[index]
        changes = [
            FileWrite(path=f"{root}/made/by/batch", data=b"x"),
            FileWrite(path=f"{root}/replaced", data=b"other"),
            FileWrite(path=f"{root}/moved", kind="move", target=f"{root}/target"),
            FileWrite(path=f"{root}/removed", kind="remove"),
            FileWrite(path=f"{root}/link", kind="link", target="elsewhere"),
            FileWrite(path=f"{root}/folder/inner", kind="remove"),
            FileWrite(path=f"{root}/folder", kind="dir", mode=0o700),
            FileWrite(path=f"{root}/fresh", kind="dir"),
            bad,
            FileWrite(path=f"{root}/never"),
        ]
        with pytest.raises(error) as refused:
            await box.change("op", changes, agent.rule)
        assert tree(root) == before
        with pytest.raises(error, match=str(refused.value)[:20].replace("(", ".")):
            await box.change("op", changes, agent.rule)

    async def play() -> None:
        async with running_agent(tmp_path) as agent:
            await main(agent, agent.box())

    asyncio.run(play())


def test_ten_thousand_files_in_one_batch(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path, prefix=["prlimit", "--nofile=200:200"]) as agent:
            root = agent.root
            changes = [
                FileWrite(path=f"{root}/d{n // 10}/f{n}", data=b"%d" % n) for n in range(10_000)
            ]
            box = agent.box()
            writing = asyncio.create_task(box.change("op", changes, agent.rule))
            assert await agent.box().sessions() == 0  # others are served meanwhile
            await writing
            assert sum(1 for _ in root.rglob("f*")) == 10_000
            assert (root / "d999" / "f9999").read_bytes() == b"9999"
            last = FileWrite(path=f"{root}/d1/f10", exclusive=True)
            first = [FileWrite(path=f"{root}/d{n}/more/new") for n in range(1000)]
            with pytest.raises(WrongKind):
                await box.change("bad", [*first, last], agent.rule)
            assert not list(root.glob("*/more"))
            open_files = await asyncio.to_thread(_descriptors, agent)
            assert open_files < 40

    asyncio.run(main())


def _descriptors(agent: AgentProcess) -> int:
    assert agent.process is not None
    return sum(1 for _ in os.scandir(f"/proc/{agent.process.pid}/fd"))


def test_what_a_killed_agent_had_staged_is_removed(tmp_path: Path) -> None:
    async def main() -> None:
        stage = tmp_path / "workspace" / ".sandstream-stage"
        stage.mkdir(parents=True)
        (stage / "1").write_text("half")
        async with running_agent(tmp_path) as agent:
            assert await agent.box().list(str(agent.root), agent.rule) == []
            assert not stage.exists()

    asyncio.run(main())


def test_a_command_in_the_way_of_staging(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root, box = agent.root, agent.box()
            for number, make in enumerate(("ln -s /etc", "touch", "mkdir -m 0")):
                await box.run(f"op-{number}", shell(f"{make} {root}/.sandstream-stage"))
                await box.change(f"c-{number}", [FileWrite(path=f"{root}/f{number}")], agent.rule)
            assert sorted(tree(root)) == ["f0", "f1", "f2"]

    asyncio.run(main())
