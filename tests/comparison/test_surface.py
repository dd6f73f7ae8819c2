"""Names and parameters of `openai-agents` that Sandstream does not have, all of them listed here.

Whoever adds one takes it off its list, and off `docs/differences.md` if its topic is empty.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from comparison.peer import peer_python
from comparison.surface import surface

pytestmark = pytest.mark.timeout(600)  # the first run installs the peer

TESTS = Path(__file__).resolve().parents[1]

NOT_YET: dict[str, str] = {
    "Compaction": (
        "CompactionItem OpenAIResponsesCompactionArgs OpenAIResponsesCompactionAwareSession "
        "OpenAIResponsesCompactionSession is_openai_responses_compaction_aware_session"
    ),
    "Helpers": "AgentBase",
    "Hosted MCP": (
        "HostedMCPTool MCPApprovalRequestItem MCPApprovalResponseItem MCPListToolsItem "
        "MCPToolApprovalFunction MCPToolApprovalFunctionResult MCPToolApprovalRequest"
    ),
    "OpenAI's WebSocket transport and agent registration": (
        "OpenAIAgentRegistrationConfig OpenAIResponsesWSModel "
        "OpenAIResponsesWebSocketOptions ResponsesWebSocketSession "
        "responses_websocket_session set_default_openai_agent_registration "
        "set_default_openai_harness set_default_openai_responses_transport"
    ),
    "Other tools": (
        "ApplyPatchEditor ApplyPatchOperation ApplyPatchResult ApplyPatchTool "
        "ApplyPatchToolCustomDataContext ApplyPatchToolCustomDataExtractor AsyncComputer "
        "Button CodeInterpreterTool Computer ComputerProvider ComputerTool "
        "ComputerToolCustomDataContext ComputerToolCustomDataExtractor Environment "
        "FileSearchTool ImageGenerationTool ImageGenerationToolConfig "
        "ItemHelpers.copy_tool_call_caller LocalShellCommandRequest LocalShellExecutor "
        "LocalShellTool ProgrammaticToolCallingTool ShellActionRequest ShellCallData "
        "ShellCallOutcome ShellCommandOutput ShellCommandRequest ShellExecutor ShellResult "
        "ShellTool ShellToolContainerAutoEnvironment ShellToolContainerNetworkPolicy "
        "ShellToolContainerNetworkPolicyAllowlist ShellToolContainerNetworkPolicyDisabled "
        "ShellToolContainerNetworkPolicyDomainSecret ShellToolContainerReferenceEnvironment "
        "ShellToolContainerSkill ShellToolEnvironment ShellToolHostedEnvironment "
        "ShellToolInlineSkill ShellToolInlineSkillSource ShellToolLocalEnvironment "
        "ShellToolLocalSkill ShellToolSkillReference ToolSearchCallItem "
        "ToolSearchOutputItem ToolSearchTool WebSearchTool WebSearchToolImageSettings "
        "apply_diff dispose_resolved_computers resolve_computer tool_namespace"
    ),
    "RunState": (
        "RunState.get_tool_use_tracker_snapshot RunState.set_reasoning_item_id_policy "
        "RunState.set_tool_use_tracker_snapshot"
    ),
}
"""Topic -> names."""

PARAMETERS_NOT_YET: dict[str, str] = {
    "OpenAIChatCompletionsModel": (
        "should_replay_reasoning_content strict_feature_validation buffer_streamed_tool_calls"
    ),
    "MultiProvider": (
        "openai_use_responses_websocket openai_strict_feature_validation "
        "openai_websocket_base_url openai_agent_registration "
        "openai_responses_websocket_options openai_buffer_streamed_tool_calls"
    ),
    "OpenAIProvider": (
        "websocket_base_url use_responses_websocket strict_feature_validation "
        "agent_registration responses_websocket_options buffer_streamed_tool_calls"
    ),
    "OpenAIResponsesModel": "model_is_explicit",
    "ItemHelpers.tool_call_output_item": "output_json_schema output_type_adapter",
    "tracing.TraceCtxManager": "trace_state reattach_resumed_trace",
    "FunctionTool": "defer_loading allowed_callers output_json_schema",
    "function_tool": "defer_loading allowed_callers output_type output_json_schema",
}
"""Name -> parameters. Those of objects that only a run makes are not looked at."""

MADE_BY_RUNS = {
    "AgentUpdatedStreamEvent",
    "FunctionToolResult",
    "HandoffCallItem",
    "HandoffOutputItem",
    "InputItem",
    "MessageOutputItem",
    "RawResponsesStreamEvent",
    "ReasoningItem",
    "RunItemStreamEvent",
    "RunResult",
    "RunResultStreaming",
    "RunState",
    "ToolApprovalItem",
    "ToolCallItem",
    "ToolCallOutputItem",
}


@pytest.fixture(scope="module")
def theirs() -> dict[str, list[str]]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [str(peer_python()), "-m", "comparison.surface", "agents"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_missing_names_are_listed(theirs: dict[str, list[str]]) -> None:
    missing = set(theirs) - set(surface("sandstream"))
    assert sorted(missing) == sorted(" ".join(NOT_YET.values()).split())


def test_missing_parameters_are_listed(theirs: dict[str, list[str]]) -> None:
    ours = surface("sandstream")
    missing = {
        name: [one for one in wanted if one not in ours[name]]
        for name, wanted in theirs.items()
        if name in ours and name not in MADE_BY_RUNS
    }
    expected = {name: names.split() for name, names in PARAMETERS_NOT_YET.items()}
    assert {name: names for name, names in missing.items() if names} == expected


def test_missing_topics_are_told_to_users() -> None:
    page = (TESTS.parent / "docs" / "differences.md").read_text()
    assert [topic for topic in NOT_YET if f"**{topic}**" not in page] == []
