# ExecWarden. `make help` lists what there is to do.

SHELL := /bin/bash
GO    ?= go
BIN   := $(CURDIR)/.bin
MODULES := schemas libs services tools

.PHONY: help
help: ## this list
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: build
build: ## the execwarden program and the sandbox's worker, in .bin
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/jsworker ./services/runtime/cmd/jsworker
	@CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/shim ./services/environments/cmd/shim
	@digest=$$(sha256sum $(BIN)/jsworker 2>/dev/null || shasum -a 256 $(BIN)/jsworker); \
	  CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/execwarden \
	    -ldflags "-X github.com/execwarden/execwarden/tools/execwarden/internal/up.workerDigest=$${digest%% *}" ./tools/execwarden

.PHONY: run
run: build ## the sample: a webhook, a hosted run, an approval, the proof
	@CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/sample ./tools/sample/cmd/sample
	@$(BIN)/sample -dir $(CURDIR)/.run -execwarden $(BIN)/execwarden $(SAMPLEFLAGS)

.PHONY: test
test: ## every test; it finds or starts its own Postgres
	@# The longest first: it waits more than it works, so the others run beside it.
	$(GO) test -count=1 $(TESTFLAGS) ./tools/execwarden/internal/up ./schemas/... ./libs/... ./services/... ./tools/...

.PHONY: check
check: fmt vet lint arch gen-check tidy-check ## everything but the tests that must hold before a commit

.PHONY: fmt
fmt: ## are all files formatted
	@out=$$(gofmt -l schemas libs services tools); if [ -n "$$out" ]; then echo "not formatted:"; echo "$$out"; exit 1; fi

.PHONY: vet
vet: ## go vet
	$(GO) vet ./schemas/... ./libs/... ./services/... ./tools/...

.PHONY: lint
lint: $(BIN)/staticcheck ## staticcheck
	$(BIN)/staticcheck ./schemas/... ./libs/... ./services/... ./tools/...

$(BIN)/staticcheck: tools/pinned/go.mod tools/pinned/go.sum
	@mkdir -p $(BIN)
	GOWORK=off GOBIN=$(BIN) $(GO) -C tools/pinned install tool

.PHONY: arch
arch: ## who may import whom, the shape of services, the files of the walk
	$(GO) run ./tools/archcheck

.PHONY: gen
gen: ## what follows from the catalogue of events
	$(GO) run ./tools/schemagen

.PHONY: gen-check
gen-check: ## is what follows from the catalogue current
	$(GO) run ./tools/schemagen -check

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for m in $(MODULES); do (cd $$m && GOWORK=off $(GO) mod tidy) || exit 1; done
	$(GO) work sync

.PHONY: tidy-check
tidy-check: ## does each module build alone, with a tidy go.mod
	@for m in $(MODULES); do echo "$$m alone"; (cd $$m && GOWORK=off $(GO) build ./... && GOWORK=off $(GO) mod tidy -diff) || exit 1; done
	@if grep -q '^require' schemas/go.mod; then echo "schemas/go.mod has a require line"; exit 1; fi

.PHONY: chaos
chaos: ## kill -9 at 20 random moments of the sample run (about 1 minute)
	EXECWARDEN_TEST_KILLS=20 $(GO) test -count=1 -run 'Killed' -v ./tools/execwarden/internal/up

.PHONY: kill-mcp
kill-mcp: ## kill -9 at KILLS random moments (default 100) under 16 MCP clients; no result may be missing in the ledger (about 8 minutes)
	EXECWARDEN_TEST_MCP_KILLS=$(or $(KILLS),100) $(GO) test -count=1 -timeout 60m -run 'MCPKilled' -v ./tools/execwarden/internal/up

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (default 20s; about 8 minutes in all)
	@for target in $$(grep -rlE '^func Fuzz' --include=*_test.go schemas libs services tools | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9]*' $$target/*_test.go | sed 's/func //'); do \
	    echo "$$target $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(or $(FUZZTIME),20s) ./$$target || exit 1; done; done

# What stands between a hostile script and the service, with a count that takes about 10 seconds.
RUNTIME_FUZZ := services/runtime/internal/sandbox/wire:FuzzReceive:400000x services/runtime/internal/sandbox:FuzzSession:150000x \
  services/runtime/internal/engine:FuzzSource:12000x libs/egress:FuzzInspect:150000x

.PHONY: fuzz-runtime
fuzz-runtime: ## the runtime's fuzz targets for FUZZTIME each (default 5m; "counted" is about 10 s each)
	@for each in $(RUNTIME_FUZZ); do IFS=: read -r dir target count <<<"$$each"; echo "$$dir $$target"; \
	  $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime "$(if $(filter counted,$(FUZZTIME)),$$count,$(or $(FUZZTIME),5m))" ./$$dir || exit 1; done

.PHONY: bench-broker
bench-broker: ## what the broker adds to a call, decides among many grants, and takes to revoke (about 3 minutes)
	$(GO) test -run '^$$' -bench Decision ./services/toolbroker/internal/control
	$(GO) run ./tools/bench/cmd/bench-path --transport tcp --callers 1,16,64 --revokes 30 --in-flight 64

.PHONY: bench-env
bench-env: ## a command on a connected machine beside fork/exec, bubblewrap and docker exec; attach; revoke; and from an MCP client and back, with output in MB/s (about two minutes)
	$(GO) test -run '^$$' -bench . -benchtime $(or $(BENCHTIME),200x) ./services/environments/internal/host
	$(GO) test -run '^$$' -bench BenchmarkMachine -benchtime $(or $(BENCHTIME_WHOLE),20x) ./tools/execwarden/internal/up

.PHONY: bench-mcp
bench-mcp: ## a tool call over MCP beside the same call made directly, and a revocation under 1,000 sessions (about 4 minutes)
	$(GO) run ./tools/bench/cmd/bench-mcp $(BENCHFLAGS)

.PHONY: bench-path
bench-path: ## the call path beside the bare appends (about 90 seconds)
	$(GO) run ./tools/bench/cmd/bench-path

.PHONY: bench-runtime
bench-runtime: build ## script workers beside node's vm and isolated-vm, and what a hostile neighbour costs (about 3 minutes)
	$(GO) run ./tools/bench/cmd/bench-runtime -worker $(BIN)/jsworker $(BENCHFLAGS)

.PHONY: conformance
conformance: build ## the official MCP suite in all its legs, Inspector and TypeScript clients (needs npm; about three minutes)
	@CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/everything-server github.com/modelcontextprotocol/go-sdk/conformance/everything-server
	@$(GO) run ./tools/conformance/cmd/conformance -execwarden $(BIN)/execwarden -everything $(BIN)/everything-server -cache $(BIN)/npm $(CONFORMANCEFLAGS)

.PHONY: compose-check
compose-check: ## is docker-compose.yml valid, and does the image build from files built outside (needs Docker)
	docker compose config --quiet
	deploy/stage.sh
	docker compose build

.PHONY: clean
clean: ## the sample's data and what was built
	rm -rf "$$(readlink -f .run)" .run .bin
