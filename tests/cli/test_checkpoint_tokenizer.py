"""Tokenizers agree with transformers' on 1,000 mixed strings; templates are settled at build."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unicodedata import category

import checkpoints
import gguf
import gguf_checkpoints
import pytest
import tokenizers
import transformers
from checkpoints import TinyHf
from texts import mixed_texts

from tscompile.checkpoint import TokenizerBundle, open_checkpoint
from tscompile.checkpoint.gguf_tokenizer import PRE_TOKENIZERS
from tscompile.errors import ChatTemplateError, TokenizerError
from tscompile.recipe import load

ROOT = Path(__file__).parents[2]
_hf = cast("Any", transformers)
_post: Any = tokenizers.processors
_pre: Any = tokenizers.pre_tokenizers


def bundle_of(source: Path, *overrides: str) -> TokenizerBundle:
    recipe = source.parent / f"{source.name}.yaml"
    recipe.write_text(f"name: t\nmodel:\n  source: {source.name}\n")
    bundle = open_checkpoint(load(recipe, overrides)).tokenizer
    assert bundle is not None
    return bundle


def encode(bundle: TokenizerBundle, text: str, *, specials: bool = True) -> list[int]:
    tokenizer = cast("Any", tokenizers.Tokenizer.from_str(bundle.tokenizer_json))
    return tokenizer.encode(text, add_special_tokens=specials).ids


def assert_agree(bundle: TokenizerBundle, theirs: Any, specials: tuple[str, ...]) -> list[str]:
    """Same ids and same text back, for 1,000 strings; returns the strings."""
    ours = cast("Any", tokenizers.Tokenizer.from_str(bundle.tokenizer_json))
    texts = mixed_texts(1000, specials)
    for text in texts:
        ids = ours.encode(text).ids
        assert ids == theirs(text)["input_ids"], text
        back = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, skip_special_tokens=True) == back
    return texts


@pytest.fixture(scope="module")
def smollm2() -> TokenizerBundle:
    bundle = open_checkpoint(load(ROOT / "recipes/smollm2-135m-cpu.yaml")).tokenizer
    assert bundle is not None
    return bundle


def transformers_smollm2(path: Path) -> Any:
    """transformers' GPT-2 tokenizer class, which SmolLM2 publishes, on the file's vocabulary."""
    fields = cast("Any", gguf).GGUFReader(str(path)).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    return _hf.GPT2Tokenizer(
        vocab={token: index for index, token in enumerate(tokens)},
        merges=merges,
        unk_token="<|endoftext|>",
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        extra_special_tokens=tokens[:17],
    )


def test_smollm2_agrees_with_transformers(smollm2: TokenizerBundle, smollm2_gguf: Path) -> None:
    theirs = transformers_smollm2(smollm2_gguf)
    plain = {text: theirs(text)["input_ids"] for text in mixed_texts(1000, ("<|im_end|>",))}
    theirs.backend_tokenizer.pre_tokenizer = _pre.Sequence(  # of the published tokenizer.json
        [_pre.Digits(individual_digits=True), _pre.ByteLevel(add_prefix_space=False)]
    )
    assert_agree(smollm2, theirs, ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>"))
    changed = [text for text, ids in plain.items() if theirs(text)["input_ids"] != ids]
    assert len(changed) > 10  # the pre-tokenizer matters,
    assert all(any(category(c).startswith("N") for c in text) for text in changed)  # at digits


def test_smollm2_special_tokens(smollm2: TokenizerBundle) -> None:
    assert (smollm2.bos_token, smollm2.bos_token_id) == ("<|im_start|>", 1)
    assert (smollm2.eos_token, smollm2.eos_token_ids) == ("<|im_end|>", (2,))
    assert smollm2.add_bos is False
    assert encode(smollm2, "Hi<|im_end|>") == [26843, 2]
    assert smollm2.chat_template is not None
    assert smollm2.chat_template.startswith("{% for message in messages %}")


def test_tokenizer_text_depends_on_no_hash_seed(smollm2: TokenizerBundle) -> None:
    program = (
        "import hashlib, sys; from tscompile.recipe import load\n"
        "from tscompile.checkpoint import open_checkpoint\n"
        "bundle = open_checkpoint(load(sys.argv[1])).tokenizer\n"
        "print(hashlib.sha256(bundle.tokenizer_json.encode()).hexdigest())\n"
    )
    path = str(ROOT / "recipes/smollm2-135m-cpu.yaml")
    digests = {
        subprocess.run(
            [sys.executable, "-c", program, path],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("pre", ["gpt-2", "qwen2"])
def test_pre_tokenizers_agree_with_transformers_classes(tmp_path: Path, pre: str) -> None:
    path = tmp_path / "t.gguf"
    gguf_checkpoints.save_tiny_gguf("llama", path, pre=pre)
    bundle = bundle_of(path)
    model = json.loads(bundle.tokenizer_json)["model"]
    kind = {"gpt-2": _hf.GPT2Tokenizer, "qwen2": _hf.Qwen2Tokenizer}[pre]
    theirs = kind(
        vocab=model["vocab"],
        merges=[tuple(merge) for merge in model["merges"]],
        unk_token="<|endoftext|>",
        eos_token="<|im_end|>",
        extra_special_tokens=["<|im_start|>"],
    )
    assert_agree(bundle, theirs, ("<|im_start|>", "<|im_end|>"))


def test_llama_bpe_splits_as_transformers_converter(tmp_path: Path) -> None:
    converter = _hf.convert_slow_tokenizer.TikTokenConverter
    pattern = inspect.signature(converter.__init__).parameters["pattern"].default
    assert PRE_TOKENIZERS["llama-bpe"].pattern == pattern
    path = tmp_path / "t.gguf"
    gguf_checkpoints.save_tiny_gguf("llama", path, pre="llama-bpe")
    bundle = bundle_of(path)
    assert bundle.add_bos is True
    ids = encode(bundle, "Hello 12345")
    assert ids[0] == 0
    assert ids[1:] == encode(bundle, "Hello 12345", specials=False)
    splitter: Any = tokenizers.Tokenizer.from_str(bundle.tokenizer_json).pre_tokenizer
    pieces = [piece for piece, _ in splitter.pre_tokenize_str("Hello 12345")]
    assert pieces == ["Hello", "Ġ", "123", "45"]


def test_gguf_says_whether_a_prompt_starts_with_bos(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    for add in (True, False):
        metadata = {"tokenizer.ggml.add_bos_token": add, "tokenizer.ggml.eot_token_id": 1}
        gguf_checkpoints.save_tiny_gguf("llama", path, metadata=metadata)
        bundle = bundle_of(path)
        assert bundle.add_bos is add
        assert (encode(bundle, "a")[0] == 0) is add
        assert bundle.eos_token_ids == (1, 2)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"tokenizer.ggml.merges": ["a zzz"]}, "the merge 'a zzz' speaks of tokens"),
        ({"tokenizer.ggml.merges": None}, "tokenizer.ggml.merges is missing"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "a token is in the vocabulary twice"),
        ({"tokenizer.ggml.token_type": [1, 2]}, "token_type does not match"),
        ({"tokenizer.ggml.eos_token_id": 9999}, "eos_token_id 9999 is outside"),
        (
            {
                "tokenizer.ggml.tokens": [f"t{i}" for i in range(385)],
                "tokenizer.ggml.merges": ["t0 t1"],
            },
            "the merge 't0 t1' speaks",
        ),
    ],
)
def test_a_gguf_vocabulary_that_contradicts_itself(
    tmp_path: Path, metadata: dict[str, Any], message: str
) -> None:
    path = tmp_path / "t.gguf"
    gguf_checkpoints.save_tiny_gguf("llama", path, metadata=metadata)
    with pytest.raises(TokenizerError, match=message):
        bundle_of(path)


@pytest.fixture
def copy(tiny_hf: TinyHf, tmp_path: Path) -> Callable[[], Path]:
    """A copy of a tiny Hugging Face checkpoint that a test may edit."""

    def make() -> Path:
        return Path(shutil.copytree(tiny_hf("llama"), tmp_path / "c"))

    return make


def test_a_directory_agrees_with_transformers(copy: Callable[[], Path]) -> None:
    directory = copy()
    theirs = _hf.AutoTokenizer.from_pretrained(str(directory))
    bundle = bundle_of(directory)
    assert_agree(bundle, theirs, ("<|im_start|>", "<|im_end|>"))
    assert bundle.chat_template == checkpoints.CHAT_TEMPLATE
    assert (bundle.bos_token, bundle.bos_token_id) == ("<|endoftext|>", 0)
    assert (bundle.eos_token, bundle.eos_token_ids) == ("<|im_end|>", (2,))
    assert bundle.add_bos is False


@pytest.mark.parametrize("settings", [{"add_bos_token": True}, {"add_bos_token": False}])
@pytest.mark.parametrize("post", [True, False])
def test_prompts_start_as_transformers_starts_them(
    copy: Callable[[], Path], settings: dict[str, bool], post: bool
) -> None:
    directory = copy()
    checkpoints.edit_json(directory / "tokenizer_config.json", **settings)
    if post:
        tokenizer = cast("Any", tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json")))
        tokenizer.post_processor = _post.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
        tokenizer.save(str(directory / "tokenizer.json"))
    theirs = _hf.AutoTokenizer.from_pretrained(str(directory))
    bundle = bundle_of(directory)
    assert encode(bundle, "Hello") == theirs("Hello")["input_ids"]
    assert bundle.add_bos is post


def test_generation_config_gives_ends_and_sampling_defaults(copy: Callable[[], Path]) -> None:
    directory = copy()
    checkpoints.edit_json(
        directory / "generation_config.json",
        eos_token_id=[1, 5], temperature=0.6, top_p=0.9, top_k=20,
    )  # fmt: skip
    bundle = bundle_of(directory)
    assert bundle.eos_token_ids == (1, 2, 5)
    assert (bundle.temperature, bundle.top_p, bundle.top_k) == (0.6, 0.9, 20)


def test_special_tokens_in_their_other_spellings(copy: Callable[[], Path]) -> None:
    directory = copy()
    settings = directory / "tokenizer_config.json"
    checkpoints.edit_json(settings, bos_token=None, eos_token={"content": "<|im_start|>"})
    (directory / "special_tokens_map.json").write_text('{"bos_token": "<|im_end|>"}')
    bundle = bundle_of(directory)
    assert (bundle.bos_token_id, bundle.eos_token) == (2, "<|im_start|>")
    checkpoints.edit_json(settings, eos_token="<gone>")
    with pytest.raises(TokenizerError, match="special token '<gone>' is not in the vocabulary"):
        bundle_of(directory)


def test_template_in_tokenizer_config(copy: Callable[[], Path]) -> None:
    directory = copy()
    (directory / "chat_template.jinja").unlink()
    settings = directory / "tokenizer_config.json"
    checkpoints.edit_json(settings, chat_template="one")
    assert bundle_of(directory).chat_template == "one"
    several = [{"name": "rag", "template": "x"}, {"name": "default", "template": "two"}]
    checkpoints.edit_json(settings, chat_template=several)
    assert bundle_of(directory).chat_template == "two"
    (directory / "chat_template.jinja").write_text("three")
    assert bundle_of(directory).chat_template == "three"


def test_no_chat_template_is_refused_unless_chat_is_off(tmp_path: Path) -> None:
    directory = checkpoints.save_tiny_hf("llama", tmp_path / "c", chat_template=None)
    with pytest.raises(ChatTemplateError, match="the checkpoint has no chat template") as caught:
        bundle_of(directory)
    assert "chat: false" in caught.value.remedy
    assert caught.value.where.endswith("c.yaml:1 chat")
    assert bundle_of(directory, "chat=false").chat_template is None
    (tmp_path / "t.jinja").write_text("{{ messages[0]['content'] }}")
    bundle = bundle_of(directory, "chat.template=t.jinja")
    assert bundle.chat_template == "{{ messages[0]['content'] }}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}", "does not compile: line 1"),
        ("\n{{ x | nofilter }}", "does not compile: line 2: No filter named 'nofilter'"),
        ("{{ nofunction() }}", "fails on a single user message: 'nofunction' is undefined"),
        ("{{ raise_exception('no') }}", "fails on a single user message: no"),
        ("{{ messages.append(1) }}", "fails on a single user message"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "fails on a single user message"),
    ],
)
def test_a_template_that_cannot_work_is_refused_at_build(
    copy: Callable[[], Path], template: str, message: str
) -> None:
    directory = copy()
    (directory / "chat_template.jinja").write_text(template)
    with pytest.raises(ChatTemplateError, match=message):
        bundle_of(directory)


def test_a_missing_template_file(copy: Callable[[], Path]) -> None:
    with pytest.raises(ChatTemplateError, match="No such file") as caught:
        bundle_of(copy(), "chat.template=gone.jinja")
    assert caught.value.where == "--set chat.template"


def test_dummy_weights_take_a_tokenizer(tiny_hf: TinyHf, tmp_path: Path) -> None:
    path = ROOT / "recipes/llama-tiny-dummy.yaml"
    tokenizer = f"tokenizer={tiny_hf('llama')}"
    bundle = open_checkpoint(load(path, (tokenizer, "chat={}"))).tokenizer
    assert bundle is not None
    assert bundle.chat_template == checkpoints.CHAT_TEMPLATE
    with pytest.raises(ChatTemplateError, match="chat needs a tokenizer"):
        open_checkpoint(load(path, ("chat={}",)))


def test_a_recipes_tokenizer_replaces_the_checkpoints(copy: Callable[[], Path]) -> None:
    directory = copy()
    other = directory.parent / "other"
    other.mkdir()
    checkpoints.save_tiny_tokenizer(other, chat_template="theirs")
    assert bundle_of(directory, "tokenizer=other").chat_template == "theirs"
    assert bundle_of(directory, "tokenizer=other/tokenizer.json").chat_template == "theirs"
    with pytest.raises(TokenizerError, match=r"cannot read tokenizer.json"):
        bundle_of(directory, "tokenizer=nowhere/tokenizer.json")


def test_a_damaged_or_foreign_tokenizer(copy: Callable[[], Path]) -> None:
    directory = copy()
    checkpoints.edit_json(directory / "config.json", vocab_size=300)
    with pytest.raises(TokenizerError, match=r"ids go up to \d+, but .* vocab_size is 300"):
        bundle_of(directory)
    path = directory / "tokenizer.json"
    path.write_text(path.read_text()[:1000])
    with pytest.raises(TokenizerError, match="does not load"):
        bundle_of(directory)
