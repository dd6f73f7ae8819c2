"""The events of a run, for your own actors: ``from sandstream.events import RunDone``.

Messages are described in docs/wire.md. Handlers get the event and a :class:`Received`, and may
raise :class:`Retry` to get the event again later. ``Client.events`` and ``Client.follow`` return
:class:`LogEvent` (stored) and :class:`LiveEvent` (only live).
"""

from __future__ import annotations

from sandstream_actors.base import Received as Received
from sandstream_bus.errors import Retry as Retry
from sandstream_bus.logs.runs import LogEvent as LogEvent
from sandstream_bus.wire.messages import ApprovalDecided as ApprovalDecided
from sandstream_bus.wire.messages import ApprovalRequested as ApprovalRequested
from sandstream_bus.wire.messages import CallFinished as CallFinished
from sandstream_bus.wire.messages import CallRequested as CallRequested
from sandstream_bus.wire.messages import CallStarted as CallStarted
from sandstream_bus.wire.messages import CancelRequested as CancelRequested
from sandstream_bus.wire.messages import ChildWaiting as ChildWaiting
from sandstream_bus.wire.messages import ConversationOpened as ConversationOpened
from sandstream_bus.wire.messages import ErrorInfo as ErrorInfo
from sandstream_bus.wire.messages import InputStaged as InputStaged
from sandstream_bus.wire.messages import LiveEvent as LiveEvent
from sandstream_bus.wire.messages import ModelAnswered as ModelAnswered
from sandstream_bus.wire.messages import ModelDeferred as ModelDeferred
from sandstream_bus.wire.messages import RunDone as RunDone
from sandstream_bus.wire.messages import RunEvent as RunEvent
from sandstream_bus.wire.messages import RunMoved as RunMoved
from sandstream_bus.wire.messages import RunReopened as RunReopened
from sandstream_bus.wire.messages import RunRestored as RunRestored
from sandstream_bus.wire.messages import RunStarted as RunStarted
from sandstream_bus.wire.messages import RunWaiting as RunWaiting
from sandstream_bus.wire.messages import TokenUsage as TokenUsage
from sandstream_bus.wire.messages import TurnRequested as TurnRequested
