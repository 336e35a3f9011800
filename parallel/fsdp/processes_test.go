package fsdp_test

import (
	"testing"

	"github.com/plait-ml/plait/parallel/internal/worldtest"
)

// TestAcrossProcesses runs the test of parity with the ranks in several processes.
func TestAcrossProcesses(t *testing.T) { worldtest.In(t, "pairs", TestCase28Parity) }
