"""What a person reads about a recipe that is wrong: line, key, value and remedy, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tscompile.errors import RecipeError, RecipeNotFoundError, RecipeSyntaxError
from tscompile.recipe import load

MINIMAL = "name: a\nmodel:\n  source: somewhere\n"


def refuse(directory: Path, text: str, *overrides: str) -> RecipeError:
    path = directory / "r.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        load(path, overrides)
    return caught.value


def the_only(directory: Path, text: str) -> tuple[str, str, str]:
    (problem,) = refuse(directory, MINIMAL + text).problems
    where = problem.where.removeprefix(f"{directory / 'r.yaml'}:")
    return where, problem.message, problem.remedy


def test_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeNotFoundError, match="No such file") as caught:
        load(tmp_path / "none.yaml")
    assert "none.yaml" in str(caught.value)
    with pytest.raises(RecipeNotFoundError, match="directory"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("name: a\nmodel:\n\tsource: b\n", 3, "a tab at column 1; YAML indents with spaces"),
        ("name: [\n", 2, "not YAML"),
        ("name: a\n---\nname: b\n", 2, "single document"),
        ("name: a\n model: b\n", 2, "not YAML"),
        ("name: *b\n", 1, "undefined alias"),
    ],
)
def test_yaml_that_does_not_parse(tmp_path: Path, text: str, line: int, message: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(RecipeSyntaxError, match=message) as caught:
        load(path)
    assert caught.value.where == f"{path}:{line}"


@pytest.mark.parametrize(
    ("text", "kind"), [("", "empty"), ("- a\n", "a list"), ("a\n", "a single")]
)
def test_yaml_that_is_no_mapping(tmp_path: Path, text: str, kind: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(RecipeSyntaxError, match=f"a recipe is a mapping of keys, this is {kind}"):
        load(path)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(b"name: \xff\n")
    with pytest.raises(RecipeSyntaxError, match="not UTF-8"):
        load(path)


@pytest.mark.parametrize(
    ("text", "where", "remedy"),
    [
        ("limit: {}\n", "4 limit", "did you mean limits?"),
        ("limits:\n  max_batches: 1\n", "5 limits.max_batches", "did you mean limits.max_batch?"),
        ("page_size: 1\n", "4 page_size", "did you mean kv_cache.page_size?"),
        (
            "limits:\n  max_num_seqs: 1\n",
            "5 limits.max_num_seqs",
            "vLLM's --max-num-seqs is limits.max_batch here",
        ),
        (
            "parallel:\n  zzz: 1\n",
            "5 parallel.zzz",
            "keys of parallel: world, attn_tp, dense_tp, moe_tp, moe_ep",
        ),
    ],
)
def test_unknown_keys_name_the_nearest(tmp_path: Path, text: str, where: str, remedy: str) -> None:
    found = the_only(tmp_path, text)
    assert found == (where, f"unknown key {where.rpartition('.')[2].split()[-1]!r}", remedy)


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        (
            "kv_cache:\n  page_size: -16\n",
            "5 kv_cache.page_size",
            "-16 is out of range: it must be above 0",
        ),
        ("kv_cache:\n  pages: 1\n", "5 kv_cache.pages", "1 is out of range: it must be at least 2"),
        ("limits: {max_batch: '8'}\n", "4 limits.max_batch", "'8' is not a whole number"),
        ("limits: {max_batch: true}\n", "4 limits.max_batch", "True is not a whole number"),
        ("limits: {max_batch: 1.5}\n", "4 limits.max_batch", "1.5 is not a whole number"),
        ("dtype: fp32\n", "4 dtype", "'fp32' is not one of float32, bfloat16, float16, float64"),
        ("buckets:\n  decode: []\n", "5 buckets.decode", "[] has fewer than 1 entries"),
        (
            "buckets:\n  extend:\n  - [256, 8]\n  - [1, 0]\n",
            "7 buckets.extend[1][1]",
            "0 is out of range: it must be above 0",
        ),
        (
            "buckets: {all_logits: [[8, 16]]}\n",
            "4 buckets.all_logits",
            "[8, 16] has more sequences (16) than tokens (8)",
        ),
        ("limits: [1]\n", "4 limits", "[1] is not a mapping"),
        ("chat: true\n", "4 chat", "True is not a mapping"),
        (
            "chat:\n  tool_parser: hermes\n",
            "5 chat.tool_parser",
            "'hermes' is not a known tool parser (known: none yet)",
        ),
        ("target: {arch: sm_90}\n", "4 target.arch", "'sm_90' is not a arch of device cpu"),
        ("kv_cache: {memory: 8 gigs}\n", "4 kv_cache.memory", "'8 gigs' is not a size"),
        (
            "kv_cache: {memory: 8GiB, pages: 500}\n",
            "4 kv_cache.memory",
            "both memory '8GiB' and pages 500 are given",
        ),
        (
            "limits:\n  max_batch: 1\n  max_batch: 2\n",
            "6 limits.max_batch",
            "the key is there twice, first on line 5",
        ),
        ("tokenizer: &x [*x]\n", "4 tokenizer[0]", "an alias refers to itself"),
    ],
)
def test_illegal_values(tmp_path: Path, text: str, where: str, message: str) -> None:
    problem = refuse(tmp_path, MINIMAL + text).problems[0]
    assert problem.where == f"{tmp_path / 'r.yaml'}:{where}"
    assert problem.message == message


@pytest.mark.parametrize(
    ("parallel", "key", "message", "remedy"),
    [
        (
            "{world: 3, attn_tp: 2}",
            "attn_tp",
            "attn_tp 2 does not divide world 3",
            "choose a size that divides 3: 1, 3",
        ),
        (
            "{world: 12, attn_tp: 4, dense_tp: 6}",
            "dense_tp",
            "size 6 does not nest with attn_tp 4: neither divides the other",
            "choose a size that nests: 1, 2, 4, 12",
        ),
        (
            "{world: 4, moe_tp: 2, moe_ep: 4}",
            "moe_ep",
            "moe_tp * moe_ep = 8 does not divide world 4",
            "choose a size that divides 4: 1, 2, 4",
        ),
    ],
)
def test_group_sizes_that_do_not_fit(
    tmp_path: Path, parallel: str, key: str, message: str, remedy: str
) -> None:
    assert the_only(tmp_path, f"parallel: {parallel}\n") == (f"4 parallel.{key}", message, remedy)


@pytest.mark.parametrize(
    ("text", "key", "message", "remedy"),
    [
        (
            "kv_cache: {pages: 5}",
            "limits.max_model_len",
            (
                "max_model_len 2048 is beyond what the KV pool can hold: "
                "5 pages of 16 tokens, one of them the null page, hold 64"
            ),
            "lower limits.max_model_len to 64, or give the pool 129 pages or more",
        ),
        (
            "kv_cache: {host_pages: 5, host_memory: 1GiB}",
            "kv_cache.host_memory",
            "both host_memory '1GiB' and host_pages 5 are given",
            "keep one of kv_cache.host_memory and kv_cache.host_pages",
        ),
        (
            "limits: {max_batch: 9}\nbuckets: {decode: [1, 8], extend: [[256, 9]]}",
            "limits.max_batch",
            "max_batch 9 is above the largest decode bucket 8",
            "add 9 to buckets.decode, or lower limits.max_batch to 8",
        ),
        (
            "buckets: {extend: [[128, 8]]}",
            "buckets.extend",
            "the largest extend bucket has 128 tokens but token_budget is 256",
            "add [256, 8] to buckets.extend, or set limits.token_budget to 128",
        ),
        (
            "buckets: {extend: [[256, 4]]}",
            "buckets.extend",
            "the largest extend bucket [256, 4] holds 4 sequences but max_batch is 8",
            "make it [256, 8], or lower limits.max_batch to 4",
        ),
        (
            "limits: {token_budget: 23}",
            "limits.token_budget",
            (
                "token_budget 23 leaves no room to prefill beside a full batch: "
                "max_batch 8 + page_size 16 = 24"
            ),
            "raise limits.token_budget to 24 or more, or lower limits.max_batch",
        ),
    ],
)
def test_keys_that_contradict_each_other(
    tmp_path: Path, text: str, key: str, message: str, remedy: str
) -> None:
    where, *rest = the_only(tmp_path, text + "\n")
    assert where.split()[-1] == key
    assert rest == [message, remedy]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{}", "neither is given"),
        ("{source: a, config: b, weights: dummy}", "both model.source and model.config are given"),
        ("{config: b}", "model.config has no weights"),
        ("{source: a, seed: 1}", "model.seed 1 belongs to model.config"),
        ("{source: a, weights: dummy}", "model.weights 'dummy' belongs to model.config"),
        ("{config: b, weights: dummy, sha256: {x: " + "a" * 64 + "}}", "no files to check"),
        ("{source: a.gguf, sha256: abc}", "'abc' is not a SHA-256"),
    ],
)
def test_a_model_is_a_source_or_a_config(tmp_path: Path, model: str, message: str) -> None:
    problems = refuse(tmp_path, f"name: a\nmodel: {model}\n").problems
    assert any(message in problem.message for problem in problems)


def test_a_cuda_target_names_its_hardware(tmp_path: Path) -> None:
    found = {p.message for p in refuse(tmp_path, MINIMAL + "target: {device: cuda}\n").problems}
    assert found == {"arch is required", "topology is required"}


def test_everything_wrong_is_reported_at_once(tmp_path: Path) -> None:
    text = (
        "nam: a\n"
        "model: {sorce: x}\n"
        "dtype: int8\n"
        "parallel: {world: 3, attn_tp: 2}\n"
        "limits: {max_batch: -1}\n"
        "limits: {}\n"
        "kv_cache: {pages: 2, memory: 1GiB}\n"
    )
    error = refuse(tmp_path, text, "buckets.decode=[0]")
    places = [p.where.replace(f"{tmp_path / 'r.yaml'}:", "") for p in error.problems]
    assert sorted(places) == sorted(
        [
            "6 limits",
            "1 name",
            "1 nam",
            "2 model.sorce",
            "3 dtype",
            "5 limits.max_batch",
            "--set buckets.decode[0]",
            "4 parallel.attn_tp",
            "7 kv_cache.memory",
        ]
    )
    shown = str(error)
    assert shown.startswith("error[TS0101]: ")
    assert all(str(problem) in shown for problem in error.problems)
