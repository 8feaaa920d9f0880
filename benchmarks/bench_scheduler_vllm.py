"""The same decode step in vLLM's scheduler, where vLLM is installed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

PAGE_SIZE = 16
STEPS = 32  # two pages

MODEL: Mapping[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 65536,
    "torch_dtype": "bfloat16",
}
"""Some model: the scheduler asks for its limits."""


class Scheduled(Protocol):
    """What is read of a step."""

    num_scheduled_tokens: Mapping[str, int]


class Peer(Protocol):
    """What is called of its scheduler."""

    def add_request(self, request: object) -> None:
        """Queue a request."""
        ...

    def schedule(self) -> Scheduled:
        """Plan a step."""
        ...

    def update_from_output(self, step: Scheduled, output: object) -> object:
        """Apply results."""
        ...


def vllm_decoding(requests: int, context: int) -> float | None:
    """Microseconds of CPU time of schedule + update of one step; None if it is not installed."""
    if importlib.util.find_spec("vllm") is None:
        return None
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    subject = _scheduler(requests, context)
    for number in range(requests):
        subject.add_request(_request(number, context))
    times: list[float] = []
    while len(times) < STEPS:
        begin = time.process_time_ns()
        tokens = _step(subject)
        spent = (time.process_time_ns() - begin) / 1000
        if tokens == requests:
            times.append(spent)
    return statistics.mean(times)


def _scheduler(requests: int, context: int) -> Peer:
    configs = importlib.import_module("vllm.config")
    length = context + 4 * STEPS
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        model = configs.ModelConfig(
            model=folder, skip_tokenizer_init=True, max_model_len=length, dtype="bfloat16"
        )
    pages = requests * (length // PAGE_SIZE + 1) + 8
    cache = configs.CacheConfig(block_size=PAGE_SIZE, enable_prefix_caching=True)
    cache.num_gpu_blocks = pages
    config = configs.VllmConfig(
        scheduler_config=configs.SchedulerConfig(
            max_num_seqs=requests,
            max_num_batched_tokens=requests * context,
            max_model_len=length,
            is_encoder_decoder=False,
        ),
        model_config=model,
        cache_config=cache,
        device_config=configs.DeviceConfig(device="cpu"),
    )
    grammars = importlib.import_module("vllm.v1.structured_output")
    return importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler(
        config, _pool(pages), grammars.StructuredOutputManager(config), block_size=PAGE_SIZE
    )


def _pool(pages: int) -> object:
    """One group of full attention."""
    module = importlib.import_module("vllm.v1.kv_cache_interface")
    torch = importlib.import_module("torch")
    layer = module.FullAttentionSpec(
        block_size=PAGE_SIZE, num_kv_heads=1, head_size=1, dtype=torch.bfloat16
    )
    return module.KVCacheConfig(
        num_blocks=pages,
        kv_cache_tensors=[],
        kv_cache_groups=[module.KVCacheGroupSpec(["layer"], layer)],
    )


def _request(number: int, context: int) -> object:
    hashes = importlib.import_module("vllm.v1.core.kv_cache_utils")
    function = importlib.import_module("vllm.utils.hashing").get_hash_fn_by_name("sha256")
    hashes.init_none_hash(function)
    params = importlib.import_module("vllm.sampling_params").SamplingParams(
        max_tokens=4 * STEPS, ignore_eos=True
    )
    return importlib.import_module("vllm.v1.request").Request(
        str(number),
        [number, *range(context - 1)],
        params,
        None,
        block_hasher=hashes.get_request_block_hasher(PAGE_SIZE, function),
    )


def _step(subject: Peer) -> int:
    """One step whose samples are all token 1; the tokens that it computed."""
    step = subject.schedule()
    names = list(step.num_scheduled_tokens)
    output = importlib.import_module("vllm.v1.outputs").ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: row for row, name in enumerate(names)},
        sampled_token_ids=[[1]] * len(names),
    )
    subject.update_from_output(step, output)
    return sum(step.num_scheduled_tokens.values())
