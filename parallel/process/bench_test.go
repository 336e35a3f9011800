//go:build cgo && linux

package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/process"
)

// BenchmarkAllReduce times all-reduces of two processes of one rank under Open MPI, beside MPI_Allreduce called from C, in microseconds: the
// best of several rounds.
func BenchmarkAllReduce(b *testing.B) {
	if _, err := exec.LookPath("mpiexec.openmpi"); err != nil {
		b.Skipf("Open MPI is not installed: %v", err)
	}
	raw := filepath.Join(b.TempDir(), "raw")
	out, err := exec.Command("cc", "-O2", "-I../mpi", `-DABI="openmpi.h"`, `-DLIBRARY="libmpi.so.40"`, "-DOPENMPI", "-o", raw,
		"../mpi/testdata/raw.c", "-ldl").CombinedOutput()
	require.NoError(b, err, string(out))
	for range b.N {
		for _, program := range []string{raw, os.Args[0]} {
			c := exec.Command("mpiexec.openmpi", "--bind-to", "none", "-n", "2", program)
			c.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PLAIT_MPI=openmpi", role+"=bench", folder+"="+b.TempDir())
			out, err := c.CombinedOutput()
			require.NoError(b, err, string(out))
			for line := range strings.Lines(string(out)) {
				if value, unit, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.Contains(unit, "reduce-us/") {
					number, err := strconv.ParseFloat(value, 64)
					require.NoError(b, err)
					b.ReportMetric(number, unit)
				}
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// bench is what [BenchmarkAllReduce] runs.
func bench(w *process.World) error {
	return w.Spawn(nil, func(r *collective.Rank) error {
		for _, c := range []struct{ size, rounds int }{{4, 2000}, {256 << 10, 100}, {4 << 20, 10}, {32 << 20, 2}} {
			x, best := op.Zeros(c.size/4), time.Hour
			for range 20 {
				begin := time.Now()
				for range c.rounds {
					if err := r.World.AllReduce(x, collective.Sum).Wait(); err != nil {
						return err
					}
				}
				best = min(best, time.Since(begin)/time.Duration(c.rounds))
			}
			if r.Rank == 0 {
				fmt.Printf("%g plait-reduce-us/%dB\n", float64(best.Nanoseconds())/1000, c.size)
			}
		}
		return nil
	})
}
