# Every target sets up what it needs; `make` alone lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One set of flags everywhere keeps one build cache; programs whose code may lie anywhere are made of the same objects as the
# Python package's shared library. CGO_CFLAGS would change every C object, so it is never passed on.
export GOFLAGS := -trimpath -buildvcs=false -buildmode=pie
unexport CGO_CFLAGS
# Hundreds of tests start a Python, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# The OpenBLAS that tests and benchmarks run against: the one pinned in .venv, or the caller's PLAIT_BLAS.
PLAIT_BLAS ?= $(shell cat .venv/blas 2>/dev/null)
export PLAIT_BLAS
export VIRTUAL_ENV := $(CURDIR)/.venv

STAGE := @internal/make/stage
# Packages that start goroutines or share memory are tested under the race detector by `make test`.
RACE_PACKAGES = $$(internal/make/race-packages)
# The packages whose tests take longest begin first.
LONGEST = ./gpu ./tests_go ./core/op
# The tests have a GPU made of software compile thousands of small programs: without its optimiser, and for narrow vectors, that
# takes 0.6 of the time.
SOFTWARE_GPU = GALLIVM_PERF=nopt LP_NATIVE_VECTOR_WIDTH=128 PLAIT_TEST_DRIVERS="$$(internal/make/software-gpu --drivers)"
# What the compiled module of the Python package is made of.
SOURCES := $(shell find core gpu parallel capi setup.py pyproject.toml go.mod internal/tools -type f -not -name '*_test.go' -not -path '*/testdata/*')

.PHONY: help setup build extension generate test test-full test-gpu test-race test-python test-package fuzz train train-go bench library wheel sdist release release-check publish docs docs-serve test-docs lint fmt clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

setup: .venv/ready  ## check the machine and install what the tests need into .venv
	@internal/make/doctor
	@go mod download

.venv/ready: internal/tools/requirements.txt internal/make/venv
	@internal/make/doctor
	@internal/make/venv internal/tools/requirements.txt
	@touch $@

build: setup  ## compile every package and program
	@go build ./...

extension: setup .venv/extension  ## build the Python package in place, and make it importable in .venv
.venv/extension: .venv/ready $(SOURCES)
	@echo "building the Python package"
	@rm -f python/plait/_core.cpython-*.so # Python would prefer one that is named after its version
	@mkdir -p build
	@.venv/bin/python -m pip install -v --disable-pip-version-check --no-build-isolation --no-deps --editable . 2>&1 \
		| tee build/extension.log | sed -un 's/^ *plait: /  /p' || { cat build/extension.log >&2; exit 1; }
	@touch $@

generate: setup  ## write the generated files again
	@go generate ./...

.PHONY: software-gpu
software-gpu:  # the GPU made of software that the tests of gpu/ run on
	@internal/make/software-gpu

test: setup software-gpu  ## what CI runs: generated files, build, unit tests (OpenBLAS and built-in products), race detector, Python
	@rm -f build/stages
	$(STAGE) generate internal/make/generate-check
	$(STAGE) build go build ./...
	$(STAGE) unit env $(SOFTWARE_GPU) go test -vet=off -timeout 20m $(LONGEST) ./...
	$(STAGE) built-in env PLAIT_BLAS=none go test -vet=off ./core/nn ./core/autograd ./examples/...
	$(STAGE) race env $(SOFTWARE_GPU) go test -race -buildmode=default -short -vet=off -timeout 20m $(LONGEST) $(RACE_PACKAGES)
	$(STAGE) extension $(MAKE) --no-print-directory extension
	$(STAGE) python $(MAKE) --no-print-directory test-python
	@internal/make/stage --summary

test-race: setup  ## every package under the race detector
	@go test -race -buildmode=default -timeout 40m ./...

test-python: extension  ## the tests of the Python package, its examples and its documents
	@PLAIT_BLAS= .venv/bin/python -m pytest -n 2 --dist loadfile --max-worker-restart 0 -m "not slow"

test-package: extension  ## wheel and source distribution, each installed into an empty environment
	@PLAIT_BLAS= .venv/bin/python -m pytest -m slow

test-full: setup lint test-docs test test-race test-package  ## all of these, every program for CUDA, and a minute of each fuzz target
	@env $(SOFTWARE_GPU) go test ./gpu -all -translate -timeout 4h
	@go test ./parallel/process -all -timeout 1h
	@internal/make/fuzz 60s

test-gpu: setup  ## the tests of gpu/ on this machine's GPU, under each driver that has one, or under DRIVERS="cuda webgpu"
	@internal/make/test-gpu $(DRIVERS)

fuzz: extension  ## random tests beside PyTorch, which goes into an environment of its own: SEED=1 SECONDS=600 KINDS=operations,threads
	@internal/make/fuzz-venv
	@PLAIT_BLAS= PYTHONPATH=python:. build/fuzz-venv/bin/python -m tests_fuzz --seed $(or $(SEED),0) --seconds $(or $(SECONDS),600) $(if $(KINDS),--kinds $(KINDS)) $(ARGS)

train: extension  ## train a small GPT on the source of Python's standard library, as examples/gpt/one_device.py says
	@PLAIT_BLAS= .venv/bin/python examples/gpt/one_device.py $(ARGS)

train-go: setup  ## train a small GPT on Go's own source, as examples/go/traingpt says
	@PLAIT_BLAS= go run ./examples/go/traingpt

bench: setup  ## measure, and write today's report to benchmarks/reports
	@go run ./benchmarks

library:  ## build the shared library for C programs, and its header, into dist
	@internal/make/library dist

wheel: setup  ## build the wheel, which serves Python 3.11 and newer, into dist
	@internal/make/wheel dist

sdist: setup  ## build the source distribution into dist
	@internal/make/sdist dist

release: setup  ## build all that a release needs into dist: wheel, sdist, C library, contents and licences, notes, checksums
	@internal/make/release dist

release-check:  ## fail unless the commit can be published: clean, tagged with the version, and in the changelog with a date
	@internal/make/release --check

publish:  ## put what make release left in dist onto the forge's page of releases and on PyPI; ARGS=--dry-run only looks at it
	@internal/make/publish $(ARGS)

docs:  ## build the documentation site into build/site; a warning is an error
	@internal/make/docs

docs-serve:  ## show the documentation site at http://127.0.0.1:8000, and build it again when a page changes
	@internal/make/docs --serve

test-docs:  ## build the documentation site and look at it in Chrome or Chromium: search, phones, light and dark; CHROME_BIN names one
	@internal/make/test-docs

lint: setup  ## gofmt, vet, staticcheck, C warnings as errors, ruff, mypy, the documentation site
	@internal/make/lint

fmt: setup  ## format the Go and Python files
	@gofmt -w $$(find . -name '*.go' -not -path './.venv/*' -not -path './build/*')
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -r internal/tools/requirements-lint.txt
	@.venv/bin/ruff format --quiet .
	@.venv/bin/ruff check --quiet --fix-only .

clean:  ## remove what the targets made; the Go build cache stays
	@rm -rf .venv build dist python/plait.egg-info python/plait/_core.*.so
