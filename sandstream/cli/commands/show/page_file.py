"""The page of a run as a file: ``sandstream show RUN --html FILE``; ``-`` is standard output."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import say

STDOUT = "-"

_MARK = b"<!-- made by sandstream show -->\n"
"""The end of each page: what may be replaced without asking."""


def check_target(target: str, *, force: bool) -> None:
    """Refuse early if the page could not be written or would overwrite another file."""
    if target == STDOUT:
        return
    if not target:
        raise CliError(Exit.USAGE, "--html needs the name of a file, such as run.html, or -")
    path = Path(target)
    if path.is_dir():
        raise CliError(Exit.USAGE, f"{path} is a directory: name the file, such as {path}/run.html")
    if not path.parent.is_dir():
        raise CliError(Exit.USAGE, f"there is no directory {path.parent} to write the page to")
    if path.exists() and not force and not _is_page(path):
        raise CliError(
            Exit.USAGE,
            f"{path} exists and is not a page of a run: name another file, or use --force",
        )


def write_page(target: str, html: str) -> None:
    """Write the whole page or nothing, and print its path."""
    page = html.encode("utf-8", "replace").rstrip() + b"\n" + _MARK
    if target == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(page)
        return
    _write_file(Path(target), page)
    say(f"written: {target}")


def _write_file(path: Path, page: bytes) -> None:
    target = path.resolve()
    try:
        descriptor, name = tempfile.mkstemp(".part", f".{target.name[:80]}-", target.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(page)
            temporary.chmod(_mode(target))
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CliError(Exit.USAGE, f"cannot write {path}: {error.strerror}") from None


def _mode(path: Path) -> int:
    """The mode of the existing file; for a new file, the default mode."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _is_page(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - len(_MARK)))
            return file.read() == _MARK
    except OSError as error:
        raise CliError(Exit.USAGE, f"cannot read {path}: {error.strerror}") from None
