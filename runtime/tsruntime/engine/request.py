"""What the engine knows of one live request."""

from __future__ import annotations

from dataclasses import dataclass, field

from tsruntime.engine.messages import FinishReason, Fork
from tsruntime.sampling.params import SamplingParams
from tsschedulers._core import Handle


@dataclass(slots=True)
class Request:
    """A request that has not ended. `output` is every token so far, retracted or not.

    Once it was `admitted`, `cached_tokens` counts the prompt tokens that its first admission found
    in the cache. `forks` wait for its first token.
    """

    id: int
    prompt: tuple[int, ...]
    params: SamplingParams
    priority: int
    handle: Handle
    output: list[int] = field(default_factory=list[int])
    admitted: bool = False
    cached_tokens: int = 0
    forks: list[Fork] = field(default_factory=list[Fork])

    def take(self, token: int) -> FinishReason | None:
        """Append `token`; why it is the last one, if it is.

        A stop token before `min_tokens` tokens does not end the request.
        """
        self.output.append(token)
        count = len(self.output)
        if token in self.params.stop_token_ids and count >= self.params.min_tokens:
            return FinishReason.STOP
        return FinishReason.LENGTH if count >= self.params.max_tokens else None
