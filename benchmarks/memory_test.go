package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestPasses runs each pass: what it writes is as much as it says.
func TestPasses(t *testing.T) {
	x, y := op.Rand(64, 1024), op.Rand(64, 1024)
	for _, p := range passes {
		core.Tidy(func() {
			left, right := p.operands(x, y)
			require.Equal(t, 256<<10, left.Numel()*left.DType().Size(), p.name)
			out := p.run(left, right)
			require.NoError(t, out.Wait(), p.name)
			if p.writes > 0 {
				require.InDelta(t, p.writes*262144, out.Numel()*out.DType().Size(), 0, p.name)
			} else {
				require.LessOrEqual(t, out.Numel(), 2048, p.name)
			}
		})
	}
}
