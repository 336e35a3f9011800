package tensor_test

import (
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

// TestDropoutOfDividedAttention compares attention whose heads or stacks lie on several ranks with that of one device: the same weights are
// dropped, the generators go on alike, and nothing is sent.
func TestDropoutOfDividedAttention(t *testing.T) {
	double := op.TensorOptions{DType: ptr(core.Float64)}
	wave := func(at float64, shape ...int) *core.Tensor {
		n := float64(core.Numel(shape))
		return op.Reshape(op.Sin(op.Arange(core.Num(at), core.Num(at+n), core.Num(1), double)), shape...)
	}
	heads, stacks := core.Shard(1), core.Shard(0)
	for _, c := range []struct {
		mesh       []int
		q, kv      []int
		placements []core.Placement
		options    op.AttentionOptions
	}{
		{[]int{2}, []int{2, 4, 3, 5}, []int{2, 4, 6, 5}, []core.Placement{heads}, op.AttentionOptions{}},
		{[]int{2}, []int{2, 3, 3, 5}, []int{2, 3, 3, 5}, []core.Placement{heads}, op.AttentionOptions{Causal: true}},
		{[]int{2}, []int{3, 2, 3, 5}, []int{3, 2, 6, 5}, []core.Placement{stacks}, op.AttentionOptions{}},
		{[]int{2}, []int{2, 4, 3, 5}, []int{2, 2, 6, 5}, []core.Placement{heads}, op.AttentionOptions{EnableGQA: true}},
		{[]int{3}, []int{2, 3, 5}, []int{2, 6, 5}, []core.Placement{stacks}, op.AttentionOptions{}}, // the third rank has no head
		{[]int{2}, []int{3, 2, 2, 3, 5}, []int{3, 2, 2, 6, 5}, []core.Placement{stacks}, op.AttentionOptions{}},
		{[]int{2, 2}, []int{2, 4, 3, 5}, []int{2, 4, 6, 5}, []core.Placement{stacks, heads}, op.AttentionOptions{}},
		{[]int{2, 2}, []int{2, 5, 3, 5}, []int{2, 5, 6, 5}, []core.Placement{heads, heads}, op.AttentionOptions{}},
	} {
		for _, twice := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v %v %v %v", c.mesh, c.q, c.placements, twice), func(t *testing.T) {
				onMesh(t, c.mesh, func(m *mesh.Mesh) error {
					run := func(lay func(t *core.Tensor) *core.Tensor) (all []*core.Tensor, err error) {
						q, k, v := lay(wave(1, c.q...)), lay(wave(0.3, c.kv...)), lay(wave(0.7, c.kv...))
						o := c.options
						o.DropoutP = 0.4
						core.ManualSeed(5)
						out := op.ScaledDotProductAttention(q, k, v, o)
						grads, err := autograd.Grad([]*core.Tensor{op.Sum(op.Square(out), nil, false)}, []*core.Tensor{q, k, v}, nil, autograd.Options{CreateGraph: twice})
						if err != nil {
							return nil, err
						}
						all = append(grads, out)
						if twice {
							total := op.Sum(op.Square(grads[0]), nil, false)
							second, err := autograd.Grad([]*core.Tensor{total}, []*core.Tensor{k}, nil, autograd.Options{})
							if err != nil {
								return nil, err
							}
							all = append(all, second...)
						}
						next := op.Rand(3)
						return append(all, next), nil
					}
					want, err := run(func(t *core.Tensor) *core.Tensor { return t.Detach().SetRequiresGrad(true) })
					if err != nil {
						return err
					}
					sent := func() (n int) {
						for i := range c.mesh {
							n += m.Group(i).Stats().Total()
						}
						return n
					}
					var before int
					got, err := run(func(t *core.Tensor) *core.Tensor {
						whole := tensor.FromLocal(t, m, make([]core.Placement, len(c.mesh)), nil)
						part := tensor.Redistribute(whole, c.placements).Detach().SetRequiresGrad(true)
						before = sent()
						return part
					})
					if err != nil {
						return err
					}
					if n := sent() - before; n > 64*len(c.mesh) && !twice { // but sums of one number
						return fmt.Errorf("%d bytes were sent", n)
					}
					for i := range want {
						if err := near(fmt.Sprint("tensor ", i), got[i], want[i]); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
