package nvrtc_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/gpu/cuda/nvrtc"
)

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "nvrtc")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CACHE_HOME", folder) // instead of the user's
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// library skips the test if there is no library; CI has one.
func library(t *testing.T) {
	t.Helper()
	if _, _, _, err := nvrtc.Version(); err != nil {
		if os.Getenv("CI") == "true" && runtime.GOOS == "linux" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func TestCompile(t *testing.T) {
	library(t)
	for _, capability := range []int{80, 86, 90} {
		cubin, err := nvrtc.Compile(`extern "C" __global__ void f(int *x) { x[0] = 1; }`, "f", capability)
		require.NoError(t, err)
		require.Equal(t, "\x7fELF", string(cubin[:4]))
	}
}

func TestCompileErrors(t *testing.T) {
	library(t)
	_, err := nvrtc.Compile(`extern "C" __global__ void f(int *x) { x[0] = y; }`, "f.cu", 90)
	require.ErrorContains(t, err, "f.cu")
	require.ErrorContains(t, err, `identifier "y" is undefined`)
	_, err = nvrtc.Compile("", "f.cu", 30)
	require.ErrorContains(t, err, "does not compile for compute capability 3.0")
	_, err = nvrtc.Compile("", "f.cu", 90, "--no-such-option")
	require.ErrorContains(t, err, "no-such-option")
}
