"""A kernel pack for tests: a small library in C++, with the functions that a test asks for."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tskernels.packs import sources
from tskernels.packs.compile import described
from tskernels.packs.manifest import Signature, write_pack

HEADERS = Path(sources.__file__).parent

SUM = """
#include <cstdio>
#include "kernel_pack.h"
TS_PACK_EXPORT int32_t ts_pack_abi() { return TS_PACK_ABI; }
// y = scale * (a + b), each of `count` floats
TS_PACK_EXPORT int32_t tiny_sum(const uint64_t* addresses, const int64_t* integers,
                                const double* reals, int32_t device, void* stream, char* error,
                                int64_t error_bytes) {
  if (integers[0] < 0) {
    std::snprintf(error, error_bytes, "count is %d on stream %d of device %d",
                  int(integers[0]), int(reinterpret_cast<intptr_t>(stream)), int(device));
    return 7;
  }
  auto* a = reinterpret_cast<const float*>(addresses[0]);
  auto* b = reinterpret_cast<const float*>(addresses[1]);
  auto* y = reinterpret_cast<float*>(addresses[2]);
  for (int64_t i = 0; i < integers[0]; ++i) y[i] = float(reals[0]) * (a[i] + b[i]);
  return 0;
}
"""
SUM_FUNCTIONS = {"tiny_sum": Signature(3, 1, 1)}


def library(folder: Path, source: str) -> bytes:
    """The shared object of a source that includes kernel_pack.h."""
    file, out = folder / "library.cpp", folder / "library.so"
    file.write_text(source)
    words = ["c++", "-std=c++20", "-shared", "-fPIC", f"-I{HEADERS}", str(file), "-o", str(out)]
    subprocess.run(words, check=True)
    return out.read_bytes()


def empty_functions(names: Mapping[str, Signature]) -> str:
    """A source whose functions do nothing."""
    parameters = "const uint64_t*, const int64_t*, const double*, int32_t, void*, char*, int64_t"
    return "\n".join(
        [
            '#include "kernel_pack.h"',
            "TS_PACK_EXPORT int32_t ts_pack_abi() { return TS_PACK_ABI; }",
            *(f"TS_PACK_EXPORT int32_t {name}({parameters}) {{ return 0; }}" for name in names),
        ]
    )


def pack(
    folder: Path, name: str, functions: Mapping[str, Signature], source: str, arch: str = "sm_90"
) -> Path:
    """A pack in `folder`; where it is."""
    data = library(folder, source)
    place = folder / name
    write_pack(place, described(name, "1.2", arch, data, functions, {"c++": "any"}), data)
    return place
