package gpu_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/kernel/matmul"
)

// TestTuningIsCachedAcrossProcesses lets two processes at a time measure products and store their choices. A third process must
// read them.
func TestTuningIsCachedAcrossProcesses(t *testing.T) {
	d := device(t)
	if _, child := os.LookupEnv("PLAIT_TEST_TUNING"); child {
		gpu.Target(d).Library = false // nothing of its products is measured
		multiplyTuned(t, d)
		fmt.Printf("known: %d\n", matmul.Measured(gpu.Target(d)))
		return
	}
	home := t.TempDir()
	child := func(tune string) (known string) {
		c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		c.Env = append(os.Environ(), "PLAIT_TEST_TUNING=1", "PLAIT_TUNE="+tune, "XDG_CACHE_HOME="+home, "HOME="+home)
		out, err := c.CombinedOutput()
		assert.NoError(t, err, string(out))
		_, known, _ = strings.Cut(string(out), "known: ")
		known, _, _ = strings.Cut(known, "\n")
		return known
	}
	require.Equal(t, "0", child(""), "nobody asked")
	var wait sync.WaitGroup
	var known [2]string
	for i := range known {
		wait.Go(func() { known[i] = child("1") })
	}
	wait.Wait()
	require.Equal(t, [2]string{"3", "3"}, known)
	var files []string
	require.NoError(t, filepath.WalkDir(home, func(path string, f fs.DirEntry, err error) error {
		if strings.Contains(path, filepath.Join("plait", "tuning")) && !f.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	require.Len(t, files, 1)
	require.Equal(t, "0", child("0"), "not looked at")
	require.Contains(t, []string{"2", "3"}, child(""), "one that both stored at a time may be lost")
}

// multiplyTuned computes products of three size classes. One of them is added to a tensor.
func multiplyTuned(t *testing.T, d *gpu.Device) {
	core.Tidy(func() {
		a, b, c := op.Randn(48, 200), op.Randn(200, 64), op.Randn(48, 64)
		near := func(want *core.Tensor, got *core.Tensor) {
			w, err := core.Values[float64](want)
			require.NoError(t, err)
			g, err := core.Values[float64](got)
			require.NoError(t, err)
			require.InDeltaSlice(t, w, g, 1e-4)
		}
		x, y, z := op.ToDevice(a, d), op.ToDevice(b, d), op.ToDevice(c, d)
		for range 2 {
			near(op.MatMul(a, b), op.MatMul(x, y))
			near(op.MatMul(op.Transpose(a, 0, 1), c), op.MatMul(op.Transpose(x, 0, 1), z))
			near(op.MatMul(c, op.Transpose(b, 0, 1)), op.MatMul(z, op.Transpose(y, 0, 1)))
			near(op.AddMM(c, a, b, 1, 2), op.AddMM(z, x, y, 1, 2))
		}
		require.NoError(t, d.Synchronize())
	})
}
