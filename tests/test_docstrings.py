"""Every public name says what it is for, and documents its parameters as they are."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin, is_typeddict

import pytest
from support.sources import modules, nodes

import sandstream

_WITH_EXAMPLE = """
Actor Agent Agent.as_tool AgentHooks AgentOutputSchema AgentOutputSchemaBase AgentsException
Budget BusSession CallModelData Client Client.approvals Client.follow Client.runs Client.submit
Client.wait CustomTool DeployedAgent FunctionTool GenerateDynamicPromptData
GuardrailFunctionOutput HandoffInputData HandoffInputData.clone ItemHelpers Model ModelProvider
ModelRetrySettings ModelSettings MultiProvider OpenAIChatCompletionsModel
OpenAIConversationsSession OpenAIProvider OpenAIResponsesModel RetryPolicyContext RunConfig
RunContextWrapper RunErrorHandlers RunHooks RunResult RunResult.to_input_list RunResultStreaming
RunState RunState.from_string Runner Runner.run Runner.run_streamed Runner.run_sync SQLiteSession
SessionABC SessionSettings Span StopAtTools ToolApprovalItem ToolContext ToolErrorFormatterArgs
ToolOutputImage ToolsToFinalOutputResult Trace TracingProcessor Usage add_trace_processor
custom_span function_tool handoff input_guardrail output_guardrail retry_policies run_demo_loop
set_default_openai_client tool_input_guardrail tool_output_guardrail trace actors.ActorEntry
actors.Received events.Retry extensions.sandbox.DaytonaSandboxClient
extensions.sandbox.DaytonaSandboxClientOptions extensions.sandbox.E2BSandboxClient
extensions.sandbox.E2BSandboxClientOptions extensions.handoff_filters.remove_all_tools
extensions.handoff_prompt.prompt_with_handoff_instructions mcp.MCPServerManager mcp.MCPServerSse
mcp.MCPServerStdio mcp.MCPServerStreamableHttp mcp.MCPToolMetaContext mcp.MCPUtil
mcp.ToolFilterContext mcp.create_static_tool_filter providers.AgentProvider providers.BoxHost
providers.ProviderEntry run_config.SandboxRunConfig sandbox.Capability sandbox.Dir
sandbox.ExecResult sandbox.File sandbox.GitRepo sandbox.LocalDir sandbox.LocalFile
sandbox.LocalSnapshotSpec sandbox.Manifest sandbox.Permissions sandbox.RemoteSnapshotSpec
sandbox.SandboxAgent sandbox.SandboxError sandbox.SandboxPathGrant sandbox.SecretRef
sandbox.capabilities.Compaction sandbox.capabilities.Filesystem
sandbox.capabilities.LocalDirLazySkillSource sandbox.capabilities.Memory
sandbox.capabilities.Shell sandbox.capabilities.Skill sandbox.capabilities.Skills
sandbox.entries.BaseEntry sandbox.entries.S3Mount sandbox.manifest.Environment
sandbox.sandboxes.DockerSandboxClient sandbox.sandboxes.DockerSandboxClientOptions
sandbox.sandboxes.UnixLocalSandboxClient sandbox.sandboxes.UnixLocalSandboxClientOptions
sandbox.sandboxes.UnixLocalSandboxSession.exec
sandbox.sandboxes.UnixLocalSandboxSession.resolve_exposed_port
sandbox.sandboxes.UnixLocalSandboxSession.write sandbox.session.BaseSandboxClient.create
sandbox.session.CallbackSink sandbox.session.EventPayloadPolicy sandbox.session.EventSink
sandbox.session.HttpProxySink sandbox.session.Instrumentation sandbox.wait_for_memory
sessions.DurableSession sessions.DurableSession.follow sessions.DurableSession.fork
sessions.DurableSession.send sessions.SentMessage sessions.SessionRefused sessions.Sessions
sessions.Sessions.create
testing.Conversation testing.Script testing.ScriptedModel testing.Step testing.error
testing.reasoning testing.script_for testing.structured testing.text testing.tool_call
testing.tool_calls tracing.TracingExporter tracing.processors.BatchTraceProcessor
"""
WITH_EXAMPLE = _WITH_EXAMPLE.split()
"""The names that people use most have an example."""


# --- what is public -------------------------------------------------------------------------------


def _public_modules() -> list[str]:
    """``sandstream`` and the modules below it that say in ``__all__`` what they export. A module is
    private if a part of its name begins with an underscore.
    """
    found = [
        module
        for module, file in modules().items()
        if module.partition(".")[0] == "sandstream" and "._" not in module and _exports(file)
    ]
    return sorted(found, key=lambda it: (it.count("."), it))


def _exports(file: Path) -> bool:
    tree = nodes(file)[0]
    assert isinstance(tree, ast.Module)
    return any(
        isinstance(it, ast.Assign) and ast.unparse(it.targets[0]) == "__all__" for it in tree.body
    )


def _public() -> Iterator[tuple[str, Any]]:
    """All public classes and functions, with the public methods of the classes."""
    seen: set[int] = set()
    for module in _public_modules():
        exporter = importlib.import_module(module)
        prefix = module.removeprefix("sandstream").removeprefix(".")
        for name in exporter.__all__:
            thing = getattr(exporter, name)
            origin = get_origin(thing)
            thing = origin if inspect.isclass(origin) else thing  # RunHooks is an alias of a class
            if id(thing) in seen or not _is_callable(thing):
                continue
            seen.add(id(thing))
            full_name = f"{prefix}.{name}".removeprefix(".")
            yield full_name, thing
            if not inspect.isroutine(thing):
                yield from _methods(full_name, thing if inspect.isclass(thing) else type(thing))


def _is_callable(thing: Any) -> bool:
    """Whether a program calls it, or a method of it: ``retry_policies`` is an object of ours."""
    is_function_or_class = inspect.isclass(thing) or inspect.isroutine(thing)
    return _is_ours(thing if is_function_or_class else type(thing))


def _is_ours(thing: Any) -> bool:
    return str(thing.__module__).startswith("sandstream")


def _methods(name: str, thing: type) -> Iterator[tuple[str, Any]]:
    """The public methods of a class. What a foreign base class declares is documented there."""
    foreign = {it for base in thing.__mro__ if not _is_ours(base) for it in vars(base)}
    for owner in reversed(_ours(thing)):
        for method, value in vars(owner).items():
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            is_method = inspect.isfunction(function) and _is_ours(function)
            if is_method and not method.startswith("_") and method not in foreign:
                yield f"{name}.{method}", inspect.getattr_static(owner, method)


def _ours(thing: type) -> list[type]:
    """The class and its bases, without foreign ones."""
    return [base for base in thing.__mro__ if _is_ours(base)]


PUBLIC = dict(_public())


# --- what is documented ---------------------------------------------------------------------------


def _doc(name: str) -> str:
    """The docstring of a name. What dataclasses write themselves does not count."""
    thing = PUBLIC[name]
    by_itself = f"{name.rpartition('.')[2]}("
    if dataclasses.is_dataclass(thing) and str(thing.__doc__).startswith(by_itself):
        return ""
    if inspect.isroutine(thing):
        return inspect.getdoc(_called(name)) or ""
    return inspect.cleandoc(thing.__doc__ or "")


def _called(name: str) -> Any:
    """The name as a program calls it: a method of its class."""
    owner, _, method = name.rpartition(".")
    return getattr(PUBLIC[owner], method) if owner in PUBLIC else PUBLIC[name]


def _documented(doc: str) -> list[str]:
    """The names in the section ``Args``."""
    found = re.search(r"^Args:\n((?:(?: .*)?\n)+)", f"{doc}\n\n", re.MULTILINE)
    return re.findall(r"^    \*{0,2}(\w+):", found[1], re.MULTILINE) if found else []


@functools.cache
def _fields_with_text() -> dict[str, set[str]]:
    """By class: the fields that are followed by a docstring."""
    found: dict[str, set[str]] = {}
    for module, file in modules().items():
        for node in nodes(file):
            if isinstance(node, ast.ClassDef):
                found[f"{module}.{node.name}"] = {
                    field.target.id
                    for field, after in zip(node.body, node.body[1:], strict=False)
                    if isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(after, ast.Expr)
                    and isinstance(after.value, ast.Constant)
                }
    return found


def _documented_fields(thing: type) -> set[str]:
    """The fields of a class, and of its bases, that are followed by a docstring, or have a
    description as in ``Field(description=...)``.
    """
    by_class = _fields_with_text()
    names = [f"{owner.__module__}.{owner.__name__}" for owner in _ours(thing)]
    of_pydantic = getattr(thing, "__pydantic_fields__", {})
    described = {name for name, field in of_pydantic.items() if field.description}
    return described | {field for name in names for field in by_class.get(name, ())}


def _parameters(name: str) -> list[str]:
    """The parameters of a function; the arguments, keys or fields of a class."""
    thing = _called(name)
    if is_typeddict(thing):
        return [*thing.__annotations__]
    if not (inspect.isroutine(thing) or (inspect.isclass(thing) and _is_made_by_users(thing))):
        return []
    return [it for it in inspect.signature(thing).parameters if it != "self"]


def _is_made_by_users(thing: type) -> bool:
    """Whether a class has arguments of its own: not a protocol, an enumeration, or a class that
    leaves its creation to a foreign base, such as ``Exception``.
    """
    if issubclass(thing, enum.Enum) or getattr(thing, "_is_protocol", False):
        return False
    if dataclasses.is_dataclass(thing) or hasattr(thing, "__struct_fields__"):
        return True
    makers = {"__init__", "__new__", "__pydantic_fields__"}
    return any(makers & set(vars(base)) for base in _ours(thing))


def _missing(name: str) -> list[str]:
    """The parameters of a name that are documented nowhere. A class need not explain a tag
    (``type``) with a default, nor that fields may be given by position (``args``).
    """
    known = set(_documented(_doc(name)))
    parameters = _parameters(name)
    thing = PUBLIC[name]
    if inspect.isclass(thing) and parameters:
        known |= _documented_fields(thing) | {"args"} | _tags(thing)
        for base in _ours(thing):
            known |= set(_documented(inspect.cleandoc(base.__doc__ or "")))
            known |= set(_documented(inspect.getdoc(vars(base).get("__init__")) or ""))
    return [it for it in parameters if it not in known]


def _tags(thing: type) -> set[str]:
    """``type``, if the class sets it by itself."""
    tag = None if is_typeddict(thing) else inspect.signature(thing).parameters.get("type")
    return set() if tag is None or tag.default is tag.empty else {"type"}


def _example(doc: str) -> str:
    """The code of the section ``Example``."""
    found = re.search(r"^Example:\n((?:(?: .*)?\n)+)", f"{doc}\n\n", re.MULTILINE)
    return textwrap.dedent(found[1]) if found else ""


# --- the checks -----------------------------------------------------------------------------------


def test_there_are_public_names() -> None:
    assert set(WITH_EXAMPLE) <= set(PUBLIC)
    assert len(WITH_EXAMPLE) == len(set(WITH_EXAMPLE)) > 60
    assert len(PUBLIC) > 1300


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in PUBLIC if not _doc(name)] == []


def test_every_public_name_documents_all_parameters() -> None:
    assert {name: missing for name in PUBLIC if (missing := _missing(name))} == {}


def test_documented_arguments_are_the_parameters() -> None:
    """In their order. A class need not repeat what its bases document."""
    wrong = {}
    for name in PUBLIC:
        documented = _documented(_doc(name))
        parameters = _parameters(name) if documented else []
        if documented != [it for it in parameters if it in documented]:
            wrong[name] = documented, parameters
    assert wrong == {}


@pytest.mark.parametrize("name", ["Runner.run", "Runner.run_sync", "Runner.run_streamed"])
def test_the_runner_keeps_the_type_of_the_context(name: str) -> None:
    """A type checker refuses an agent, hooks or a state that need another context."""
    parameters = inspect.signature(_called(name)).parameters
    of_context = ("starting_agent", "input", "context", "hooks")
    assert all("TContext" in parameters[it].annotation for it in of_context)


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_names_with_an_example_have_one(name: str) -> None:
    assert _example(_doc(name))


def _examples() -> dict[str, ast.Module]:
    return {
        name: compile(
            example, name, "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        for name in PUBLIC
        if (example := _example(_doc(name)))
    }


def test_examples_are_python() -> None:
    assert set(WITH_EXAMPLE) <= set(_examples())


def test_examples_pass_arguments_that_exist() -> None:
    wrong = {name: found for name, tree in _examples().items() if (found := _unknown(tree))}
    assert wrong == {}


def _unknown(tree: ast.AST) -> list[str]:
    """The arguments by name, in calls of public names, that are no parameters."""
    by_name = {name.rpartition(".")[2]: thing for name, thing in reversed(PUBLIC.items())}
    by_name |= {name: _called(name) for name in PUBLIC}
    found = []
    for call in (it for it in ast.walk(tree) if isinstance(it, ast.Call)):
        thing = by_name.get(ast.unparse(call.func))
        if thing is None or is_typeddict(thing) or not _has_signature(thing):
            continue
        parameters = inspect.signature(thing).parameters
        if any(it.kind is it.VAR_KEYWORD for it in parameters.values()):
            continue
        given = {it.arg for it in call.keywords if it.arg is not None}
        found += [f"{ast.unparse(call.func)}({it}=...)" for it in given - set(parameters)]
    return found


def _has_signature(thing: Any) -> bool:
    return inspect.isroutine(thing) or (inspect.isclass(thing) and _is_made_by_users(thing))


def test_the_arguments_are_found() -> None:
    args = "Args:\n    one: It is\n        long: yes.\n\n    two: Other."
    doc = f"What.\n\n{args}\n\nReturns:\n    three: No."
    assert _documented(doc) == ["one", "two"]
    assert _documented("What.\n\nReturns:\n    three: No.") == []


def test_an_undocumented_parameter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(one: int, two: int) -> None:
        """A function.

        Args:
            one: Documented.
        """

    monkeypatch.setitem(PUBLIC, "half", half)
    assert _missing("half") == ["two"]


def test_fields_without_a_docstring_are_found() -> None:
    documented = _documented_fields(sandstream.RunConfig)
    assert "budget" in documented and "model" not in documented


def test_the_names_of_all_public_modules_are_checked() -> None:
    """A name of each kind: re-exported, of a sub-package, a method, a key, a field, an error."""
    for name in (
        "Agent.as_tool",
        "actors.Bus.open",
        "events.RunDone",
        "mcp.MCPServerStdioParams",
        "providers.Box.run",
        "retry_policies.http_status",
        "sandbox.capabilities.tools.ExecCommandArgs",
        "sandbox.entries.S3Mount",
        "sandbox.errors.GitCloneError",
        "tracing.processors.BackendSpanExporter.set_api_key",
    ):
        assert name in PUBLIC
    assert _parameters("sandbox.errors.GitCloneError") == [
        "url",
        "ref",
        "stderr",
        "context",
        "cause",
    ]
    assert _parameters("mcp.MCPServerStdioParams")[:2] == ["command", "args"]
    assert _parameters("sandbox.FileMode") == _parameters("providers.Box") == []


def test_an_argument_that_does_not_exist_is_found() -> None:
    assert _unknown(ast.parse("Agent(name='A', tool=[])")) == ["Agent(tool=...)"]
    assert _unknown(ast.parse("Agent(name='A', tools=[]); other(tool=1)")) == []


def test_the_example_is_found() -> None:
    doc = "What.\n\nExample:\n    if one:\n        two()\n\nRaises:\n    No: three."
    assert _example(doc).strip() == "if one:\n    two()"
    assert _example("What.") == ""
    with pytest.raises(SyntaxError):
        compile(_example("What.\n\nExample:\n    if one"), "it", "exec")
