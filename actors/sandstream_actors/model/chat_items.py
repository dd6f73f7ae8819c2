"""Build output items in Responses format from a chat endpoint's answer. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from sandstream_actors.model.chat_messages import REASONING_FIELD
from sandstream_actors.model.interface import Usage
from sandstream_actors.model.responses_request import FAKE_ID

Fields = dict[str, Any]

FILTERED = "Response withheld by the provider's content filter."


class ChatDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class ChatUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: ChatDetails | None = None
    completion_tokens_details: ChatDetails | None = None

    def flat(self) -> Usage:
        inward = self.prompt_tokens_details or ChatDetails()
        outward = self.completion_tokens_details or ChatDetails()
        return Usage(
            requests=1,
            input_tokens=self.prompt_tokens or 0,
            output_tokens=self.completion_tokens or 0,
            total_tokens=self.total_tokens or 0,
            cached_tokens=inward.cached_tokens or 0,
            cache_write_tokens=inward.cache_write_tokens or 0,
            reasoning_tokens=outward.reasoning_tokens or 0,
        )


def provider_data(model: str, response_id: str | None) -> Fields:
    return {"model": model, "response_id": response_id} if response_id else {"model": model}


def text_part(text: str, annotations: list[Any], logprobs: list[Any]) -> Fields:
    return {
        "annotations": annotations,
        "text": text,
        "type": "output_text",
        "logprobs": logprobs,
    }


def refusal_part(refusal: str) -> Fields:
    return {"refusal": refusal, "type": "refusal"}


def message_item(parts: list[Fields], data: Fields, status: str = "completed") -> Fields:
    return {
        "id": FAKE_ID,
        "content": parts,
        "role": "assistant",
        "status": status,
        "type": "message",
        "provider_data": data,
    }


def call_item(call_id: str, name: str, arguments: str, data: Fields) -> Fields:
    return {
        "arguments": arguments,
        "call_id": call_id,
        "name": name,
        "type": "function_call",
        "id": FAKE_ID,
        "provider_data": data,
    }


def summary_item(text: str | None, data: Fields) -> Fields:
    """Reasoning that came as ``reasoning_content``."""
    summary = [] if text is None else [{"text": text, "type": "summary_text"}]
    return {"id": FAKE_ID, "summary": summary, "type": "reasoning", "provider_data": data}


def reasoning_item(text: str, data: Fields) -> Fields:
    """Reasoning that came as ``reasoning``; marked, so that it is sent back in the same field."""
    return {
        "id": FAKE_ID,
        "summary": [],
        "type": "reasoning",
        "content": [{"text": text, "type": "reasoning_text"}],
        "provider_data": {**data, REASONING_FIELD: "reasoning"},
    }


def usage_fields(usage: Usage) -> Fields:
    """Usage in the nested form of a completed Responses event."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cache_write_tokens": usage.cache_write_tokens,
            "cached_tokens": usage.cached_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
