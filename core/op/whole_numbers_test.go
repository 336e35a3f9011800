package op_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/op"
)

// TestNoWholeNumberMakesAnOperationPanic gives every whole number among the arguments of every sample values that are zero,
// negative, or too large for a size, a product of sizes or an address: the operation takes it or says what is wrong. So does
// its derivative. What it asks for and cannot be there, such as memory for 2^40 elements, is an error too.
func TestNoWholeNumberMakesAnOperationPanic(t *testing.T) {
	limit := cpu.MemoryLimit()
	cpu.SetMemoryLimit(64 << 20)
	defer cpu.SetMemoryLimit(limit)
	for _, r := range op.Rows() {
		if r.Func == nil {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			inRank(t, func() {
				for _, s := range r.Samples {
					for _, n := range []int{0, -1, 1 << 31, 1 << 40, 1 << 62, math.MinInt} {
						for _, v := range withInts(s, n) {
							core.Tidy(func() { requireNoPanic(t, r, v, fmt.Sprintf("%s of %v", v.Name, r.Name)) })
						}
					}
				}
			})
		})
	}
}

func requireNoPanic(t *testing.T, r *op.Row, s op.Sample, name string) {
	m := newMaker(r.Name+s.Name, core.Float64, contiguous, r.NoGrad == "")
	args := m.arguments(s)
	require.NotPanics(t, func() {
		var outputs, seeds []*core.Tensor
		for _, o := range m.apply(r.Call, args, m.leaves) {
			err := o.Wait()
			requireKnown(t, err, name)
			if err == nil && o.RequiresGrad() && o.Numel() < 1<<16 {
				outputs, seeds = append(outputs, o), append(seeds, m.weights(o.Shape()))
			}
		}
		if outputs != nil {
			_, err := autograd.Grad(outputs, requiring(m.leaves), seeds, autograd.Options{AllowUnused: true})
			requireKnown(t, err, name)
		}
	}, name)
}

// requireKnown fails for an error that is a mistake of the engine's.
func requireKnown(t *testing.T, err error, name string) {
	if err == nil {
		return
	}
	_, known := core.KindOf(err)
	require.True(t, known, "%s: %v", name, err)
	for _, text := range []string{"internal error", "runtime error", "nil pointer"} {
		require.False(t, strings.Contains(err.Error(), text), "%s: %v", name, err)
	}
}
