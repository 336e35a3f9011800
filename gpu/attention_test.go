package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
)

// TestAttentionBackwardWithKeptScores checks that gradients are bitwise equal whether the gradients of scores are recomputed or
// kept: for all heads, for one batch entry or for one head at a time.
func TestAttentionBackwardWithKeptScores(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	for i, c := range []struct {
		queries, keys, dim int
		o                  op.AttentionOptions
	}{
		{150, 130, 20, op.AttentionOptions{Causal: true, DropoutP: 0.3}},
		{70, 200, 7, op.AttentionOptions{Causal: true}},
		{200, 70, 132, op.AttentionOptions{}},
	} {
		t.Run(fmt.Sprint(c.queries, c.keys, c.dim), func(t *testing.T) {
			core.Tidy(func() {
				c.o.EnableGQA = true
				tensor := func(shape ...int) *core.Tensor { return op.ToDevice(op.Randn(shape...), d).SetRequiresGrad(true) }
				q, k, v, g := tensor(3, 4, c.queries, c.dim), tensor(3, 2, c.keys, c.dim), tensor(3, 2, c.keys, 24), tensor(3, 4, c.queries, 24)
				gradients := func(heads int) (all [][]byte) {
					head := 4 * 2 * ((c.queries + 63) / 64 * 64) * ((c.keys + 63) / 64 * 64)
					if c.o.Causal {
						head = 4 * 2 * ((c.queries + 63) / 64 * 64) * 64 * min((c.keys+63)/64, (c.queries+63)/64/2+1)
					}
					defer gpu.Tune(d, func(f *shader.Tuning) { f.ScoreBytes, f.ScoreBlocks = heads*head, 0 })()
					core.ManualSeed(3)
					y := op.ScaledDotProductAttention(q, k, v, c.o)
					found, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{q, k, v}, []*core.Tensor{g}, autograd.Options{})
					require.NoError(t, err)
					for _, x := range found {
						b, err := x.Bytes()
						require.NoError(t, err)
						all = append(all, b)
					}
					return all
				}
				want := gradients(0)
				counts := []int{1, 5, 6}
				for _, heads := range sized(t, counts, counts[i:i+1]) {
					require.Equal(t, want, gradients(heads), "%d heads of keys at a time", heads)
				}
			})
		})
	}
}

// TestAttentionBackwardOfSplitTensor computes attention on parts of one tensor. Their gradients must be written directly to parts
// of its gradient, without a concatenation, and be bitwise equal to concatenated ones.
func TestAttentionBackwardOfSplitTensor(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	for _, c := range []struct {
		batch, length, heads, keyHeads, dim, valueDim int
		DType                                         core.DType
	}{
		{2, 70, 2, 2, 64, 64, core.Float32},
		{1, 130, 4, 2, 20, 8, core.Float32},
		{2, 33, 3, 3, 7, 5, core.Float32},
		{2, 40, 2, 2, 16, 16, core.BFloat16},
		{2, 21, 3, 1, 5, 3, core.Float16},
	} {
		for _, room := range []int{0, 1 << 30} {
			t.Run(fmt.Sprint(c, room), func(t *testing.T) {
				defer gpu.Tune(d, func(f *shader.Tuning) { f.ScoreBytes, f.ScoreBlocks = room, 0 })()
				core.Tidy(func() {
					core.ManualSeed(4)
					sizes := []int{c.heads * c.dim, c.keyHeads * c.dim, c.keyHeads * c.valueDim}
					x := op.ToDevice(op.To(op.Randn(c.batch, c.length, sizes[0]+sizes[1]+sizes[2]), c.DType), d).Detach().SetRequiresGrad(true)
					dy := op.ToDevice(op.To(op.Randn(c.batch, c.heads, c.length, c.valueDim), c.DType), d)
					gradient := func(seen bool) (bits []byte, joins int) {
						p := op.SplitSizes(x, sizes, 2)
						for i, n := range []int{c.heads, c.keyHeads, c.keyHeads} {
							p[i] = op.Transpose(op.Reshape(p[i], c.batch, c.length, n, -1), 1, 2)
							if seen {
								p[i].RetainGrad()
							}
						}
						y := op.ScaledDotProductAttention(p[0], p[1], p[2], op.AttentionOptions{Causal: true, EnableGQA: true})
						profile, err := core.StartProfile(false)
						require.NoError(t, err)
						defer profile.Stop()
						g, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, []*core.Tensor{dy}, autograd.Options{})
						require.NoError(t, err)
						bits, err = g[0].Bytes()
						require.NoError(t, err)
						for _, e := range profile.Stop() {
							if e.Kernel == core.Kernel("cat") {
								joins++
							}
						}
						return bits, joins
					}
					want, joins := gradient(true)
					require.Equal(t, 1, joins)
					got, joins := gradient(false)
					require.Zero(t, joins)
					require.Equal(t, want, got)
				})
			})
		}
	}
}
