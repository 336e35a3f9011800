package tests_go

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/coretest"
)

// eachFunc calls fn for every function of the library's own Go files.
func eachFunc(t *testing.T, folders []string, fn func(path string, f *ast.FuncDecl, comments string)) {
	t.Helper()
	for _, folder := range folders {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					comments := ""
					if f.Doc != nil {
						for _, c := range f.Doc.List {
							comments += c.Text + "\n"
						}
					}
					fn(filepath.ToSlash(name), f, comments)
				}
			}
			return err
		}))
	}
}

// goroutines lists the functions that start goroutines, with why no panic on these ends the process.
var goroutines = map[string]string{
	"core/storage.go giveBack":                             "recovers: it calls the owner of memory that was wrapped",
	"core/data/loader.go Start":                            "waits for workers alone",
	"core/data/map_source.go newMapSource":                 "the caller's code runs under recovered",
	"core/data/map_source.go work":                         "the caller's code runs under recovered",
	"core/data/iterable_source.go newIterableSource":       "the caller's code runs under recovered",
	"core/backend/cache.go Put":                            "waits for events and gives memory back, with no code of the caller's",
	"core/backend/stream.go enqueue":                       "the worker recovers from what it runs",
	"core/backend/stream.go rouseLater":                    "wakes a worker, with no code of the caller's",
	"core/backend/wait.go UntilFor":                        "ends a wait, with no code of the caller's",
	"gpu/driver_thread.go startDriverThread":               "serve recovers",
	"gpu/driver_thread.go serve":                           "recovers",
	"parallel/collective/relay.go add":                     "runs no code of the caller's",
	"parallel/collective/relay.go run":                     "runs no code of the caller's",
	"parallel/collective/round.go limit":                   "ends a collective's wait, with no code of the caller's",
	"parallel/collective/join.go receive":                  "writes a file, with no code of the caller's",
	"parallel/collective/fault.go record":                  "writes a file, with no code of the caller's",
	"parallel/collective/fault.go awaitRecords":            "writes a file, with no code of the caller's",
	"parallel/collective/straggler.go warnOf":              "recovers",
	"parallel/collective/pair.go match":                    "ends a send's wait, with no code of the caller's",
	"parallel/collective/pair_across.go sendAcross":        "ends a send's wait, with no code of the caller's",
	"parallel/collective/join.go damaged":                  "removes a process, with no code of the caller's",
	"parallel/collective/wire_job.go launch":               "moves data, with no code of the caller's",
	"parallel/collective/wire_transfer.go begin":           "marks late processes as lost, with no code of the caller's",
	"parallel/collective/wire_transfer.go then":            "moves data, with no code of the caller's",
	"parallel/collective/wire_transfer.go runUnits":        "moves data, with no code of the caller's",
	"parallel/collective/sharing.go receive":               "opens memory, with no code of the caller's",
	"parallel/collective/sharing.go offer":                 "opens memory, with no code of the caller's",
	"parallel/collective/relay.go joinAll":                 "runs no code of the caller's",
	"parallel/collective/wait_graph.go watch":              "looks for deadlocks, with no code of the caller's",
	"parallel/collective/work.go failOutputs":              "waits for events and marks tensors",
	"gpu/transfer.go parallelCopy":                         "copies memory",
	"gpu/internal/hostcuda/compile.go Compile":             "runs the compiler, in tests",
	"parallel/ddp/paramserver.go newParamServer":           "serve recovers",
	"parallel/collective/spawn.go runRanks":                "recovers",
	"parallel/process/watched.go Lost":                     "fails operations, with no code of the caller's",
	"capi/bind/collective.go WorldJoin":                    "recovers",
	"parallel/process/process.go exchange":                 "exchanges messages, with no code of the caller's",
	"parallel/internal/control/channel.go goLocked":        "serves connections, with no code of the caller's",
	"parallel/internal/control/channel.go closeWhenDone":   "closes a connection",
	"parallel/internal/control/channel.go wait":            "ends a wait",
	"parallel/internal/control/channel.go Close":           "waits for goroutines",
	"parallel/internal/control/collect.go asked":           "recovers from the answer's function",
	"parallel/internal/control/flood.go leaves":            "closes a link",
	"parallel/internal/control/join.go Join":               "calls package process, which fails operations",
	"parallel/internal/worldtest/worldtest.go SpawnIn":     "runs ranks of tests, which recover",
	"core/coretest/wiretest/wiretest.go Listen":            "delivers messages, in tests",
	"core/coretest/wiretest/wiretest.go cut":               "delivers messages, in tests",
	"core/coretest/wiretest/wiretest.go meet":              "waits, in tests",
	"parallel/ddp/reducer.go Release":                      "closes streams alone",
	"parallel/pipeline/executor.go ReleaseLater":           "closes streams alone",
	"parallel/fsdp/unit.go releaseNow":                     "closes streams alone",
	"parallel/internal/ranktest/ranktest.go Together":      "runs threads of tests, which a panic may end",
	"parallel/checkpoint/save.go SaveAsync":                "finishSafely recovers",
	"parallel/mpi/join.go Join":                            "deliver recovers from what it calls",
	"capi/bind/optim_closure.go OptimStepBegin":            "recovers",
	"capi/bind/replay.go Close":                            "recovers",
	"core/cpu/kernel/internal/kerneltest/bench.go copyAll": "copies memory, in tests",
}

