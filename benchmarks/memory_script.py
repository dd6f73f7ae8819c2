"""Scripted model answers for the two memory phases, ours and the baseline's."""

from __future__ import annotations

from sandstream.testing import Conversation, script_for, structured, text, tool_call

OURS = ("The rollout is the JSON lines", "Consolidate the memory in memories/")
BASELINES = ("Analyze this memory rollout", "Memory Writing Agent: Phase 2")
"""Texts by which the requests of the two phases are recognised."""

HANDBOOK = r"""
cd memories
{ echo '# Work'; echo; grep -h '^rollout_summary_file: ' raw_memories.md; } > MEMORY.md
echo 'Work is done as asked.' > memory_summary.md
"""


def extraction(match: str, latency_s: float, lesson: str = "It works.") -> Conversation:
    found = {"rollout_slug": "work", "rollout_summary": f"# Work\n{lesson}", "raw_memory": lesson}
    return script_for(match, [structured(found).after(latency_s)])


def consolidation(match: str, latency_s: float, command: str = HANDBOOK) -> Conversation:
    call = tool_call("exec_command", {"cmd": command, "yield_time_ms": 30_000})
    return script_for(match, [call.after(latency_s), text("done").after(latency_s)])
