package tests_go

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMakeTestGPU runs the script of make test-gpu with a program in the place of the tests: it ends with 3 under drivers without a GPU,
// and with 1 where tests fail or no kernel runs.
func TestMakeTestGPU(t *testing.T) {
	folder := t.TempDir()
	sanitizer := filepath.Join(folder, "compute-sanitizer")
	require.NoError(t, os.WriteFile(sanitizer, []byte("#!/bin/sh\necho sanitized under $PLAIT_GPU_DRIVER\n"), 0o755))
	run := func(cuda, webgpu string, args ...string) (string, bool) {
		binary := filepath.Join(folder, "gpu.test")
		text := "#!/bin/sh\n[ $1 = -under ] && [ $2 = $PLAIT_GPU_DRIVER ] || exit 4\ncase $2 in cuda) exit " + cuda + ";; webgpu) exit " + webgpu + ";; esac\n"
		require.NoError(t, os.WriteFile(binary, []byte(text), 0o755))
		c := exec.Command("../internal/make/test-gpu", append([]string{"--binary", binary}, args...)...)
		c.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
		out, err := c.CombinedOutput()
		return string(out), err == nil
	}
	said, passed := run("0", "0")
	require.True(t, passed, said)
	require.Contains(t, said, "sanitized under cuda")
	require.Contains(t, said, "passed under cuda webgpu\n")
	said, passed = run("3", "0")
	require.True(t, passed, said)
	require.NotContains(t, said, "sanitized")
	require.Contains(t, said, "passed under webgpu\n")
	for _, c := range [][]string{{"3", "3"}, {"1", "0"}, {"0", "1"}, {"3", "0", "cuda"}, {"0", "3", "cuda", "webgpu"}} {
		said, passed = run(c[0], c[1], c[2:]...)
		require.False(t, passed, "%v: %s", c, said)
		require.NotContains(t, said, "passed under")
	}
}
