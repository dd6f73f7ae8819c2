"""Asks whichever node serves the local provider for a sandbox and runs a command in it."""

import asyncio

import msgspec
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.sandboxes import (
    Close,
    Exec,
    Executed,
    Open,
    SandboxAction,
    SandboxRequest,
    SandboxSpec,
)

from sandstream import Client

LOOK = 'test "$(ls /proc | grep -c "^[0-9]")" -lt 9 && echo "isolated, uid $(id -u)"'


async def main() -> None:
    async with await Client.connect() as client:

        async def ask(action: SandboxAction) -> bytes:
            request = SandboxRequest(op=new_op(), action=action)
            reply = await client.bus.sandboxes.request("probe", request, provider="local")
            if reply.error is not None:
                raise SystemExit(f"{reply.error.code}: {reply.error.message}")
            return bytes(reply.result)

        await ask(Open(spec=SandboxSpec()))
        done = msgspec.json.decode(await ask(Exec(argv=["sh", "-c", LOOK])), type=Executed)
        print((done.stdout + done.stderr).decode().strip())
        await ask(Close(delete=True))


asyncio.run(main())
