"""Compiling a kernel pack by nvcc, which needs no GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from tskernels.packs.errors import PackMisfit, PackNotBuilt
from tskernels.packs.library import PackLibrary
from tskernels.packs.manifest import Pack, Signature, digest_of
from tskernels.packs.sources import PackSource

_FLAGS = (
    "-std=c++20",
    "-O3",
    "-DNDEBUG",
    "--shared",
    "-Xcompiler=-fPIC,-fvisibility=hidden",
    "-Xcompiler=-static-libstdc++,-static-libgcc",  # it is loaded where they may be older,
    "--cudart=static",  # and where CUDA's own library is another
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
)


def compile_pack(source: PackSource, arch: str) -> tuple[Pack, bytes]:
    """The pack of `source` for `arch`, and its library; minutes of one core.

    PackMisfit where it cannot be built for `arch`; PackNotBuilt where anything else is missing.
    """
    if arch not in source.code:
        raise PackMisfit(
            f"kernel pack {source.name} is for {', '.join(source.code)}, not {arch}",
            remedy="choose one of those architectures",
        )
    nvcc, found = _nvcc(), _version(source)
    with tempfile.TemporaryDirectory(prefix="tscompile-pack-") as folder:
        library = Path(folder) / "library.so"
        code = source.code[arch]
        words = [
            *(nvcc, *_FLAGS, f"-gencode=arch=compute_{code},code=sm_{code}", *source.flags),
            *(f"-I{path}" for path in _headers(source)),
            *(str(source.source), "-o", str(library)),
        ]
        _run(source.name, words)
        data = library.read_bytes()
    versions = {source.package: found, "nvcc": _nvcc_version(nvcc)}
    return described(source.name, found, arch, data, source.functions, versions), data


def described(
    name: str,
    release: str,
    arch: str,
    library: bytes,
    functions: Mapping[str, Signature],
    built_with: Mapping[str, str],
) -> Pack:
    """The manifest of a library, which is loaded to see that it holds every function."""
    loaded = PackLibrary(name, library)
    for function in functions:
        if function not in loaded:
            raise PackMisfit(
                f"kernel pack {name} has no function {function}",
                remedy="export it with TS_PACK_EXPORT of kernel_pack.h",
            )
    return Pack(name, release, arch, digest_of(library), functions, built_with)


def _nvcc() -> str:
    home = os.environ.get("CUDA_HOME")
    found = shutil.which("nvcc", path=f"{home}/bin" if home else None)
    if found is None:
        place = f"in CUDA_HOME {home}" if home else "on PATH"
        raise PackNotBuilt(
            f"there is no nvcc {place}", remedy="install the CUDA toolkit, or set CUDA_HOME to it"
        )
    return found


def _version(source: PackSource) -> str:
    try:
        return version(source.package)
    except PackageNotFoundError:
        raise PackNotBuilt(
            f"kernel pack {source.name} includes headers of {source.package}, which is not"
            " installed",
            remedy=f"pip install --no-deps {source.package}",
        ) from None


def _headers(source: PackSource) -> tuple[Path, ...]:
    spec = find_spec(source.module)  # the package is not imported
    assert spec is not None, "an installed package can be found"
    assert spec.origin is not None, "it is a regular package"
    return tuple(Path(spec.origin).parent / path for path in source.headers)


def _nvcc_version(nvcc: str) -> str:
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    return found.group(1) if found else text.strip()


def _run(name: str, words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        first = errors[0] if errors else done.stderr.strip()[-200:]
        raise PackNotBuilt(
            f"nvcc ended with {done.returncode} on kernel pack {name}: {first}",
            remedy="use the versions that docs/packs.md names",
        )
