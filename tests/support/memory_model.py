"""Scripted model answers for the two memory phases."""

from __future__ import annotations

from sandstream.testing import Request, Step, structured, text, tool_call

NOTHING = {"rollout_slug": "", "rollout_summary": "", "raw_memory": ""}


def is_extraction(request: Request) -> bool:
    return "The rollout is the JSON lines between" in request.text


def is_consolidation(request: Request) -> bool:
    return "Consolidate the memory in memories/" in request.text


def is_phase(request: Request) -> bool:
    return is_extraction(request) or is_consolidation(request)


def extraction(slug: str, lesson: str, *, about: str = "") -> Step:
    """Phase one finds this in every rollout that contains ``about``."""
    found = {"rollout_slug": slug, "rollout_summary": f"# {slug}\n\n{lesson}", "raw_memory": lesson}
    return (
        structured(found)
        .when(lambda it: is_extraction(it) and about in it.text)
        .forever()
        .named(f"extraction of {slug}")
    )


def no_extraction() -> Step:
    """Phase one finds nothing worth keeping."""
    return structured(NOTHING).when(is_extraction).forever()


CONSOLIDATION = """
cd memories
{ echo '# Handbook'; echo; cat raw_memories.md; } > MEMORY.md
{ echo '# Summary'; echo; grep -h '^Lesson' raw_memories.md; } > memory_summary.md
"""


def consolidation(script: str = CONSOLIDATION) -> tuple[Step, Step]:
    """Phase two runs a script in its workspace and then finishes."""
    write = tool_call("exec_command", {"cmd": script})
    return (
        write.when(lambda it: is_consolidation(it) and not _has_worked(it)).forever(),
        text("Consolidated.").when(lambda it: is_consolidation(it) and _has_worked(it)).forever(),
    )


def _has_worked(request: Request) -> bool:
    items = request.body.get("input")
    return isinstance(items, list) and any(
        isinstance(it, dict) and it.get("type") == "function_call_output" for it in items
    )
