"""The scripted model as a process: `python -m sandstream.testing.server --script script.json`.

Owns the command line. Prints the base URL on stdout once it listens; SIGTERM or SIGINT ends it,
with exit code 1 and the list on stderr if the script was not followed and `--strict` was given.
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import msgspec

from sandstream.testing.script import Script, ScriptError
from sandstream.testing.scripted_model import ScriptedModel


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sandstream.testing.server",
        description="An OpenAI-compatible model server on loopback that answers from a script.",
    )
    parser.add_argument("--script", type=Path, required=True, help="JSON of Script.to_json()")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 in a container")
    parser.add_argument("--journal", type=Path, help="append every request as a JSON line")
    parser.add_argument("--no-bodies", action="store_true", help="journal without request bodies")
    parser.add_argument("--ready-file", type=Path, help="write the base URL here when listening")
    parser.add_argument(
        "--strict", action="store_true", help="exit 1 if the script was not followed"
    )
    options = parser.parse_args(argv)
    try:
        script = Script.from_json(options.script.read_bytes())
    except (OSError, msgspec.DecodeError) as bad:
        parser.error(f"cannot read the script {options.script}: {bad}")
    model = ScriptedModel.from_script(
        script,
        strict=options.strict,
        port=options.port,
        host=options.host,
        journal_path=options.journal,
        bodies=not options.no_bodies,
    )
    try:
        asyncio.run(_serve(model, options.ready_file))
    except ScriptError as wrong:
        sys.stderr.write(f"{wrong}\n")
        return 1
    return 0


async def _serve(model: ScriptedModel, ready_file: Path | None) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with model:
        if ready_file is not None:
            _write_whole(ready_file, model.base_url)
        sys.stdout.write(model.base_url + "\n")
        sys.stdout.flush()
        await ended.wait()


def _write_whole(file: Path, content: str) -> None:
    """Write atomically: a reader sees nothing or the whole content."""
    beside = file.with_name(file.name + ".part")
    beside.write_text(content)
    beside.replace(file)


if __name__ == "__main__":
    sys.exit(main())
