package tests_go

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/gpu"
)

// The go command's cache repeats what a test said until something changes that the test's log says it has read. A driver is
// outside what that log is compared for, and so `make test` puts what drivers there are into a variable.
func TestNewDriversAreNoticed(t *testing.T) {
	const role = "TEST_NEW_DRIVERS"
	if os.Getenv(role) != "" {
		gpu.Count()
		return
	}
	log := filepath.Join(t.TempDir(), "log")
	c := exec.Command(os.Args[0], "-test.run=^TestNewDriversAreNoticed$", "-test.testlogfile="+log)
	c.Env = append(os.Environ(), role+"=1")
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	read, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(read), "getenv PLAIT_TEST_DRIVERS\n")

	folder := t.TempDir()
	drivers := func() string {
		out, err := exec.Command("../internal/make/software-gpu", "--drivers", folder, filepath.Join(folder, "none")).Output()
		require.NoError(t, err)
		return string(out)
	}
	before := drivers()
	require.Equal(t, before, drivers())
	require.NoError(t, os.WriteFile(filepath.Join(folder, "lvp_icd.json"), []byte("{}"), 0o644))
	require.NotEqual(t, before, drivers())
}
