"""Headers that nobody of ours would send: of the server's features, of ours, and odd bytes."""

from __future__ import annotations

from random import Random

from fuzz.wire import Headers

_PARTS: tuple[Headers, ...] = (
    [(b"Nats-Rollup", b"sub")],
    [(b"Nats-Rollup", b"all")],
    [(b"Nats-TTL", b"1s")],
    [(b"Nats-TTL", b"never")],
    [(b"Nats-TTL", b"-5")],
    [(b"Nats-Schedule", b"@every 1s"), (b"Nats-Schedule-Target", b"sandstream.run.x.done")],
    [(b"Nats-Schedule", b"@at 2020-01-01T00:00:00Z"), (b"Nats-Schedule-Target", b"sandstream.>")],
    [(b"Nats-Schedule", b"soon")],
    [(b"Nats-Scheduler", b"sandstream.timer.x.y")],
    [(b"Nats-Schedule-Next", b"purge")],
    [(b"Nats-Expected-Stream", b"SANDSTREAM_LOG")],
    [(b"Nats-Expected-Stream", b"OTHER")],
    [(b"Nats-Expected-Last-Sequence", b"1")],
    [(b"Nats-Expected-Last-Msg-Id", b"x")],
    [(b"Nats-Expected-Last-Subject-Sequence", b"0")],
    [(b"Nats-Expected-Last-Subject-Sequence", b"x")],
    [(b"Nats-Expected-Last-Subject-Sequence", b"99999999999999999999")],
    [(b"Nats-Expected-Last-Subject-Sequence-Subject", b"sandstream.run.x.>")],
    [
        (b"Nats-Expected-Last-Subject-Sequence", b"0"),
        (b"Nats-Expected-Last-Subject-Sequence-Subject", b"sandstream.run.nobody.>"),
    ],
    [(b"Nats-Stream", b"SANDSTREAM_LOG"), (b"Nats-Sequence", b"1"), (b"Nats-Subject", b"a.b")],
    [(b"Nats-Sequence", b"x")],
    [(b"Nats-Batch-Id", b"b"), (b"Nats-Batch-Sequence", b"1")],
    [(b"Nats-Incr", b"1")],
    [(b"Nats-Num-Pending", b"x"), (b"Nats-UpTo-Sequence", b"x"), (b"Status", b"404")],
    [(b"Status", b"409"), (b"Description", b"Consumer Deleted")],
    [(b"Sandstream-Cause", b"x")],
    [(b"Sandstream-Cause", b"-1")],
    [(b"Sandstream-Before", b"1,2,x")],
    [(b"Sandstream-Before", b"9" * 5000)],
    [(b"Sandstream-Before", b"")],
    [(b"Sandstream-Overlapping", b"1")],
    [(b"Sandstream-Key", b"*.>")],
    [(b"Sandstream-Key", b"k" * 3000)],
    [(b"Sandstream-Operation", b"*")],
    [(b"Sandstream-Operation", b"o.p")],
    [(b"Sandstream-Deliveries", b"x")],
    [(b"Sandstream-Given-Back", b"-9"), (b"Sandstream-Deliveries", b"9" * 40)],
    [(b"Sandstream-Worker", b"w" * 3000)],
    [(b"Sandstream-Worker", b"\xff\x1b[31m:::")],
    [(b"Sandstream-Action", b"\xff")],
    [(b"Sandstream-May-Have-Begun", b"")],
    [(b"traceparent", b"00-zz-zz-zz")],
    [(b"traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01")],
    [(b"traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")],
    [(b"traceparent", b"\xff" * 55)],
    [(b"X", b"\xff\xfe\x00")],
    [(b"", b"no name")],
    [(b"X-\xff", b"1")],
    [(b"X", b"1"), (b"X", b"2"), (b"x", b"3")],
    [(b"X", b"y" * 4000)],
    [(b"X%d" % number, b"") for number in range(200)],
)


def hostile(rng: Random, *, earlier_ids: list[bytes]) -> Headers:
    """Some headers. ``earlier_ids``: message ids that were used before."""
    headers: Headers = []
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        headers += rng.choice(_PARTS)
    if rng.random() < 0.4:
        known = earlier_ids and rng.random() < 0.2
        chosen = rng.choice(earlier_ids) if known else rng.randbytes(6).hex().encode()
        headers.append((b"Nats-Msg-Id", chosen))
    return headers
