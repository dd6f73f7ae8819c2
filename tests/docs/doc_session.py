"""A Python session for the blocks of a page: one namespace, one event loop, `await` allowed.

A process of its own. Reads `{"code": …, "file": …}` lines, answers `{"out": …, "error": …}` lines.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import linecache
import sys
import traceback
import types
from contextlib import redirect_stdout


async def main() -> None:
    page = types.ModuleType("page")
    sys.modules["page"] = page
    loop = asyncio.get_running_loop()
    answers = sys.stdout
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        code, file = asked["code"], asked["file"]
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        printed = io.StringIO()
        error = ""
        with redirect_stdout(printed):
            try:
                compiled = compile(code, file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                result = eval(compiled, page.__dict__)
                if inspect.iscoroutine(result):
                    await result
            except BaseException:
                error = traceback.format_exc()
        answers.write(json.dumps({"out": printed.getvalue(), "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    asyncio.run(main())
