# SPDX-License-Identifier: Apache-2.0
"""Tokens of a prompt, equal to the engine's tokens.

A request may contain tokens. The proxy sends text to an engine's POST /tokenize, which applies the
engine's chat template. A prompt that an engine hashes with more than tokens (images, salts,
embeddings) has no tokens here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

MAX_ANSWER_BYTES = 2 << 20  # about 300,000 tokens

_HASHED_TOO = ("cache_salt", "prompt_embeds", "truncate_prompt_tokens", "mm_processor_kwargs")
_OF_TEXT = ("model", "prompt", "add_special_tokens")
_OF_CHAT = ("model", "messages", "add_generation_prompt", "continue_final_message",
            "add_special_tokens", "chat_template", "chat_template_kwargs", "tools")  # fmt: skip


def tokens_or_question(request: Mapping[str, Any]) -> list[Any] | dict[str, Any] | None:
    """The tokens, or the body for /tokenize; None if tokens do not determine the keys."""
    if any(request.get(name) for name in _HASHED_TOO):
        return None
    if "messages" in request:
        if not _is_text(request["messages"]):
            return None
        return {name: request[name] for name in _OF_CHAT if name in request}
    prompt = request.get("prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        prompt = prompt[0]  # with several prompts, the first prompt decides
    if isinstance(prompt, list):
        return prompt
    if not isinstance(prompt, str):
        return None
    return {name: request[name] for name in _OF_TEXT if name in request} | {"prompt": prompt}


def _is_text(messages: Any) -> bool:
    for one in messages if isinstance(messages, list) else (None,):
        content = one.get("content") if isinstance(one, dict) else 0
        if isinstance(content, list):
            if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
                return False
        elif not isinstance(content, str | None):
            return False
    return True


class NoTokens(Exception):
    """The engine gave no tokens. lasting: a repetition would fail as well."""

    def __init__(self, why: str, lasting: bool) -> None:
        super().__init__(why)
        self.lasting = lasting


async def ask(
    session: aiohttp.ClientSession, url: str, question: Any, headers: Mapping[str, str]
) -> list[Any]:
    """The prompt's tokens from the engine at url. Raises NoTokens."""
    try:
        async with session.post(
            f"{url}/tokenize", json=question, headers=headers, allow_redirects=False
        ) as answer:
            if answer.status != 200:
                # 400 concerns this request only. The engine will report the error to the client.
                raise NoTokens(f"/tokenize answers {answer.status}", answer.status != 400)
            text = await answer.content.read(MAX_ANSWER_BYTES)
            while not answer.content.at_eof() and len(text) < MAX_ANSWER_BYTES:
                text += await answer.content.read(MAX_ANSWER_BYTES - len(text))
        said = json.loads(text)
    except (aiohttp.ClientError, OSError) as error:
        raise NoTokens(f"{type(error).__name__}: {error}"[:200], True) from None
    except (ValueError, RecursionError):
        raise NoTokens("/tokenize answers with no JSON, or with too much", False) from None
    tokens = said.get("tokens") if isinstance(said, dict) else None
    if not isinstance(tokens, list):
        raise NoTokens("/tokenize answers without tokens", True)
    return tokens
