#!/bin/bash
# Installs the package and the wheels of .whl below $1, on a machine with a GPU and no network.
set -e
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$1/wheels" .whl/*.whl
export PYTHONPATH="$1/wheels"
python3 -m pip install -q --no-build-isolation --no-deps --no-compile --no-cache-dir --target "$1/package" .
