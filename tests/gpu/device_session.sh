#!/bin/bash
# Prepares the package on a machine with a GPU and without a network: wheels lie in .whl.
set -e
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$1" .whl/*.whl
export PYTHONPATH="$1"
python3 -m pip install -q --no-build-isolation --no-deps --no-compile --no-cache-dir --target "$1" .
