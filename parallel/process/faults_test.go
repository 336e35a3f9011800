//go:build cgo && linux

package process_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/process"
)

// A failure is what becomes of a process at a random moment.
type failure struct {
	launcher, work, manner string
	processes, victim      int
	after                  time.Duration
}

var (
	works = map[string]func(r *collective.Rank) error{
		"small collectives": func(r *collective.Rank) error { return reduce(r, 3) },
		"big collectives":   func(r *collective.Rank) error { return reduce(r, 1_000_003) },
		"messages": func(r *collective.Rank) error {
			n := r.World.Size()
			for _, size := range []int{2, 100_000} {
				s, v := r.World.Send(op.Ones(size), (r.Rank+1)%n, 1), r.World.Recv(op.Zeros(size), (r.Rank+n-1)%n, 1)
				if err := (collective.Works{s, v}).Wait(); err != nil {
					return err
				}
			}
			return nil
		},
		"barriers": func(r *collective.Rank) error { return r.World.Barrier() },
		"computation": func(r *collective.Rank) error {
			x := op.Ones(200, 200)
			for range 20 {
				x = op.MatMul(x, x)
			}
			return errors.Join(x.Wait(), reduce(r, 10))
		},
		"groups": func(r *collective.Rank) error {
			g, err := r.World.New([]int{0, r.World.Size() - 1}, collective.Options{})
			if err == nil && g != nil {
				err = errors.Join(g.AllReduce(op.Ones(5), collective.Max).Wait(), g.Close())
			}
			return err
		},
	}
	workNames   = []string{"small collectives", "big collectives", "messages", "barriers", "computation", "groups"}
	mannerNames = []string{"kill", "exit", "stop", "error"}
)

// random returns the failure of a seed.
func random(seed uint64) failure {
	rng := rand.New(rand.NewPCG(seed, 21))
	f := failure{launcher: []string{"openmpi", "mpich"}[rng.IntN(2)], work: workNames[rng.IntN(len(workNames))],
		manner: mannerNames[rng.IntN(len(mannerNames))], processes: 2, after: time.Duration(rng.IntN(200)) * time.Millisecond}
	if f.launcher == "openmpi" {
		f.processes += rng.IntN(2)
	}
	f.victim = rng.IntN(f.processes)
	return f
}

// fail plays a failure on two ranks of each process.
func fail(w *process.World) error {
	seed, err := strconv.ParseUint(os.Getenv("TEST_PROCESS_SEED"), 10, 64)
	if err != nil {
		return err
	}
	f := random(seed)
	boom := make(chan struct{})
	return w.Spawn(nil, func(r *collective.Rank) error {
		if err := r.World.Barrier(); err != nil {
			return err
		}
		if w.Process() == f.victim && r.Rank == 2*f.victim {
			time.AfterFunc(f.after, func() {
				leave("failed", nil)
				switch f.manner {
				case "kill":
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				case "stop":
					_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
					return // other threads may not have stopped yet
				case "exit":
					os.Exit(3)
				}
				close(boom)
			})
		}
		for {
			if err := works[f.work](r); err != nil {
				return err
			}
			select {
			case <-boom:
				return errors.New("boom")
			default:
			}
		}
	})
}

// TestFailures has a process fail at a random moment. The ranks of the others must raise in time, with what became of it.
func TestFailures(t *testing.T) {
	seeds := 6
	switch {
	case *all:
		seeds = 200
	case testing.Short():
		seeds = 2
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	for seed := range uint64(seeds) {
		f := random(seed)
		t.Run(fmt.Sprintf("%d %s of %d in %s under %s", seed, f.manner, f.processes, f.work, f.launcher), func(t *testing.T) {
			const heartbeat = time.Second
			dir := t.TempDir()
			out := launch(t, f, dir, "TEST_PROCESS_SEED="+strconv.FormatUint(seed, 10), "TEST_PROCESS_HEARTBEAT="+heartbeat.String())
			failed, _ := read(t, dir, "failed", out)
			gone := fmt.Sprintf(`rank (%[1]d|%[2]d|\d \((%[1]d|%[2]d) in the world\)) is gone: .*process %[3]d on host %[4]s `, 2*f.victim, 2*f.victim+1, f.victim, host)
			want := map[string]string{
				"kill": gone + `exited or was killed \(connection closed\)`, "exit": gone + `exited or was killed \(connection closed\)`,
				"stop": gone + `has not been heard from by process \d for `, "error": `is gone: .*boom`,
			}[f.manner]
			for p := range f.processes {
				if p == f.victim {
					continue
				}
				at, text := read(t, dir, fmt.Sprint("end-", p), out)
				require.Regexp(t, regexp.MustCompile(want), text, out)
				limit := 5 * time.Second
				if f.manner == "stop" {
					limit += heartbeat
				}
				require.Less(t, at.Sub(failed), limit, text)
			}
		})
	}
}

// launch starts the processes of a failure, and returns what they print. They end with the test.
func launch(t *testing.T, f failure, dir string, environment ...string) *bytes.Buffer {
	t.Helper()
	line := map[string][]string{
		"openmpi": {"mpiexec.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--enable-recovery"},
		"mpich":   {"mpiexec.mpich", "-disable-auto-cleanup"},
	}[f.launcher]
	if _, err := exec.LookPath(line[0]); err != nil {
		t.Skipf("%s is not installed: %v", line[0], err)
	}
	// MPICH kills the others of a node for one that a signal has ended, unless a shell stands between them.
	line = append(line, "-n", strconv.Itoa(f.processes), "sh", "-c", `"$0"; exit 1`, os.Args[0])
	c := exec.Command(line[0], line[1:]...)
	c.Env = append(append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PLAIT_MPI="+f.launcher, role+"=fail",
		"UCX_TLS=^cma", // UCX ends a process that copies from the memory of one that has died
		folder+"="+dir, "TEST_PROCESS_RANKS=2"), environment...)
	out := &bytes.Buffer{}
	c.Stdout, c.Stderr = out, out
	c.WaitDelay = time.Second
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = exec.Command("sh", "-c", `for f in "$0"/pid-*; do kill -9 "${f##*-}"; done`, dir).Run() // one of them may be stopped
		_ = c.Wait()
	})
	return out
}
