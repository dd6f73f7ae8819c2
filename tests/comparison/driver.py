"""Runs every program on one SDK and writes what was seen: `python -m comparison.driver agents …`.

Runs under the peer's interpreter as well as under ours.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import logging
import os
from pathlib import Path
from typing import Any

from comparison.program import Probe, load
from comparison.report import error_report, plain, result_report, stream_report

PROGRAM_LIMIT_S = float(os.environ.get("COMPARISON_LIMIT_S", "20"))


def run_all(sdk: Any, base_url: str, names: list[str]) -> dict[str, Any]:
    reports: dict[str, Any] = {}
    with asyncio.Runner() as runner:  # one loop for all: the peer's HTTP client is bound to it
        for name, program in load().items():
            if names and name not in names:
                continue
            probe = Probe(name, base_url, home=Path.cwd())
            report: dict[str, Any] = {}
            sdk.set_default_openai_api("responses")
            try:
                value = program.function(sdk, probe)
                report["result"] = runner.run(within_limit(value))
            except Exception as error:
                report["error"] = error_report(error)
            report["notes"] = plain(probe.notes)
            reports[name] = report
    return reports


async def within_limit(value: Any) -> Any:
    async with asyncio.timeout(PROGRAM_LIMIT_S):
        return await observe(await value if inspect.isawaitable(value) else value)


async def observe(value: Any) -> Any:
    """A program returns a result, a streamed run, several of these, or plain data."""
    if isinstance(value, tuple):
        return [await observe(one) for one in value]
    if hasattr(value, "stream_events"):
        return await stream_report(value)
    if hasattr(value, "new_items"):
        return result_report(value)
    return plain(value)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sdk", choices=["agents", "sandstream"])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    os.environ["OPENAI_BASE_URL"] = options.base_url
    os.environ["OPENAI_API_KEY"] = "sk-comparison"
    sdk = importlib.import_module(options.sdk)
    if options.sdk == "agents":
        sdk.set_tracing_disabled(True)
    reports = run_all(sdk, options.base_url, options.names)
    options.out.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
