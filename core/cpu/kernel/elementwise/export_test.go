package elementwise

import (
	"testing"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

// RunKernel runs a kernel by name for the tests of package elementwise_test.
func RunKernel(t testing.TB, pool unsafe.Pointer, name string, c *core.Call) error {
	t.Helper()
	return runKernel(t, pool, name, c)
}
