"""What commands of a session find around them: variables, secrets, granted paths, the root."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from contract.sessions import SessionStage, content, refused, said, write

from sandstream.sandbox.entries import LocalFile
from sandstream.sandbox.environment import EnvEntry, Environment, EnvValue, SecretRef
from sandstream.sandbox.errors import (
    InvalidManifestPathError,
    SandboxError,
    WorkspaceArchiveWriteError,
)
from sandstream.sandbox.manifest import Manifest

SHOW = 'printf "%s|" "$PLAIN" "$ENTRY" "$LATE" "$SECRET" "$HOST_TOKEN"'


class LateValue(EnvValue):
    type: Literal["contract_late"] = "contract_late"

    async def resolve(self) -> str:
        return "looked up"


def test_variables(sessions: SessionStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDSTREAM_SECRET_contract", "s3cret ü")
    monkeypatch.setenv("HOST_TOKEN", "not for sandboxes")
    environment = Environment(
        value={
            "PLAIN": "text with 'quotes' and $dollars",
            "ENTRY": EnvEntry(value={"value": "entry"}, description="of the tests"),  # type: ignore[arg-type]
            "LATE": LateValue(),
            "SECRET": SecretRef("contract"),
        }
    )

    async def story() -> None:
        client = sessions.client()
        async with sessions.fresh(client, manifest=Manifest(environment=environment)) as session:
            expected = "text with 'quotes' and $dollars|entry|looked up|s3cret ü||"
            assert await said(session, SHOW) == expected
            assert "s3cret" not in str(client.serialize_session_state(session.state))
            await session.aclose()
            await session.start()
            assert await said(session, SHOW) == expected

    sessions.run(story())


def test_a_missing_secret(sessions: SessionStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDSTREAM_SECRET_missing", raising=False)
    environment = Environment(value={"SECRET": SecretRef("missing")})

    async def story() -> None:
        session = sessions.unmade(manifest=Manifest(environment=environment))
        with refused(SandboxError, "sandbox_config_invalid", secret="missing") as caught:
            await session.start()
        assert "SANDSTREAM_SECRET_missing" in str(caught.value)
        assert not await session.running()

    sessions.run(story())


@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_names_that_are_none(sessions: SessionStage, name: str) -> None:
    async def story() -> None:
        with pytest.raises(ValueError, match="environment variable"):
            manifest = Manifest(environment=Environment(value={name: "x"}))
            await sessions.client().create(manifest=manifest)

    sessions.run(story())


@pytest.mark.needs("root")
def test_the_root_of_the_manifest(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh(manifest=Manifest(root="/srv/project")) as session:
            await write(session, "file", b"mine")
            assert await said(session, "pwd; cat /srv/project/file") == "/srv/project\nmine"
            assert await content(session, "/srv/project/file") == b"mine"

    sessions.run(story())


def _granting(sessions: SessionStage, public_dir: Path) -> Manifest:
    for name in ("books", "shared"):
        (public_dir / name).mkdir()
        (public_dir / name / "file").write_text(f"from {name}")
    (public_dir / "shared").chmod(0o777)
    return Manifest(
        extra_path_grants=(
            sessions.grant(public_dir / "books", read_only=True),
            sessions.grant(public_dir / "shared"),
        )
    )


@pytest.mark.needs("sessions.grants")
def test_granted_paths(sessions: SessionStage, public_dir: Path) -> None:
    manifest = _granting(sessions, public_dir)
    books, shared = public_dir / "books", public_dir / "shared"

    async def story() -> None:
        async with sessions.fresh(manifest=manifest) as session:
            assert await content(session, str(books / "file")) == b"from books"
            assert await said(session, f"cat {books}/file {shared}/file") == "from booksfrom shared"
            acts: list[Callable[[], Awaitable[Any]]] = [
                lambda: session.write(books / "new", io.BytesIO(b"x")),
                lambda: session.rm(books / "file"),
                lambda: session.mkdir(books / "new"),
                lambda: session.mv(books / "file", "taken"),
            ]
            for act in acts:
                code = "workspace_archive_write_error"
                with refused(WorkspaceArchiveWriteError, code, grant_path=str(books)):
                    await act()
            await session.write(shared / "new", io.BytesIO(b"mine"))
            assert [it.path for it in await session.ls(shared)] == [
                str(shared / "file"),
                str(shared / "new"),
            ]
            with refused(InvalidManifestPathError, "invalid_manifest_path", reason="absolute"):
                await session.read(public_dir / "other")
            await said(session, f"ln -s {books} link; ln -s {public_dir} out")
            assert await content(session, "link/file") == b"from books"
            with refused(InvalidManifestPathError, "invalid_manifest_path", reason="read_only"):
                await write(session, "link/new", b"x")
            with refused(InvalidManifestPathError, "invalid_manifest_path", reason="escape"):
                await session.ls("out")
        assert (shared / "new").read_text() == "mine"
        assert sorted(path.name for path in books.iterdir()) == ["file"]

    sessions.run(story())


@pytest.mark.needs("grants")
def test_commands_cannot_write_to_read_only_grants(
    sessions: SessionStage, public_dir: Path
) -> None:
    manifest = _granting(sessions, public_dir)

    async def story() -> None:
        async with sessions.fresh(manifest=manifest) as session:
            for script in (f"echo x > {public_dir}/books/file", f"rm {public_dir}/books/file"):
                assert not (await session.exec(script)).ok()
            assert not (await session.exec(f"ls {public_dir}/other")).ok()
            await said(session, f"echo more > {public_dir}/shared/new")

    sessions.run(story())


@pytest.mark.needs("sessions.grants")
def test_files_of_a_grant_can_be_taken(sessions: SessionStage, public_dir: Path) -> None:
    granted = _granting(sessions, public_dir)
    manifest = granted.model_copy(
        update={"entries": {"copy": LocalFile(src=public_dir / "books" / "file")}}
    )

    async def story() -> None:
        async with sessions.fresh(manifest=manifest) as session:
            assert await content(session, "copy") == b"from books"

    sessions.run(story())


@pytest.mark.needs("sessions.limits")
def test_unknown_limits_and_limits_that_hold(sessions: SessionStage) -> None:
    async def story() -> None:
        client, options = sessions.client(), sessions.options
        with pytest.raises(ValueError, match="unknown"):
            await client.create(options=options(limits={"disc_mb": 5}))
        async with sessions.fresh(client, options=options(limits={"wall_s": 0.3})) as session:
            with refused(SandboxError, "exec_timeout"):
                await session.exec("sleep 30")
            assert (await session.exec("true")).ok()

    sessions.run(story())


@pytest.mark.needs("limits.disk")
def test_a_full_disk(sessions: SessionStage) -> None:
    async def story() -> None:
        options = sessions.options(limits={"disk_mb": 5})
        async with sessions.fresh(options=options) as session:
            assert not (await session.exec("head -c 9000000 /dev/zero > big")).ok()
            code = "workspace_archive_write_error"
            with refused(WorkspaceArchiveWriteError, code, provider_code="no_space"):
                await write(session, "more", b"x" * 200_000)
            await said(session, "rm big")
            await write(session, "more", b"x" * 200_000)

    sessions.run(story())
