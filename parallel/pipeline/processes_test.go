package pipeline

import (
	"testing"

	"github.com/plait-ml/plait/parallel/internal/worldtest"
)

// TestAcrossProcesses runs the test of stages on ranks with the ranks in several processes.
func TestAcrossProcesses(t *testing.T) { worldtest.Across(t, TestRanks) }
