"""The events of a run, for actors of one's own: ``from sandstream.events import RunDone``.

Messages are described in docs/wire.md. Handlers get the event and a :class:`Received`, and may
raise :class:`Retry` to see the event again later.
"""

from __future__ import annotations

from sandstream_bus.errors import Retry as Retry
from sandstream_bus.messages import CallFinished as CallFinished
from sandstream_bus.messages import CallRequested as CallRequested
from sandstream_bus.messages import CallStarted as CallStarted
from sandstream_bus.messages import CancelRequested as CancelRequested
from sandstream_bus.messages import ErrorInfo as ErrorInfo
from sandstream_bus.messages import ModelAnswered as ModelAnswered
from sandstream_bus.messages import ModelDeferred as ModelDeferred
from sandstream_bus.messages import RunDone as RunDone
from sandstream_bus.messages import RunEvent as RunEvent
from sandstream_bus.messages import RunMoved as RunMoved
from sandstream_bus.messages import RunReopened as RunReopened
from sandstream_bus.messages import RunStarted as RunStarted
from sandstream_bus.messages import TokenUsage as TokenUsage
from sandstream_bus.messages import TurnRequested as TurnRequested
from sandstream_bus.runtime import Received as Received
