package gpu_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// TestSelectRows compares selected rows of many elements with the CPU's: rows whose vec4 an invocation copies several of, and others.
func TestSelectRows(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	for _, shape := range [][]int{{300, 8192}, {300, 16, 512}, {700, 3004}} {
		x, index := op.Randn(shape...), op.To(op.Mul(op.Rand(shape[0]), core.Num(float64(shape[0]))), core.Int64)
		sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
			return []*core.Tensor{op.IndexSelect(x[0], 0, x[1]), op.IndexSelect(op.Narrow(x[0], 1, 4, shape[1]-4), 0, x[1])}
		}, x, index)
	}
}
