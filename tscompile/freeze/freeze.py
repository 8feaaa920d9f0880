"""Writing the artifact: every file, its digest, and the manifest that seals them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from tscompile.checkpoint.tokenizer import TokenizerBundle
from tscompile.deployment import Deployment
from tscompile.freeze.certificate import certify
from tscompile.freeze.kernels import FrozenKernels
from tscompile.freeze.swap import staged
from tscompile.freeze.weights import Progress, write_weights
from tsruntime.artifact.digest import canonical_json
from tsruntime.artifact.launches import LAUNCHES, launches_bytes
from tsruntime.artifact.load import plan_bytes
from tsruntime.artifact.manifest import FileEntry, Manifest, manifest_bytes, seal
from tsruntime.artifact.proof.certificate import certificate_bytes
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.serving import Generation, ServingFile

_CONSUMED_PACKAGES = ("tscompile", "torch", "numpy", "safetensors", "tokenizers", "gguf")
"""Packages whose version can change the artifact's bytes."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """The folder being filled, and what has been written so far."""

    folder: Path
    files: dict[str, FileEntry]

    def put(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        self.files[name] = FileEntry.of(data)


def freeze(
    deployment: Deployment, kernels: FrozenKernels | None, destination: Path, progress: Progress
) -> Manifest:
    """Write the artifact of `deployment` to `destination`, whole or not at all.

    `kernels` are those of its plan; `progress` is called with each weight's name before it is
    written.
    """
    with staged(destination) as folder:
        stage = _Stage(folder, {})
        _write_plan(stage, deployment)
        if kernels is not None:
            _write_kernels(stage, kernels)
        _write_tokenizer(stage, deployment)
        weights = folder / "weights"
        weights.mkdir()
        written = write_weights(deployment.result.plan, deployment.checkpoint, weights, progress)
        stage.files.update({f"weights/{name}": entry for name, entry in written.items()})
        manifest = _manifest(stage, deployment)
        (folder / "manifest.json").write_bytes(manifest_bytes(manifest))
    return manifest


def _write_plan(stage: _Stage, deployment: Deployment) -> None:
    result, certificate = deployment.result, certify(deployment.request)
    check_proof(result.plan, certificate)
    stage.put("recipe.yaml", deployment.recipe.resolved().encode())
    stage.put("plan.json", plan_bytes(result.plan))
    stage.put("certificate.json", certificate_bytes(certificate))
    stage.put("plan.txt", result.text.encode())
    stage.put("kernels/pins.json", canonical_json([asdict(pin) for pin in result.pins]))


def _write_kernels(stage: _Stage, kernels: FrozenKernels) -> None:
    stage.put(LAUNCHES, launches_bytes(kernels.launches))
    for name, data in kernels.code.items():
        stage.put(name, data)


def _write_tokenizer(stage: _Stage, deployment: Deployment) -> None:
    plan, tokenizer = deployment.result.plan, deployment.checkpoint.tokenizer
    chat = deployment.recipe.chat is not False and tokenizer is not None
    served = ServingFile(
        name=plan.name,
        max_model_len=plan.limits.max_model_len,
        max_batch=plan.limits.max_batch,
        vocab_size=plan.vocab_size,
        world=plan.mesh.world,
        chat=chat,
        has_tokenizer=tokenizer is not None,
    )
    stage.put("serving.json", canonical_json(asdict(served)))
    if tokenizer is None:
        return
    stage.put("tokenizer/tokenizer.json", tokenizer.tokenizer_json.encode())
    stage.put("tokenizer/generation.json", canonical_json(asdict(_generation(tokenizer))))
    if chat:
        assert tokenizer.chat_template is not None  # the checkpoint was opened with chat wanted
        stage.put("tokenizer/chat_template.jinja", tokenizer.chat_template.encode())


def _generation(tokenizer: TokenizerBundle) -> Generation:
    return Generation(
        eos_token_ids=tokenizer.eos_token_ids,
        bos_token_id=tokenizer.bos_token_id,
        add_bos=tokenizer.add_bos,
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        temperature=tokenizer.temperature,
        top_p=tokenizer.top_p,
        top_k=tokenizer.top_k,
    )


def _manifest(stage: _Stage, deployment: Deployment) -> Manifest:
    plan = deployment.result.plan
    consumed = (
        (*_CONSUMED_PACKAGES, "triton") if plan.target.device == "cuda" else _CONSUMED_PACKAGES
    )
    versions: Mapping[str, str] = {name: version(name) for name in consumed}
    packs = {f"pack {given.pack.name}": given.pack.digest for given in deployment.packs}
    return seal(
        plan.name,
        asdict(plan.target),
        dict(sorted(stage.files.items())),
        dict(sorted((packs | dict(deployment.checkpoint.files)).items())),
        {**versions, "python": platform.python_version()},
    )
