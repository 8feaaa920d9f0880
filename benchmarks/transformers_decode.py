"""The peer of `bench_decode`: transformers' `generate` on the same weights, as a process."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any, cast

import torch
import transformers


def main() -> None:
    """Arguments: GGUF file, threads, prompt tokens, new tokens, repeats. Prints JSON."""
    file, threads, prompt, new, repeats = sys.argv[1], *map(int, sys.argv[2:6])
    torch.set_num_threads(threads)
    hf = cast("Any", transformers)
    folder, _, name = file.rpartition("/")
    model = hf.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    ids = torch.randint(100, 40_000, (1, prompt), generator=torch.Generator().manual_seed(1))
    rates = [_rate(model.eval(), ids, new) for _ in range(repeats)]
    print(json.dumps({"tokens_per_second": statistics.median(rates)}))


def _rate(model: Any, ids: torch.Tensor, new: int) -> float:
    """Decode rate, the prefill taken out: (new - 1) tokens over the difference of two runs."""
    return (new - 1) / (_seconds(model, ids, new) - _seconds(model, ids, 1))


def _seconds(model: Any, ids: torch.Tensor, new: int) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=new,
            max_new_tokens=new,
            pad_token_id=0,
        )
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
