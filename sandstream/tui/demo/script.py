"""What the model of the demo says: it looks at the last message, so that it answers the same after
a fork, a rewind or a repeated request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandstream.testing import Step, custom_tool_call, text, tool_call
from sandstream.testing.journal import Request
from sandstream.testing.request_reader import conversation_items

FIX = "Fix the failing test in shop.py"
PUBLISH = "Publish the site"
BUILD = "Build everything, and show me the log"
REPORT = "Report on dunes"
NOTE = "Note what is left to do"

_PATCH = """\
*** Begin Patch
*** Update File: shop.py
@@
 def total(prices):
-    return sum(prices) - 1
+    return sum(prices)
*** End Patch
"""
_BUILD = """\
for n in $(seq 1 25); do echo "[$n/25] compiling part_$n.c"; sleep 1; done; echo built > build.txt
"""
_FIXED = """\
**The test passes now.** `total` subtracted one from every sum.

| file | change |
|---|---|
| `shop.py` | `total` returns the plain sum |

`/diff` shows the change. *Esc* twice goes back to an earlier turn.
"""
_OTHER = """\
I am the *scripted model* of the demo and know only a few things. In a session with `coder`, say:

- `count the files`, and I run a command
- `publish`, and I ask you for permission
- `build`, and you see a long log

`/fork`, `/diff`, `/rewind`, `!ls -l`, `@` and the terminal (*Ctrl+T*) work without me.
"""
_RUN = {"cmd": "python3 shop.py"}


def steps() -> list[Step]:
    """All answers of the demo."""
    return [
        *_plan(
            "failing test",
            "apply_patch",
            tool_call("exec_command", _RUN).after(0.6),
            custom_tool_call("apply_patch", _PATCH).after(0.6),
            tool_call("exec_command", _RUN).after(0.6),
            text(_FIXED).chunks(40, delta_delay_s=0.03).after(0.3),
        ),
        *_plan(
            "ublish",
            "deploy",
            tool_call("deploy", {"target": "https://shop.example"}).after(0.5),
            text("Your answer is in the log, with your name.").chunks(12, delta_delay_s=0.03),
        ),
        *_plan(
            "uild",
            "exec_command",
            tool_call("exec_command", {"cmd": _BUILD, "yield_time_ms": 30_000}).after(0.3),
            text("Everything is built: `build.txt` says so.").chunks(10, delta_delay_s=0.05),
        ),
        *_plan(
            "Report on",
            "research",
            tool_call("research", {"input": "why dunes move"}).after(0.5),
            text("Dunes move because the wind carries sand over the crest.").after(1),
        ),
        *_plan(
            "why dunes move",
            "search",
            tool_call("search", {"topic": "dunes"}).after(1),
            text("The wind moves them."),
        ),
        *_plan(
            "what is left",
            "exec_command",
            tool_call("exec_command", {"cmd": "echo '- more tests' > TODO.md; cat TODO.md"}),
            text("One thing is left: more tests.").after(6),
        ),
        *_plan(
            "ount the files",
            "exec_command",
            tool_call("exec_command", {"cmd": "find . -type f | sort; find . -type f | wc -l"}),
            text("That many files are in the workspace."),
        ),
        text(_OTHER).chunks(30, delta_delay_s=0.02).forever(),
    ]


def _plan(words: str, tool: str, *answers: Step) -> list[Step]:
    """The answers to a message with these words, one after the other, of an agent with a tool."""
    return [it.when(_is_at(words, tool, place)).forever() for place, it in enumerate(answers)]


def _is_at(words: str, tool: str, place: int) -> Callable[[Request], bool]:
    def holds(request: Request) -> bool:
        if tool not in [it.get("name") for it in request.body.get("tools", [])]:
            return False
        items = conversation_items(request.body)
        users = [n for n, it in enumerate(items) if it.get("role") == "user"]
        if not users or words not in str(items[users[-1]].get("content")):
            return False
        return _results(items[users[-1] :]) == place

    return holds


def _results(items: list[dict[str, Any]]) -> int:
    """How many calls of tools were answered."""
    return sum(str(it.get("type", "")).endswith("_call_output") for it in items)
