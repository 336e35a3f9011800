package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// Gradients are the same whether those of scores are computed twice or kept, of all heads, of a batch entry's or of one head at a time.
func TestAttentionKeepsGradientsOfScoresOrNot(t *testing.T) {
	d := device(t)
	for _, c := range []struct {
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
					defer gpu.SetScoreRoom(heads*head, 0)()
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
				for _, heads := range []int{1, 5, 6} {
					require.Equal(t, want, gradients(heads), "%d heads of keys at a time", heads)
				}
			})
		})
	}
}
