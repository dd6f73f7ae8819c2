"""Every public name says what it is for, and documents its parameters as they are."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import sandstream
from sandstream import mcp, memory, sandbox, testing, tracing
from sandstream.sandbox import capabilities, entries, sandboxes, session
from sandstream.tracing import processors

MODULES: dict[str, tuple[ModuleType, ...]] = {
    "": (sandstream, sandbox),
    "memory.": (memory,),
    "tracing.": (tracing, processors),
    "mcp.": (mcp,),
    "testing.": (testing,),
    "capabilities.": (capabilities,),
    "entries.": (entries,),
    "session.": (session,),
    "sandboxes.": (sandboxes,),
}
"""The public modules, by the prefix of their names here. Names of the first ones have none."""

_WITH_EXAMPLE = """
Agent Agent.as_tool AgentOutputSchema BusSession Client.approvals Client.follow Client.runs
Client.submit Client.wait GuardrailFunctionOutput HandoffInputData.clone ModelRetrySettings
ModelSettings OpenAIChatCompletionsModel OpenAIConversationsSession OpenAIProvider
OpenAIResponsesModel RunConfig RunResult.to_input_list RunState.from_string Runner.run
Runner.run_streamed Runner.run_sync SQLiteSession RunContextWrapper Usage
add_trace_processor custom_span function_tool handoff input_guardrail output_guardrail
run_demo_loop tool_input_guardrail tool_output_guardrail trace
Capability Dir File GitRepo LocalDir LocalFile LocalSnapshotSpec Manifest SandboxAgent
SandboxPathGrant SandboxRunConfig SecretRef wait_for_memory
capabilities.Compaction capabilities.Filesystem capabilities.Shell capabilities.Skills
mcp.MCPServerManager mcp.MCPServerSse mcp.MCPServerStdio mcp.MCPServerStreamableHttp
mcp.create_static_tool_filter
sandboxes.UnixLocalSandboxClient sandboxes.UnixLocalSandboxClientOptions
session.BaseSandboxClient.create session.SandboxSession.exec session.SandboxSession.write
session.SandboxSession.resolve_exposed_port
testing.ScriptedModel testing.Step testing.error testing.reasoning testing.script_for
testing.structured testing.text testing.tool_call testing.tool_calls
tracing.BatchTraceProcessor
"""
WITH_EXAMPLE = _WITH_EXAMPLE.split()
"""They document all of their parameters and have an example."""

_OTHERS = """
AgentHooks.on_end AgentHooks.on_handoff AgentHooks.on_llm_end AgentHooks.on_llm_start
AgentHooks.on_start AgentHooks.on_tool_end AgentHooks.on_tool_start
AgentToolInvocation CallModelData Client.approve Client.cancel Client.connect
Client.drop_parked Client.events Client.get Client.list Client.parked Client.redrive
Client.reject Client.retry Client.send_input
FunctionTool FunctionToolCustomDataContext FunctionToolResult Handoff HandoffInputData
InputGuardrail InputGuardrail.run InputGuardrailResult
Model.get_response Model.get_retry_advice Model.stream_response ModelInputData
ModelProvider.get_model ModelRetryBackoffSettings ModelRetrySettings.resolve
ModelSettings.coerce ModelSettings.resolve MultiProvider MultiProvider.get_model
OpenAIConversationsSession.add_items OpenAIConversationsSession.get_items
OpenAIProvider.get_model OutputGuardrail OutputGuardrail.run
OutputGuardrailBlockedMessageArgs OutputGuardrailResult RetryDecision RunConfig.coerce
RunContextWrapper.approve_tool RunContextWrapper.is_tool_approved
RunContextWrapper.reject_tool
RunHooks.on_agent_end RunHooks.on_agent_start RunHooks.on_handoff RunHooks.on_llm_end
RunHooks.on_llm_start RunHooks.on_tool_end RunHooks.on_tool_start
RunResult.final_output_as RunResult.release_agents RunResultStreaming.cancel
RunState.add_input RunState.approve RunState.from_json RunState.reject RunState.set_trace
RunState.to_json RunState.to_string
BusSession.add_items BusSession.get_items SQLiteSession.add_items SQLiteSession.get_items
SessionABC.add_items SessionABC.get_items SessionSettings SessionSettings.coerce
SessionSettings.resolve
ToolErrorFormatterArgs ToolExecutionConfig ToolGuardrailFunctionOutput
ToolGuardrailFunctionOutput.allow ToolGuardrailFunctionOutput.raise_exception
ToolGuardrailFunctionOutput.reject_content ToolInputGuardrail ToolInputGuardrailData
ToolInputGuardrailResult ToolOutputGuardrail ToolOutputGuardrailData
ToolOutputGuardrailResult ToolsToFinalOutputResult Usage.add default_tool_error_function
Span.finish Span.set_error Span.start Trace.start TracingProcessor.on_span_end
TracingProcessor.on_span_start TracingProcessor.on_trace_end
TracingProcessor.on_trace_start agent_span function_span generation_span guardrail_span
handoff_span mcp_tools_span response_span set_default_openai_api
set_default_openai_client set_default_openai_key set_trace_processors set_trace_provider
set_tracing_disabled set_tracing_export_api_key speech_group_span speech_span task_span
transcription_span turn_span
BusSnapshot BusSnapshotSpec Capability.bind Capability.instructions
Capability.process_manifest Capability.static_instructions ExecResult
ExposedPortEndpoint ExposedPortEndpoint.url_for GitRepo.from_path Group LocalSnapshot
MemoryGenerateConfig MemoryStatus Permissions RemoteSnapshot RemoteSnapshotSpec
SandboxArchiveLimits SandboxConcurrencyLimits SnapshotSpec.build User resolve_snapshot
capabilities.DynamicCompactionPolicy capabilities.Memory
capabilities.StaticCompactionPolicy
entries.BaseEntry.apply entries.BaseEntry.parse entries.resolve_workspace_path
mcp.MCPServer.call_tool mcp.MCPServer.list_tools mcp.MCPToolMetaContext
mcp.ToolFilterContext
session.BaseSandboxClient.delete session.BaseSandboxClient.resume
session.BaseSandboxClient.serialize_session_state session.SandboxSession.apply_patch
session.SandboxSession.extract session.SandboxSession.ls session.SandboxSession.mkdir
session.SandboxSession.mv session.SandboxSession.pty_exec_start
session.SandboxSession.pty_write_stdin session.SandboxSession.read
session.SandboxSession.read_bounded session.SandboxSession.rm
session.SandboxSession.run_tool
testing.Conversation testing.Script testing.ScriptedModel.from_script
testing.ScriptedModel.wait_for_requests testing.Step.after testing.Step.chunks
testing.Step.named testing.Step.times testing.Step.when testing.Usage testing.answer
testing.custom_tool_call testing.drop_connection testing.incomplete testing.malformed
testing.refusal testing.status_failed
tracing.BackendSpanExporter tracing.BatchTraceProcessor.shutdown
tracing.TracingExporter.export
"""
MOST_USED = [*WITH_EXAMPLE, *_OTHERS.split()]
"""They document all of their parameters, in ``Args`` or field by field."""

HOOKS = {"RunHooks": "RunHooksBase", "AgentHooks": "AgentHooksBase"}
"""Generic aliases, and the classes that they stand for."""


def _public() -> Iterator[tuple[str, Any]]:
    """All public classes and functions, with the public methods of the classes."""
    seen: set[int] = set()
    for prefix, modules in MODULES.items():
        for module in modules:
            for name in module.__all__:
                thing = getattr(module, name)
                if name in HOOKS:
                    thing = thing.__origin__
                is_new = id(thing) not in seen
                if is_new and (inspect.isclass(thing) or inspect.isroutine(thing)):
                    seen.add(id(thing))
                    yield f"{prefix}{name}", thing
                    if inspect.isclass(thing):
                        yield from _methods(f"{prefix}{name}", thing)


def _methods(name: str, thing: type) -> Iterator[tuple[str, Any]]:
    for owner in reversed(_ours(thing)):
        for method, value in vars(owner).items():
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            is_ours = inspect.isfunction(function) and function.__module__.startswith("sandstream")
            if is_ours and not method.startswith("_"):
                yield f"{name}.{method}", inspect.getattr_static(owner, method)


def _ours(thing: type) -> list[type]:
    """The class and its bases, without foreign ones."""
    return [base for base in thing.__mro__ if base.__module__.startswith("sandstream")]


PUBLIC = dict(_public())


def _doc(name: str) -> str:
    """The docstring of a name. What dataclasses write themselves does not count."""
    thing = PUBLIC[name]
    by_itself = f"{name.rpartition('.')[2]}("
    if dataclasses.is_dataclass(thing) and str(thing.__doc__).startswith(by_itself):
        return ""
    if inspect.isclass(thing):
        return inspect.cleandoc(thing.__doc__ or "")
    return inspect.getdoc(_called(name)) or ""


def _called(name: str) -> Any:
    """The name as a program calls it: a method of its class."""
    owner, _, method = name.rpartition(".")
    return getattr(PUBLIC[owner], method) if owner in PUBLIC else PUBLIC[name]


def _documented(doc: str) -> list[str]:
    """The names in the section ``Args``."""
    found = re.search(r"^Args:\n((?:(?: .*)?\n)+)", f"{doc}\n\n", re.MULTILINE)
    return re.findall(r"^    \*{0,2}(\w+):", found[1], re.MULTILINE) if found else []


def _documented_fields(thing: type) -> set[str]:
    """The fields of a class, and of its bases, that are followed by a docstring."""
    found: set[str] = set()
    for owner in _ours(thing):
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, body.body[1:], strict=False):
            has_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and has_text and isinstance(field.target, ast.Name):
                found.add(field.target.id)
    return found


def _parameters(name: str) -> list[str]:
    return [it for it in inspect.signature(_called(name)).parameters if it != "self"]


def _missing(name: str) -> list[str]:
    """The parameters of a name that are documented nowhere. A class need not explain its tag
    (``type``), nor that fields may be given by position (``args``).
    """
    known = set(_documented(_doc(name)))
    thing = PUBLIC[name]
    if inspect.isclass(thing):
        known |= _documented_fields(thing) | {"args", "type"}
        for base in _ours(thing):
            known |= set(_documented(inspect.cleandoc(base.__doc__ or "")))
            known |= set(_documented(inspect.getdoc(vars(base).get("__init__")) or ""))
    return [it for it in _parameters(name) if it not in known]


def _example(doc: str) -> str:
    """The code of the section ``Example``."""
    found = re.search(r"^Example:\n((?:(?: .*)?\n)+)", f"{doc}\n\n", re.MULTILINE)
    return textwrap.dedent(found[1]) if found else ""


def test_there_are_public_names() -> None:
    assert set(MOST_USED) <= set(PUBLIC)
    assert len(MOST_USED) == len(set(MOST_USED)) > 200
    assert len(PUBLIC) > 900


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in PUBLIC if not _doc(name)] == []


def test_documented_arguments_are_the_parameters() -> None:
    wrong = {}
    for name in PUBLIC:
        documented = _documented(_doc(name))
        parameters = _parameters(name) if documented else []
        inherited = _parameters("Agent") if name == "SandboxAgent" else []
        if documented != [it for it in parameters if it not in inherited]:
            wrong[name] = documented, parameters
    assert wrong == {}


@pytest.mark.parametrize("name", MOST_USED)
def test_the_most_used_names_document_all_parameters(name: str) -> None:
    assert _doc(name)
    assert _missing(name) == []


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_names_with_an_example_have_one(name: str) -> None:
    assert _example(_doc(name))


def test_examples_are_python() -> None:
    examples = {name: example for name in PUBLIC if (example := _example(_doc(name)))}
    assert set(WITH_EXAMPLE) <= set(examples)
    for name, example in examples.items():
        compile(example, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


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


def test_the_example_is_found() -> None:
    doc = "What.\n\nExample:\n    if one:\n        two()\n\nRaises:\n    No: three."
    assert _example(doc).strip() == "if one:\n    two()"
    assert _example("What.") == ""
    with pytest.raises(SyntaxError):
        compile(_example("What.\n\nExample:\n    if one"), "it", "exec")