func TestAPanicOnAGoroutineEndsNoProcess(t *testing.T) {
	coretest.SkipUnderRace(t)
	found := map[string]bool{}
	eachFunc(t, []string{"core", "gpu", "parallel", "capi"}, func(path string, f *ast.FuncDecl, _ string) {
		ast.Inspect(f, func(n ast.Node) bool {
			_, starts := n.(*ast.GoStmt)
			if s, ok := n.(*ast.SelectorExpr); ok { // of a sync.WaitGroup, and of package time
				starts = s.Sel.Name == "Go" || s.Sel.Name == "AfterFunc"
			}
			if starts {
				found[path+" "+f.Name.Name] = true
			}
			return true
		})
	})
	for name := range found {
		assert.NotEmpty(t, goroutines[name], "%s starts a goroutine: make it recover, so that a panic becomes an error, and say so here", name)
	}
	for name := range goroutines {
		assert.True(t, found[name], "%s starts no goroutine: take it off the list", name)
	}
}

// pinned are functions without Python's lock whose tensors the core pins.
var pinned = map[string]bool{"TensorWaitFor": true, "TensorRead": true, "TensorItem": true, "TensorInt": true}

// exchanging are functions without Python's lock that exchange the contents of their tensors, which waits until nobody uses them: they
// would wait for themselves.
var exchanging = map[string]bool{"FsdpUnitNew": true, "FsdpUnitForward": true}

func TestWhatRunsWithoutPythonsLockKeepsItsTensors(t *testing.T) {
	seen := 0
	eachFunc(t, []string{"capi/bind"}, func(path string, f *ast.FuncDecl, comments string) {
		if !strings.Contains(comments, "//plait:waits") || pinned[f.Name.Name] || exchanging[f.Name.Name] {
			return
		}
		takes := false
		for _, p := range f.Type.Params.List {
			if kind, ok := p.Type.(*ast.Ident); ok && (kind.Name == "Tensor" || kind.Name == "Tensors") {
				takes = true
			}
		}
		if !takes {
			return
		}
		seen++
		uses := false
		ast.Inspect(f, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok && strings.HasPrefix(name.Name, "using") {
				uses = true
			}
			return true
		})
		require.True(t, uses, "%s of %s takes tensors and runs without Python's lock: begin it with `defer using(...)()`", f.Name.Name, path)
	})
	require.Greater(t, seen, 30)
}
