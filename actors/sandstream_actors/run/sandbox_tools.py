"""The built-in tools as models see them: plain JSON definitions."""

from __future__ import annotations

from typing import Any, Final

Definition = dict[str, Any]

_YIELD_TIME = "Milliseconds to wait for the command before an answer comes anyway."
_MAX_OUTPUT_TOKENS: Final = {
    "anyOf": [{"minimum": 1, "type": "integer"}, {"type": "null"}],
    "default": None,
    "description": (
        "The most tokens of output to return; the middle of a longer output is left out."
    ),
    "title": "Max Output Tokens",
}


def _yield_time(default: int) -> Definition:
    return {
        "default": default,
        "description": _YIELD_TIME,
        "minimum": 0,
        "title": "Yield Time Ms",
        "type": "integer",
    }


EXEC_COMMAND: Final[Definition] = {
    "type": "function",
    "name": "exec_command",
    "description": (
        "Run a shell command in the sandbox. Returns its output; a command that is still running "
        "gets a session ID by which `write_stdin` reaches it."
    ),
    "parameters": {
        "properties": {
            "cmd": {
                "description": "The command, as a line for the shell.",
                "minLength": 1,
                "title": "Cmd",
                "type": "string",
            },
            "workdir": {
                "anyOf": [{"type": "string"}, {"type": "null"}],
                "default": None,
                "description": "Directory to run it in. Without it: the working directory.",
                "title": "Workdir",
            },
            "shell": {
                "anyOf": [{"type": "string"}, {"type": "null"}],
                "default": None,
                "description": "The shell program to use instead of the default one.",
                "title": "Shell",
            },
            "login": {
                "default": True,
                "description": "Whether the shell is a login shell.",
                "title": "Login",
                "type": "boolean",
            },
            "tty": {
                "default": False,
                "description": (
                    "Whether to give the command a terminal. Needed for programs that ask "
                    "questions and for writing to the command later."
                ),
                "title": "Tty",
                "type": "boolean",
            },
            "yield_time_ms": _yield_time(10_000),
            "max_output_tokens": _MAX_OUTPUT_TOKENS,
        },
        "required": ["cmd"],
        "title": "ExecCommandArgs",
        "type": "object",
    },
    "strict": False,
}

WRITE_STDIN: Final[Definition] = {
    "type": "function",
    "name": "write_stdin",
    "description": (
        "Write to a command that `exec_command` left running, or ask for its new output."
    ),
    "parameters": {
        "properties": {
            "session_id": {
                "description": "The session ID of a command that is still running.",
                "title": "Session Id",
                "type": "integer",
            },
            "chars": {
                "default": "",
                "description": "What to write to it. Nothing: only ask for new output.",
                "title": "Chars",
                "type": "string",
            },
            "yield_time_ms": _yield_time(250),
            "max_output_tokens": _MAX_OUTPUT_TOKENS,
        },
        "required": ["session_id"],
        "title": "WriteStdinArgs",
        "type": "object",
    },
    "strict": False,
}

_PATCH_GRAMMAR = r"""
start: "*** Begin Patch" LF file_change+ "*** End Patch" LF?

file_change: addition | deletion | update
addition: "*** Add File: " path LF new_line+
deletion: "*** Delete File: " path LF
update: "*** Update File: " path LF move? hunk_line+ end_of_file?

move: "*** Move to: " path LF
new_line: "+" /(.*)/ LF
hunk_line: place | change
place: ("@@" | "@@ " /(.+)/) LF
change: (" " | "+" | "-") /(.*)/ LF
end_of_file: "*** End of File" LF
path: /(.+)/

%import common.LF
""".strip()

_PATCH_DESCRIPTION = """
Change files of the workspace. The input is a patch in the language below, as plain text and not
as JSON. All of a patch is applied, or, if any part does not fit, none of it.

*** Begin Patch
*** Add File: docs/hello.txt
+Each line of a new file starts with a plus sign.
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
     name = "you"
-    print("Hi")
+    print("Hello,", name)
     return name
*** Delete File: old.txt
*** End Patch

- Each file has a header: `*** Add File: <path>`, `*** Update File: <path>` or
  `*** Delete File: <path>`. Paths are relative, never absolute.
- `*** Move to: <path>` right after an update header renames the file. Nothing follows a delete
  header.
- An update has one or more hunks, each introduced by `@@`. The lines of a hunk start with a space
  (stays as it is), `-` (goes) or `+` (comes).
- Give about three unchanged lines before and after each change, so that its place can be found.
  Do not repeat lines between changes that are close together.
- If that is not enough to find the place, put the line of the class or function after the `@@`.
  Several such lines may follow each other, from the outside to the inside:
  `@@ class Door` and then `@@     def open(self):`.
- `*** End of File` after the last line of a hunk ties it to the end of the file.
- Adding a file that exists is refused. To replace a whole file, delete it and add it again, in the
  same patch.
""".strip()

APPLY_PATCH: Final[Definition] = {
    "type": "custom",
    "name": "apply_patch",
    "description": _PATCH_DESCRIPTION,
    "format": {"type": "grammar", "syntax": "lark", "definition": _PATCH_GRAMMAR},
}
