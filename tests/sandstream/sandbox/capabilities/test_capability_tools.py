"""What a model is told about the built-in tools, and calls of them in the user's own process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.box_session import BoxSession, in_session

from sandstream.custom_tool import CustomTool
from sandstream.editor import ApplyPatchEditor, ApplyPatchOperation
from sandstream.exceptions import UserError
from sandstream.sandbox.capabilities import Filesystem, Shell, ShellToolSet
from sandstream.sandbox.capabilities.filesystem import FilesystemToolSet
from sandstream.sandbox.capabilities.tools import (
    ExecCommandTool,
    SandboxApplyPatchTool,
    ViewImageTool,
    WriteStdinTool,
)
from sandstream.sandbox.types import User
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope
from sandstream.tool import FunctionTool, ToolOutputImage, invoke_function_tool
from sandstream.tool_context import ToolContext


class NoTerminal:
    """A session whose provider has no terminals."""

    def supports_pty(self) -> bool:
        return False

    async def run_tool(self, name: str, arguments: str, **scope: Any) -> Any:
        raise AssertionError(f"{name} was called")


def context(tool: str, arguments: str) -> ToolContext[Any]:
    return ToolContext(None, tool_name=tool, tool_call_id="call-1", tool_arguments=arguments)


def undescribed(schema: Any) -> Any:
    """A schema without its prose."""
    if isinstance(schema, dict):
        return {
            key: undescribed(value)
            for key, value in schema.items()
            if not (key == "description" and isinstance(value, str))
        }
    return [undescribed(each) for each in schema] if isinstance(schema, list) else schema


OPTIONAL_TEXT = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
LIMIT = {
    "anyOf": [{"minimum": 1, "type": "integer"}, {"type": "null"}],
    "default": None,
    "title": "Max Output Tokens",
}


def test_schemas() -> None:
    session = NoTerminal()
    expected: list[tuple[Any, str, dict[str, Any]]] = [
        (
            ExecCommandTool(session=session),
            "exec_command",
            {
                "title": "ExecCommandArgs",
                "type": "object",
                "required": ["cmd"],
                "properties": {
                    "cmd": {"minLength": 1, "title": "Cmd", "type": "string"},
                    "workdir": {**OPTIONAL_TEXT, "title": "Workdir"},
                    "shell": {**OPTIONAL_TEXT, "title": "Shell"},
                    "login": {"default": True, "title": "Login", "type": "boolean"},
                    "tty": {"default": False, "title": "Tty", "type": "boolean"},
                    "yield_time_ms": {
                        "default": 10000,
                        "minimum": 0,
                        "title": "Yield Time Ms",
                        "type": "integer",
                    },
                    "max_output_tokens": LIMIT,
                },
            },
        ),
        (
            WriteStdinTool(session=session),
            "write_stdin",
            {
                "title": "WriteStdinArgs",
                "type": "object",
                "required": ["session_id"],
                "properties": {
                    "session_id": {"title": "Session Id", "type": "integer"},
                    "chars": {"default": "", "title": "Chars", "type": "string"},
                    "yield_time_ms": {
                        "default": 250,
                        "minimum": 0,
                        "title": "Yield Time Ms",
                        "type": "integer",
                    },
                    "max_output_tokens": LIMIT,
                },
            },
        ),
        (
            ViewImageTool(session=session),
            "view_image",
            {
                "title": "ViewImageArgs",
                "type": "object",
                "required": ["path"],
                "properties": {"path": {"minLength": 1, "title": "Path", "type": "string"}},
            },
        ),
    ]
    for tool, name, schema in expected:
        assert isinstance(tool, FunctionTool)
        assert tool.name == vars(type(tool))["sandbox_tool"] == name
        assert not tool.strict_json_schema
        assert undescribed(tool.params_json_schema) == schema
        described = [
            field["description"] for field in tool.params_json_schema["properties"].values()
        ]
        assert all(described)


def test_the_patch_tool_is_a_custom_tool_with_a_grammar() -> None:
    tool = SandboxApplyPatchTool(session=NoTerminal())
    assert isinstance(tool, CustomTool)
    assert tool.name == type(tool).sandbox_tool == "apply_patch"
    assert tool.tool_config["type"] == "custom"
    grammar = tool.tool_config["format"]
    assert (grammar["type"], grammar["syntax"]) == ("grammar", "lark")
    for marker in ("Begin Patch", "Add File: ", "Delete File: ", "Move to: ", "End of File"):
        assert f'"*** {marker}"' in grammar["definition"]
    operations = tool.parse_custom_input(
        "*** Begin Patch\n*** Delete File: a\n*** Update File: b\n*** Move to: c\n@@\n-x\n"
        "*** End Patch"
    )
    assert operations == [
        ApplyPatchOperation(type="delete_file", path="a"),
        ApplyPatchOperation(type="update_file", path="b", diff="@@\n-x\n", move_to="c"),
    ]
    with pytest.raises(ValueError, match="must start with"):
        tool.parse_custom_input("nonsense")


def test_the_example_in_the_description_is_a_patch() -> None:
    tool = SandboxApplyPatchTool(session=NoTerminal())
    start = tool.description.index("*** Begin Patch")
    end = tool.description.index("*** End Patch") + len("*** End Patch")
    operations = tool.parse_custom_input(tool.description[start:end])
    assert [each.type for each in operations] == ["create_file", "update_file", "delete_file"]


def test_definition_of_a_custom_tool() -> None:
    async def nothing(ctx: object, text: str) -> str:
        return text

    plain = CustomTool("t", "does", nothing)
    assert plain.tool_config == {"type": "custom", "name": "t", "description": "does"}
    assert (plain.type, plain.runtime_needs_approval()) == ("custom", False)
    full = CustomTool(
        name="t",
        description="does",
        on_invoke_tool=nothing,
        format={"type": "text"},
        defer_loading=True,
        allowed_callers=["direct"],
    )
    assert full.tool_config == {
        "type": "custom",
        "name": "t",
        "description": "does",
        "format": {"type": "text"},
        "defer_loading": True,
        "allowed_callers": ["direct"],
    }
    for callers in ([], ["direct", "direct"], ["nobody"], "direct"):
        with pytest.raises(UserError, match="allowed_callers"):
            CustomTool("t", "does", nothing, allowed_callers=callers)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="name of a tool"):
        CustomTool("", "does", nothing)


def test_tools_need_a_session_and_terminals_may_be_missing() -> None:
    for capability in (Shell(), Filesystem()):
        with pytest.raises(ValueError, match=r"bind\(session\)"):
            capability.tools()
        capability.bind(NoTerminal())
    shell = Shell()
    shell.bind(NoTerminal())
    assert [tool.name for tool in shell.tools()] == ["exec_command"]


def test_configure_tools(tmp_path: Path) -> None:
    def careful(tools: ShellToolSet) -> None:
        tools.exec_command.needs_approval = True
        tools.write_stdin = None

    def ask(ctx: object, operation: ApplyPatchOperation, call_id: str) -> bool:
        return operation.type == "delete_file"

    def careful_patches(tools: FilesystemToolSet) -> None:
        tools.apply_patch.needs_approval = ask

    async def story(session: BoxSession) -> None:
        shell = Shell(configure_tools=careful)
        shell.bind(session)
        [tool] = shell.tools()
        assert (tool.name, tool.needs_approval) == ("exec_command", True)
        files = Filesystem(configure_tools=careful_patches)
        files.bind(session)
        view, patch = files.tools()
        assert (view.name, patch.name) == ("view_image", "apply_patch")
        assert patch.operation_needs_approval is ask

    in_session(tmp_path, story)


def test_calls_in_process_go_to_the_session(tmp_path: Path) -> None:
    async def story(session: BoxSession) -> None:
        shell, files = Shell(), Filesystem()
        for capability in (shell, files):
            capability.bind(session)
        exec_command, write_stdin = shell.tools()
        view_image, apply_patch = files.tools()

        async def call(tool: FunctionTool, **arguments: Any) -> Any:
            text = json.dumps(arguments)
            return await invoke_function_tool(tool, context(tool.name, text), text)

        assert str(await call(exec_command, cmd="echo hi")).endswith("Output:\nhi\n")
        assert "PTY session not found: 1234" in await call(write_stdin, session_id=1234)
        patch = "*** Begin Patch\n*** Add File: a.svg\n+<svg/>\n*** End Patch"
        assert await apply_patch.on_invoke_tool(context("apply_patch", patch), patch) == (
            "Created a.svg"
        )
        image = await call(view_image, path="a.svg")
        assert image == ToolOutputImage(image_url="data:image/svg+xml;base64,PHN2Zy8+")
        assert await call(view_image, path="b.svg") == "image path `b.svg` was not found"
        assert await call(exec_command) == (
            "Invalid tool arguments for cmd. Check the tool schema and try again."
        )
        assert [scope for _, _, scope in session.calls] == [{}] * len(session.calls)

    in_session(tmp_path, story)


def test_working_directory_and_user_are_passed_on(tmp_path: Path) -> None:
    async def story(session: BoxSession) -> None:
        (session.root / "sub").mkdir()
        shell = Shell()
        shell.bind(session)
        shell.bind_run_as(User(name="builder"))
        shell.bind_workspace_scope(SandboxWorkspaceScope.from_cwd("sub"))
        result = await shell.tools()[0].on_invoke_tool(context("x", ""), '{"cmd": "pwd"}')
        assert result.endswith(f"Output:\n{session.root}/sub\n")
        assert session.calls[-1][2] == {"cwd": "sub", "user": "builder"}

    in_session(tmp_path, story)


def test_the_editor_applies_single_operations(tmp_path: Path) -> None:
    async def story(session: BoxSession) -> None:
        editor = SandboxApplyPatchTool(session=session).editor
        assert isinstance(editor, ApplyPatchEditor)
        made = await editor.create_file(
            ApplyPatchOperation(type="create_file", path="a", diff="+1\n+2\n")
        )
        assert made.output == "Created a"
        moved = await editor.update_file(
            ApplyPatchOperation(type="update_file", path="a", diff="@@\n-1\n+x\n", move_to="b")
        )
        assert moved.output == "Updated a\nMoved a to b"
        assert (session.root / "b").read_text() == "x\n2"
        gone = await editor.delete_file(ApplyPatchOperation(type="delete_file", path="b"))
        assert gone.output == "Deleted b"
        assert list(session.root.iterdir()) == []

    in_session(tmp_path, story)
