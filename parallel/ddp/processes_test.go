package ddp_test

import (
	"testing"

	"github.com/plait-ml/plait/parallel/internal/worldtest"
)

// TestAcrossProcesses runs tests with the ranks in several processes.
func TestAcrossProcesses(t *testing.T) {
	worldtest.Across(t, func(t *testing.T) {
		t.Run("parity", TestCase14And15Parity)
		t.Run("failed rank", TestFailedRank)
		t.Run("kernel out of memory", TestKernelOutOfMemory)
	})
}
