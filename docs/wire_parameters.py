"""What the parameters in the addresses of channels mean (`wire_channels.py`)."""

from __future__ import annotations

PARAMETERS = {
    "agent": "The agent's name; bytes other than A-Z a-z 0-9 _ - are written =XX.",
    "run": "The run's id: 1 to 128 of A-Z a-z 0-9 _ - =.",
    "pool": "A harness pool or a tool host pool.",
    "call": "The call's id within its run, such as t1-0.",
    "user": "The user who asks: 1 to 32 of a-z 0-9 _ -, a letter or digit first.",
    "owner": "The run or the memory to which the timer belongs.",
    "name": "The timer's name within its owner.",
    "subject": "The rest of the subject to which the message goes, without the prefix.",
    "sandbox": "The sandbox's id.",
    "provider": "The sandbox provider, such as local.",
    "node": "The node of the provider that has the sandbox.",
    "op": "The operation's id, chosen by the requester.",
    "session": "The conversation's id, escaped like an agent's name; a long one is hashed. The "
    "id of a session is not escaped: 1 to 64 of A-Z a-z 0-9 _ -, after USER= if it has an owner.",
    "kind": "What is wanted: create, send, interrupt, fork, and so on.",
    "number": "The number of the turn; the first is 1.",
    "scope": "The memory's name, escaped like a conversation's id.",
    "trace": "The trace's id: 32 hexadecimal digits, lower case.",
    "group": "A group of tracing actors, which share their work.",
    "consumer": "The durable consumer that parked the message.",
    "sequence": "The stream sequence of the message that was parked.",
    "event": "The rest of the event's subject: start.POOL, model, done, and so on.",
}
