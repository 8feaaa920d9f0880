"""The compiler's part of the error catalogue: recipes (TS01xx) and checkpoints (TS02xx)."""

from __future__ import annotations

from dataclasses import dataclass

from tskernels.errors import TsError


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a recipe: its place (`r.yaml:12 limits.max_batch`), and how to fix it."""

    where: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}\n    fix: {self.remedy}"


class RecipeError(TsError):
    """Everything wrong with a recipe's keys and values, at once."""

    code = "TS0101"
    summary = "The recipe names unknown keys, or values that are illegal or contradict each other."

    def __init__(self, file: str, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        if len(problems) == 1:
            only = problems[0]
            super().__init__(only.message, remedy=only.remedy, where=only.where)
            return
        lines = "\n  ".join(str(problem) for problem in problems)
        super().__init__(
            f"{len(problems)} problems\n  {lines}",
            remedy="correct the keys above; docs/recipe.md lists every key",
            where=file,
        )


class RecipeNotFoundError(TsError):
    """No recipe at the path."""

    code = "TS0102"
    summary = "There is no recipe at the path, or it cannot be read."


class RecipeSyntaxError(TsError):
    """The file isn't one YAML mapping."""

    code = "TS0103"
    summary = "The recipe is not a well-formed YAML mapping (a tab, a duplicate key, a bad indent)."


class OverrideError(TsError):
    """A `--set` that isn't key=value."""

    code = "TS0104"
    summary = "A --set override is not of the form key.path=value, or its value is not YAML."


class CheckpointNotFoundError(TsError):
    """A path or distribution that the recipe names isn't there."""

    code = "TS0201"
    summary = "A checkpoint file, directory or distribution that the recipe names is missing."


class CheckpointDamagedError(TsError):
    """A file whose structure contradicts itself."""

    code = "TS0202"
    summary = "A checkpoint file is cut short or damaged."


class DigestMismatchError(TsError):
    """A file whose bytes aren't the expected ones."""

    code = "TS0203"
    summary = "A checkpoint file's SHA-256 differs from the expected one."


class TensorMismatchError(TsError):
    """The checkpoint's tensors aren't the model's."""

    code = "TS0204"
    summary = "The checkpoint has a tensor too many, one too few, or one of another shape."


class NonFiniteWeightError(TsError):
    """A weight holds NaN or infinity."""

    code = "TS0205"
    summary = "A weight of the checkpoint holds NaN or infinity."


class CheckpointUnsupportedError(TsError):
    """A well-formed checkpoint that this compiler cannot read."""

    code = "TS0206"
    summary = "The checkpoint uses an architecture, dtype, quantization or tokenizer not supported."


class ConfigError(TsError):
    """A config.json that isn't one."""

    code = "TS0207"
    summary = "A model config or another JSON file of the checkpoint cannot be understood."


class TokenizerError(TsError):
    """No tokenizer, or one that doesn't load."""

    code = "TS0208"
    summary = "The tokenizer is missing or does not load."


class ChatTemplateError(TsError):
    """No chat template, or one that doesn't compile."""

    code = "TS0209"
    summary = "The chat template is missing or does not compile, and the recipe wants chat."
