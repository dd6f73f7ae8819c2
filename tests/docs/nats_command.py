"""Stands in for the `nats` command in the pages: takes the same words, uses a bare connection.

Knows the commands and flags that the pages use, refuses all others, and none of our code: only
nats-py. So a page's `nats` line is executed as it stands, with the same subject, headers and body.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="nats")
    top.add_argument("-s", "--server", default=os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    commands = top.add_subparsers(dest="command", required=True)
    pub = commands.add_parser("pub")
    req = commands.add_parser("req")
    for command in (pub, req):
        command.add_argument("subject")
        command.add_argument("body")
        command.add_argument("-H", "--header", action="append", default=[])
    pub.add_argument("-J", "--jetstream", action="store_true")
    req.add_argument("-r", "--raw", action="store_true")
    req.add_argument("--replies", type=int, default=1)
    req.add_argument("--wait-for-empty", action="store_true")
    sub = commands.add_parser("sub")
    sub.add_argument("subject")
    sub.add_argument("--count", type=int, default=0)
    sub.add_argument("-r", "--raw", action="store_true")
    stream = commands.add_parser("stream").add_subparsers(dest="stream_command", required=True)
    get = stream.add_parser("get")
    get.add_argument("stream")
    get.add_argument("sequence", nargs="?", type=int)
    get.add_argument("-S", "--last-for")
    return top


async def run(words: list[str]) -> int:
    options = parser().parse_args(words)
    connection = await nats.connect(
        options.server,
        user=os.environ.get("NATS_USER"),
        password=os.environ.get("NATS_PASSWORD"),
        inbox_prefix=os.environ.get("NATS_INBOX_PREFIX", "_INBOX"),
        allow_reconnect=False,
    )
    try:
        match options.command:
            case "pub":
                await publish(connection, options)
            case "req":
                await request(connection, options)
            case "sub":
                await subscribe(connection, options)
            case "stream":
                await get(connection, options)
    finally:
        await connection.close()
    return 0


async def publish(connection: Client, options: argparse.Namespace) -> None:
    headers = dict(header.split(":", 1) for header in options.header) or None
    if options.jetstream:
        ack = await connection.jetstream().publish(
            options.subject, options.body.encode(), headers=headers
        )
        print(f"Stored in Stream: {ack.stream} Sequence: {ack.seq}")
        return
    await connection.publish(options.subject, options.body.encode(), headers=headers)
    await connection.flush()
    print(f"Published {len(options.body)} bytes to {options.subject!r}")


async def request(connection: Client, options: argparse.Namespace) -> None:
    headers = dict(header.split(":", 1) for header in options.header) or None
    inbox = connection.new_inbox()
    replies = await connection.subscribe(inbox)
    await connection.publish(options.subject, options.body.encode(), reply=inbox, headers=headers)
    wanted = options.replies
    while True:
        message = await replies.next_msg(timeout=5)
        if options.wait_for_empty and not message.data:
            return
        show(message, raw=options.raw)
        wanted -= 1
        if wanted == 0 and not options.wait_for_empty:
            return


async def subscribe(connection: Client, options: argparse.Namespace) -> None:
    subscription = await connection.subscribe(options.subject)
    await connection.flush()
    print(f"Subscribing on {options.subject}", file=sys.stderr, flush=True)
    received = 0
    async for message in subscription.messages:
        show(message, raw=options.raw)
        received += 1
        if received == options.count:
            return


async def get(connection: Client, options: argparse.Namespace) -> None:
    asked = {"last_by_subj": options.last_for} if options.last_for else {"seq": options.sequence}
    reply = await connection.request(
        f"$JS.API.STREAM.MSG.GET.{options.stream}", json.dumps(asked).encode()
    )
    answer = json.loads(reply.data)
    if "error" in answer:
        raise SystemExit(f"nats: error: {answer['error']['description']}")
    import base64

    message = answer["message"]
    print(f"Item: {options.stream}#{message['seq']} received on Subject {message['subject']}\n")
    print(base64.b64decode(message["data"]).decode())


def show(message: Msg, *, raw: bool) -> None:
    if not raw:
        print(f"Received on {message.subject!r}")
        for name, value in (message.headers or {}).items():
            print(f"{name}: {value}")
        print()
    print(message.data.decode(), flush=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1:])))
