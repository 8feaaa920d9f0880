"""Parameters that this server does not act on, and the values that ask for nothing.

Any other value is refused: a client that asks for tools or a grammar and silently gets none would
be wrong without knowing it. `null` asks for nothing anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from tsruntime.server.errors import ApiError

Harmless: TypeAlias = Mapping[str, tuple[object, ...] | None]
"""Parameter name to the values that ask for nothing; None where every value does."""

SAMPLING: Final[dict[str, tuple[object, ...] | None]] = {
    "user": None,
    "metadata": None,
    "safety_identifier": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "service_tier": ("auto", "default"),
    "store": (False,),
    "prompt_logprobs": (),
    "length_penalty": (1.0,),
    "use_beam_search": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "detokenize": (True,),
    "allowed_token_ids": (),
    "bad_words": ([],),
    "truncate_prompt_tokens": (),
    "priority": (0,),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "response_format": ({"type": "text"},),
}
COMPLETION: Final[dict[str, tuple[object, ...] | None]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
}
CHAT: Final[dict[str, tuple[object, ...] | None]] = {
    "tools": ([],),
    "tool_choice": ("none",),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none",),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "echo": (False,),
    "chat_template": (),
    "documents": ([],),
    "continue_final_message": (False,),
    "include_reasoning": (True,),
}


def refuse_extras(
    extras: Mapping[str, object] | None, harmless: Harmless, *, where: str = ""
) -> None:
    """Raise ApiError for the first of `extras` that asks for something; empty values never do.

    `where` is put before the name, as in `messages[0].`.
    """
    for name, value in (extras or {}).items():
        if name not in harmless:
            if where and (value is None or value == []):
                continue  # clients send messages back as they got them, unused fields included
            raise ApiError(f"unrecognized request argument: {where}{name}", param=where + name)
        accepted = harmless[name]
        if value is None or accepted is None or value in accepted:
            continue
        raise ApiError(f"{where}{name} is not supported by this server", param=where + name)
