"""Users and groups of a manifest: commands, files and agents have their rights and no others."""

from __future__ import annotations

import io
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from contract.sessions import SessionStage

from sandstream import RunConfig, Runner, ToolCallOutputItem
from sandstream.sandbox import (
    Dir,
    File,
    Group,
    Manifest,
    Permissions,
    SandboxAgent,
    SandboxRunConfig,
    User,
)
from sandstream.sandbox.errors import SandboxError
from sandstream.testing import ScriptedModel, custom_tool_call, text, tool_call

pytestmark = pytest.mark.needs("users")
DEV, TEAM = User(name="dev"), Group(name="team", users=[User(name="dev")])
PLAN = File(content=b"secret", permissions=Permissions.from_str("-rw-------"))
SHARED = Manifest(
    users=[DEV],
    groups=[TEAM],
    entries={
        "shared": Dir(group=TEAM, permissions=Permissions.from_str("drwxrwx---")),
        "closed": Dir(
            permissions=Permissions.from_str("drwxr-x---"),
            children={"plan.md": PLAN},
        ),
    },
)


def in_session(
    sessions: SessionStage, story: Callable[[Any, Any], Coroutine[Any, Any, None]]
) -> None:
    """Play the story in a session, which is gone afterwards."""

    async def main() -> None:
        client = sessions.client()
        async with sessions.fresh(client, manifest=SHARED) as session:
            await story(client, session)

    sessions.run(main())


async def said(session: Any, command: str, **more: Any) -> str:
    done = await session.exec(command, **more)
    assert done.exit_code == 0, done
    return str(done.stdout.decode())


def test_commands_run_as_a_user_of_the_manifest(sessions: SessionStage) -> None:
    async def story(_: Any, session: Any) -> None:
        assert await said(session, "id -un; id -Gn", user="dev") == "dev\ndev team\n"
        assert await said(session, "stat -c '%a %U %G' shared closed closed/plan.md") == (
            "770 root team\n750 root root\n600 root root\n"
        )
        assert await said(session, "echo mine > shared/a; stat -c %U shared/a", user=DEV) == "dev\n"
        refused = await session.exec("cat closed/plan.md", user="dev")
        assert refused.exit_code != 0 and b"denied" in refused.stderr
        nobody = await session.exec("true", user="nobody-here")
        assert nobody.exit_code == 126 and b"there is no user nobody-here" in nobody.stderr

    in_session(sessions, story)


def test_files_are_read_and_written_with_the_rights_of_a_user(sessions: SessionStage) -> None:
    async def story(_: Any, session: Any) -> None:
        await session.write("shared/sub/b", io.BytesIO(b"1"), user="dev")
        await session.mkdir("shared/new", user="dev")
        owners = await said(session, "stat -c '%U %n' shared/sub shared/sub/b shared/new")
        assert [line.split()[0] for line in owners.splitlines()] == ["dev"] * 3
        assert (await session.read("shared/sub/b", user="dev")).read() == b"1"
        await session.write("shared/sub/b", io.BytesIO(b"root was here"))  # stays whose it was
        assert await said(session, "stat -c %U shared/sub/b") == "dev\n"
        await session.mv("shared/new", "shared/newer", user="dev")
        await session.rm("shared/newer", user="dev")
        attempts: tuple[Callable[[], Coroutine[Any, Any, object]], ...] = (
            lambda: session.read("closed/plan.md", user="dev"),
            lambda: session.ls("closed", user="dev"),
            lambda: session.write("closed/plan.md", io.BytesIO(b"x"), user="dev"),
            lambda: session.write("closed/other.md", io.BytesIO(b"x"), user="dev"),
            lambda: session.rm("closed/plan.md", user="dev"),
            lambda: session.mkdir("closed/more", user="dev"),
        )
        for attempt in attempts:
            with pytest.raises(SandboxError, match="the user dev may not do this"):
                await attempt()
        assert (await session.read("closed/plan.md")).read() == b"secret"

    in_session(sessions, story)


def test_groups_are_there_again_after_a_restore(sessions: SessionStage) -> None:
    async def story(client: Any, session: Any) -> None:
        await said(session, "echo saved > shared/a", user="dev")
        await session.aclose()
        resumed = await client.resume(session.state)
        async with resumed:
            assert await said(resumed, "stat -c '%a %U %G' shared") == "770 root team\n"
            assert await said(resumed, "cat shared/a; touch shared/b", user="dev") == "saved\n"
            assert await said(resumed, "stat -c '%U %G' shared/a") == "root root\n"
            await said(resumed, "chown -R dev shared")
            assert await said(resumed, "echo more >> shared/a; cat shared/a", user="dev") == (
                "saved\nmore\n"
            )

    in_session(sessions, story)


def test_an_agent_works_as_its_user(
    sessions: SessionStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = "*** Begin Patch\n*** Add File: shared/notes.md\n+# Notes\n*** End Patch\n"
    forbidden = "*** Begin Patch\n*** Add File: closed/notes.md\n+# Notes\n*** End Patch\n"
    steps = [
        tool_call("exec_command", {"cmd": "id -un; stat -c %U shared/notes.md"}),
        custom_tool_call("apply_patch", forbidden),
        text("Done."),
    ]
    agent = SandboxAgent(name="coder", default_manifest=SHARED, run_as="dev")

    async def main() -> list[str]:
        async with ScriptedModel([custom_tool_call("apply_patch", patch), *steps]) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            sandbox = SandboxRunConfig(
                client=sessions.client(), options=sessions.options(), checkpoint="never"
            )
            result = await Runner.run(agent, "go", run_config=RunConfig(sandbox=sandbox))
            items = result.new_items
            return [str(it.output) for it in items if isinstance(it, ToolCallOutputItem)]

    added, command, refused = sessions.run(main())
    assert "notes.md" in added
    assert command.endswith("Output:\ndev\ndev\n")
    assert "the user dev may not do this" in refused
