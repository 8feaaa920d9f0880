"""The peer of `bench_device`: a decode step of transformers on the GPU, eager, as a process."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, cast

import torch
import transformers

_STEPS = 20


def main() -> None:
    """Arguments: config.json, context. Prints JSON: the median milliseconds of a greedy step.

    Batch 1, bfloat16, random weights. Each step waits for its token, as `generate` does.
    """
    fields: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    fields.pop("quantization_config", None)
    hf = cast("Any", transformers)
    made = hf.AutoConfig.for_model(**fields)
    with torch.device("cuda"):
        model = hf.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16).eval()
    ids = torch.arange(int(sys.argv[2]), device="cuda")[None] % made.vocab_size
    with torch.inference_mode():
        state = model(ids, use_cache=True, logits_to_keep=1)
        steps: list[float] = []
        for _ in range(_STEPS):
            begin = time.perf_counter()
            token = state.logits[:, -1:].argmax(-1)
            state = model(token, past_key_values=state.past_key_values, use_cache=True)
            torch.cuda.synchronize()
            steps.append(time.perf_counter() - begin)
    print(json.dumps({"milliseconds": statistics.median(steps) * 1e3}))


if __name__ == "__main__":
    main()
