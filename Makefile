# Every target sets up what it needs; `make` alone lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One set of flags everywhere keeps one build cache. CGO_CFLAGS would change every C object, so it is never passed on.
export GOFLAGS := -trimpath -buildvcs=false
unexport CGO_CFLAGS

# The OpenBLAS that tests and benchmarks run against: the one pinned in .venv, or the caller's PLAIT_BLAS.
PLAIT_BLAS ?= $(shell cat .venv/blas 2>/dev/null)
export PLAIT_BLAS
export VIRTUAL_ENV := $(CURDIR)/.venv

STAGE := @internal/make/stage
# Packages that start goroutines or share memory are tested under the race detector by `make test`.
RACE_PACKAGES = $$(internal/make/race-packages)

.PHONY: help setup build generate test test-full test-race train bench lint fmt clean

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

generate: setup  ## write the generated files again
	@go generate ./...

test: setup  ## what CI runs: generated files, build, unit tests (OpenBLAS and built-in products), race detector
	@rm -f build/stages
	$(STAGE) generate internal/make/generate-check
	$(STAGE) build go build ./...
	$(STAGE) unit go test ./...
	$(STAGE) built-in env PLAIT_BLAS=none go test ./core/nn ./core/autograd ./examples/...
	$(STAGE) race go test -race -short $(RACE_PACKAGES)
	@internal/make/stage --summary

test-race: setup  ## every package under the race detector
	@go test -race ./...

test-full: setup lint test test-race  ## lint, test, test-race, and a minute of each fuzz target
	@internal/make/fuzz 60s

train: setup  ## train a small GPT on Go's own source, as examples/go/traingpt says
	@PLAIT_BLAS= go run ./examples/go/traingpt

bench: setup  ## measure, and write today's report to benchmarks/reports
	@go run ./benchmarks

lint: setup  ## gofmt, vet, staticcheck, C warnings as errors, ruff and mypy
	@internal/make/lint

fmt:  ## format the Go files
	@gofmt -w $$(find . -name '*.go' -not -path './.venv/*' -not -path './build/*')

clean:  ## remove what the targets made; the Go build cache stays
	@rm -rf .venv build dist
