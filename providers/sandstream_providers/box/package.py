"""The agent as one file: a zip archive that Python runs.

It holds the sources, for any Python, and the byte code of this one, which saves most of the
start-up time where the sandbox has the same version.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import marshal
import zipfile
from pathlib import Path

PACKAGE = "sandstream_providers/box/agent"
START = b"""import sys
try:
    from sandstream_providers.box.agent.main import main
    main(sys.argv)
except ImportError as error:
    print("SANDSTREAM-FAILED", error, flush=True)
    raise
"""
"""The Python of a box may lack parts of its library. Hosted providers then do without the agent."""
EPOCH = (1980, 1, 1, 0, 0, 0)


@functools.cache
def agent_source(*, small: bool = False) -> bytes:
    """What to write into a file and to run with ``python3 -I -S <file> '<json>'``.

    Args:
        small: For a way into the box that is slow: compressed, and without byte code.
    """
    folder = Path(__file__).parent / "agent"
    sources = {
        f"{PACKAGE}/{file.relative_to(folder).as_posix()}": file.read_bytes()
        for file in folder.rglob("*.py")
    }
    sources["__main__.py"] = START
    for package in ("sandstream_providers", "sandstream_providers/box"):
        sources[f"{package}/__init__.py"] = b""
    buffer = io.BytesIO()
    how = zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for name, source in sorted(sources.items()):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), source, how)
            if not small:
                archive.writestr(zipfile.ZipInfo(f"{name}c", EPOCH), _byte_code(name, source))
    return buffer.getvalue()


def _byte_code(name: str, source: bytes) -> bytes:
    """Marked as never to be compared with its source; another Python ignores it."""
    unchecked_hash = (1).to_bytes(4, "little")
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    return (
        importlib.util.MAGIC_NUMBER
        + unchecked_hash
        + importlib.util.source_hash(source)
        + marshal.dumps(code)
    )
