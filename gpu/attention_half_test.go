package gpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// TestAttentionOfHalves compares attention of 16-bit floats, and its gradients, with the CPU's in float32 of the same numbers. On GPUs with
// tensor cores these have programs of their own, which also must give the same bits each time.
func TestAttentionOfHalves(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	cases := []struct {
		dtype                                         core.DType
		heads, keyHeads, queries, keys, dim, valueDim int
		mask                                          string
		o                                             op.AttentionOptions
	}{
		{core.BFloat16, 2, 2, 1, 1, 64, 64, "", op.AttentionOptions{}},
		{core.BFloat16, 4, 2, 130, 70, 64, 64, "", op.AttentionOptions{Causal: true}},
		{core.Float16, 2, 1, 65, 130, 64, 64, "", op.AttentionOptions{DropoutP: 0.3}},
		{core.BFloat16, 2, 2, 63, 90, 128, 128, "bool", op.AttentionOptions{}},
		{core.Float16, 2, 2, 40, 50, 80, 80, "half", op.AttentionOptions{Scale: -0.2}},
		{core.BFloat16, 2, 2, 70, 30, 32, 40, "float", op.AttentionOptions{DropoutP: 0.5}},
		{core.BFloat16, 1, 1, 40, 70, 256, 200, "", op.AttentionOptions{Causal: true}},
		{core.Float16, 2, 2, 50, 40, 7, 13, "", op.AttentionOptions{Causal: true, DropoutP: 0.1}},
	}
	if d.Software() {
		cases = cases[1:4] // compiling takes long
	}
	for _, c := range cases {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			core.Tidy(func() {
				c.o.EnableGQA = true
				core.ManualSeed(5)
				half := func(shape ...int) *core.Tensor { return op.To(op.Randn(shape...), c.dtype) }
				inputs := []*core.Tensor{
					half(2, c.heads, c.queries, c.dim), half(2, c.keyHeads, c.keys, c.dim), half(2, c.keyHeads, c.keys, c.valueDim),
					half(2, c.heads, c.queries, c.valueDim),
				}
				switch c.mask {
				case "bool":
					c.o.Mask = op.Gt(op.Randn(2, 1, c.queries, c.keys), core.Num(0.3))
				case "half":
					c.o.Mask = half(c.heads, 1, c.keys)
				case "float":
					c.o.Mask = op.Randn(2, 1, 1, c.keys)
				}
				results := func(move func(x *core.Tensor) *core.Tensor) []*core.Tensor {
					core.ManualSeed(3)
					var x []*core.Tensor
					for _, in := range inputs {
						x = append(x, move(in).Detach())
					}
					for _, in := range x[:3] {
						in.SetRequiresGrad(true)
					}
					o := c.o
					if o.Mask != nil && o.Mask.DType() == core.Bool {
						o.Mask = op.ToDevice(o.Mask, x[0].Device())
					} else if o.Mask != nil {
						o.Mask = move(o.Mask)
					}
					y := op.ScaledDotProductAttention(x[0], x[1], x[2], o)
					g, err := autograd.Grad([]*core.Tensor{y}, x[:3], x[3:], autograd.Options{})
					require.NoError(t, err)
					return append(g, y)
				}
				want := results(func(x *core.Tensor) *core.Tensor { return op.To(x, core.Float32) })
				onGPU := func(x *core.Tensor) *core.Tensor { return op.ToDevice(x, d) }
				got, again := results(onGPU), results(onGPU)
				tolerance := 2e-2
				if c.dtype == core.Float16 {
					tolerance = 3e-3
				}
				for i, name := range []string{"dq", "dk", "dv", "y"} {
					first, err := got[i].Bytes()
					require.NoError(t, err)
					second, err := again[i].Bytes()
					require.NoError(t, err)
					require.Equal(t, first, second, "%s of a second run", name)
					require.Less(t, distance(t, got[i], want[i]), tolerance, "%s", name)
				}
			})
		})
	}
}

// distance returns the norm of the difference relative to that of want.
func distance(t *testing.T, got, want *core.Tensor) float64 {
	t.Helper()
	values := func(x *core.Tensor) []float32 {
		b, err := op.To(x, core.Float32).Bytes()
		require.NoError(t, err)
		v := make([]float32, len(b)/4)
		_, err = binary.Decode(b, binary.LittleEndian, v)
		require.NoError(t, err)
		return v
	}
	a, b := values(got), values(want)
	require.Len(t, a, len(b))
	var off, norm float64
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		off += d * d
		norm += float64(b[i]) * float64(b[i])
	}
	if norm == 0 {
		return math.Sqrt(off)
	}
	return math.Sqrt(off / norm)
}
