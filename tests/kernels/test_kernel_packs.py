"""Kernel packs: what is read back is what was written, calls are data, faults are named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_packs import SUM, SUM_FUNCTIONS, library, pack

from tskernels.packs.compile import compile_pack, described
from tskernels.packs.errors import PackCallFailed, PackDamaged, PackMisfit, PackNotBuilt
from tskernels.packs.library import PackLibrary, Place
from tskernels.packs.manifest import MANIFEST, Signature, digest_of, read_pack
from tskernels.packs.sources import FLASHINFER_FA3, PackSource

HERE = Place(device=3, stream=5)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("pack"), "tiny", SUM_FUNCTIONS, SUM)


@pytest.fixture
def copied(tiny: Path, tmp_path: Path) -> Path:
    place = tmp_path / "copy"
    place.mkdir()
    for file in tiny.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    return place


def test_a_pack_is_read_back_and_named_by_its_librarys_digest(tiny: Path) -> None:
    found, data = read_pack(tiny)
    assert (found.name, found.version, found.arch) == ("tiny", "1.2", "sm_90")
    assert found.functions == SUM_FUNCTIONS
    assert found.digest == digest_of(data) == digest_of((tiny / "tiny.so").read_bytes())


def test_an_altered_library_is_refused_with_both_digests(copied: Path) -> None:
    data = bytearray((copied / "tiny.so").read_bytes())
    data[len(data) // 2] ^= 1
    (copied / "tiny.so").write_bytes(data)
    sealed = json.loads((copied / MANIFEST).read_text())["digest"]
    with pytest.raises(PackDamaged, match=f"sha256 {digest_of(bytes(data))}, .* says {sealed}"):
        read_pack(copied)


def test_what_is_no_pack_is_refused_by_name(copied: Path, tmp_path: Path) -> None:
    with pytest.raises(PackDamaged, match=r"pack\.json does not exist"):
        read_pack(tmp_path / "nowhere")
    fields = json.loads((copied / MANIFEST).read_text())
    (copied / "tiny.so").unlink()
    with pytest.raises(PackDamaged, match=r"tiny\.so is missing"):
        read_pack(copied)
    for text, said in (
        ("{", "is not JSON"),
        ("[1]", "has schema version None, this version reads 1"),
        (json.dumps(fields | {"schema_version": 9}), "has schema version 9"),
        (json.dumps({k: v for k, v in fields.items() if k != "arch"}), "does not fit its schema"),
    ):
        (copied / MANIFEST).write_text(text)
        with pytest.raises(PackDamaged, match=said):
            read_pack(copied)


def test_a_call_passes_addresses_integers_and_reals(tiny: Path) -> None:
    _, data = read_pack(tiny)
    a, b, y = torch.randn(7), torch.randn(7), torch.full((8,), 9.0)
    addresses = [x.data_ptr() for x in (a, b, y)]
    run = PackLibrary("tiny", data).bind("tiny_sum", addresses, [7], [0.5], HERE)
    run()
    assert torch.equal(y[:7], 0.5 * (a + b))
    assert y[7] == 9
    a.zero_()
    run()  # a bound call reads what lies there then
    assert torch.equal(y[:7], 0.5 * b)


def test_a_call_that_fails_says_what_the_function_said(tiny: Path) -> None:
    _, data = read_pack(tiny)
    run = PackLibrary("tiny", data).bind("tiny_sum", [0, 0, 0], [-2], [1.0], HERE)
    with pytest.raises(PackCallFailed, match="tiny: count is -2 on stream 5 of device 3"):
        run()


def test_a_function_that_is_not_there_is_named(tiny: Path) -> None:
    _, data = read_pack(tiny)
    with pytest.raises(PackMisfit, match="pack tiny has no function tiny_product"):
        PackLibrary("tiny", data).bind("tiny_product", [], [], [], HERE)
    with pytest.raises(PackMisfit, match="pack tiny has no function tiny_product"):
        described("tiny", "1", "sm_90", data, {"tiny_product": Signature(0, 0, 0)}, {})


def test_another_interface_is_refused_with_both_numbers(tmp_path: Path) -> None:
    other = library(tmp_path, SUM.replace("return TS_PACK_ABI;", "return 41;"))
    with pytest.raises(PackMisfit, match="tiny has binary interface 41, this runtime calls 1"):
        PackLibrary("tiny", other)
    nameless = library(tmp_path, "extern int nothing;")
    with pytest.raises(PackMisfit, match="tiny has no function ts_pack_abi"):
        PackLibrary("tiny", nameless)
    with pytest.raises(PackDamaged, match="library of kernel pack tiny cannot be loaded"):
        PackLibrary("tiny", b"no library")


@pytest.fixture
def source(tmp_path: Path) -> PackSource:
    """One that includes the headers of a package that is installed here."""
    file = tmp_path / "tiny.cu"
    file.write_text(SUM)
    return PackSource("tiny", file, SUM_FUNCTIONS, "click", "click", ("inner",), {"sm_90": "90a"})


def fake_nvcc(home: Path, body: str) -> None:
    """A compiler that says its version, or else does `body`."""
    (home / "bin").mkdir()
    path = home / "bin" / "nvcc"
    version = 'if [ "$1" = --version ]; then echo "release 13.0, V13.0.88"; exit; fi'
    path.write_text(f"#!/bin/bash\n{version}\n{body}\n")
    path.chmod(0o755)


def test_a_pack_is_compiled_for_its_architecture_against_its_package(
    source: PackSource, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvcc(tmp_path, f'echo "$@" > {tmp_path}/words; cp {tiny}/tiny.so "${{@: -1}}"')
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    made, data = compile_pack(source, "sm_90")
    assert data == (tiny / "tiny.so").read_bytes()
    assert made.digest == digest_of(data)
    assert made.built_with == {"click": made.version, "nvcc": "13.0.88"}
    words = (tmp_path / "words").read_text().split()
    assert "-gencode=arch=compute_90a,code=sm_90a" in words
    assert any(word.startswith("-I") and word.endswith("/click/inner") for word in words)


def test_what_keeps_a_pack_from_being_built_is_named(
    source: PackSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PackMisfit, match="pack tiny is for sm_90, not sm_80"):
        compile_pack(source, "sm_80")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(PackNotBuilt, match=f"no nvcc in CUDA_HOME {tmp_path}"):
        compile_pack(source, "sm_90")
    fake_nvcc(tmp_path, 'echo "tiny.cu(1): error: what is this" >&2; exit 2')
    with pytest.raises(PackNotBuilt, match=r"ended with 2 on .* tiny: tiny\.cu\(1\): error: what"):
        compile_pack(source, "sm_90")
    absent = replace(source, package="no-such-package-here")
    with pytest.raises(PackNotBuilt, match="headers of no-such-package-here, which is not"):
        compile_pack(absent, "sm_90")


def test_the_sources_that_ship_are_there() -> None:
    text = FLASHINFER_FA3.source.read_text()
    assert all(f"int32_t {function}(" in text for function in FLASHINFER_FA3.functions)
