"""``sandstream run``: run an agent of a file, here and now."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command, port, positive


def add_parser(commands: Any) -> None:
    run = add_command(
        commands,
        "run",
        "run an agent of a file in this process, and show what happens",
        '  sandstream run app.py "What is the weather in Paris?"\n'
        "  sandstream run app.py:assistant - < question.txt\n"
        '  sandstream run app.py "hi" --key order-17   # again with the key: the same run\n'
        '  sandstream run coder.py "Fix the tests" --workspace .   # on a copy of it\n'
        '  sandstream run coder.py "Fix it" --sandbox docker --image python:3.13-slim\n'
        '  sandstream run coder.py "Fix it" --sandbox daytona  # needs DAYTONA_API_KEY',
        module="commands.run.command",
        json="the run as JSON; with --stream its events as JSON lines, the run last",
    )
    run.add_argument("target", metavar="app.py[:agent]", help="the file, and which of its agents")
    run.add_argument("input", help="what to say to the agent; - reads stdin")
    run.add_argument("--key", help="a name for the run: the same key always means the same run")
    run.add_argument(
        "--retry",
        action="store_true",
        help="with --key: if the run failed, repeat the step that failed",
    )
    run.add_argument("--max-turns", type=positive, metavar="N", help="at most N model turns (10)")
    run.add_argument("--stream", action="store_true", help="show the model's text as it comes")
    run.add_argument("-q", "--quiet", action="store_true", help="only the final output")
    sandbox = run.add_argument_group("for a sandbox agent")
    sandbox.add_argument(
        "--sandbox",
        metavar="PROVIDER",
        help="what makes its sandbox: local, docker, daytona, e2b or an installed one (the app's, "
        "else local)",
    )
    sandbox.add_argument(
        "--image", metavar="IMAGE", help="the image of a docker or daytona sandbox"
    )
    sandbox.add_argument(
        "--template", metavar="NAME", help="the template of an e2b sandbox, the snapshot of daytona"
    )
    sandbox.add_argument(
        "--manifest", metavar="FILE", help="the manifest of its workspace, as JSON"
    )
    sandbox.add_argument(
        "--workspace",
        metavar="DIR",
        help="start with a copy of this directory, which is the working directory or below it",
    )
    sandbox.add_argument(
        "--port",
        type=port,
        action="append",
        default=[],
        metavar="N",
        help="a port that can be reached from this machine; repeatable",
    )
    sandbox.add_argument(
        "--network",
        action="store_true",
        help="let it use the network: this machine's, or the engine's",
    )
