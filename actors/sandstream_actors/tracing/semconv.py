"""All telemetry names that we emit: OpenTelemetry's semantic conventions (pinned), and our own
under ``sandstream.*``.
"""

from __future__ import annotations

from typing import Final

SCHEMA_VERSION: Final = "1.44.0"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{SCHEMA_VERSION}"
SCOPE: Final = "sandstream"

# --- generative AI ---------------------------------------------------------------------------

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
OUTPUT_TYPE: Final = "gen_ai.output.type"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
TOKEN_TYPE: Final = "gen_ai.token.type"

# --- messaging -------------------------------------------------------------------------------

MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION_NAME: Final = "messaging.destination.name"
DESTINATION_TEMPLATE: Final = "messaging.destination.template"
MESSAGE_ID: Final = "messaging.message.id"
CONSUMER_GROUP: Final = "messaging.consumer.group.name"
BODY_SIZE: Final = "messaging.message.body.size"
NATS: Final = "nats"
SEND: Final = "send"
PROCESS: Final = "process"

PROCESS_DURATION: Final = "messaging.process.duration"

# --- general ---------------------------------------------------------------------------------

ERROR_TYPE: Final = "error.type"

# --- ours ------------------------------------------------------------------------------------

RUN_ID: Final = "sandstream.run.id"
RUN_STATUS: Final = "sandstream.run.status"
RUN_ROOT: Final = "sandstream.run.root"
RUN_TURNS: Final = "sandstream.run.turns"
RUN_TRUNCATED: Final = "sandstream.run.truncated"
"""Whether the log has lost the beginning of the run."""
GROUP_ID: Final = "sandstream.group.id"
METADATA: Final = "sandstream.metadata"
"""The prefix of the caller's metadata about the run."""
TURN: Final = "sandstream.turn"
CALL: Final = "sandstream.call"
CALL_KIND: Final = "sandstream.call.kind"
QUEUED: Final = "sandstream.queue.duration"
"""Seconds of waiting before the work began."""
SEQUENCE: Final = "sandstream.log.sequence"
DELIVERIES: Final = "sandstream.deliveries"
ATTEMPTS: Final = "sandstream.attempts"
"""How many attempts a step took, if more than one (see sandstream_bus/wire/attempts.py)."""
TAKEOVERS: Final = "sandstream.takeovers"
"""How many attempts began because the previous process was lost. Also a counter."""
RETRIES: Final = "sandstream.retries"
"""How many requests were repeated by their sender. Also a counter."""
LOST: Final = "sandstream.lost.duration"
"""Seconds that lost processes held a step, up to the takeover. Also a histogram."""
WORKER: Final = "sandstream.worker.id"
"""The process that did the work: ``host:pid:instance``."""
TAKEN_FROM: Final = "sandstream.worker.lost"
"""The process that was lost before a takeover, if the log names it."""
TAKEOVER: Final = "sandstream.takeover"
"""The span event at which another process continues."""
LINK: Final = "sandstream.link"
"""Why a span is linked: ``message``, ``fan_in``, ``redelivery``, ``reopened``."""
HANDOFF_FROM: Final = "sandstream.handoff.from"
HANDOFF_TO: Final = "sandstream.handoff.to"
GUARDRAIL_NAME: Final = "sandstream.guardrail.name"
GUARDRAIL_KIND: Final = "sandstream.guardrail.kind"
GUARDRAIL_TRIPPED: Final = "sandstream.guardrail.tripped"
APPROVAL_DECISION: Final = "sandstream.approval.decision"
APPROVAL_BY: Final = "sandstream.approval.by"
SANDBOX_ID: Final = "sandstream.sandbox.id"
SANDBOX_PROVIDER: Final = "sandstream.sandbox.provider"
CHILD_RUN: Final = "sandstream.child.run.id"
RETRY_ATTEMPT: Final = "sandstream.retry.attempt"
RETRY_DELAY: Final = "sandstream.retry.delay"
SESSION_ID: Final = "sandstream.session.id"

OPERATION: Final = "sandstream.operation"
"""The kind of a span (``Span.operation``), in metrics."""
QUEUE_DEPTH: Final = "sandstream.queue.depth"
ACTIVE_RUNS: Final = "sandstream.runs.active"
RUNS_ENDED: Final = "sandstream.runs.ended"
REDELIVERED: Final = "sandstream.messages.redelivered"
PARKED: Final = "sandstream.messages.parked"
QUEUE_DURATION: Final = "sandstream.queue.duration"
SPANS_DROPPED: Final = "sandstream.spans.dropped"
CONSUMER: Final = "sandstream.consumer"

NAMES: Final = frozenset(
    value for value in dict(globals()).values() if isinstance(value, str) and "." in value
)
"""All of these names."""
