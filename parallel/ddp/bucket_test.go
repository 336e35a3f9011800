package ddp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// backward runs forward and backward of step s on a rank's part of the batch.
func backward(m nn.Layer, r *collective.Rank, s int) error {
	x, y := batch(s, r.Rank*4, r.Rank*4+4)
	return autograd.Backward(mse(nn.Call(m, x), y))
}

// names returns the names of the parameters in each bucket.
func names(p *ddp.DistributedDataParallel) (all [][]string) {
	for _, b := range p.Reducer().Buckets() {
		all = append(all, b.Names())
	}
	return all
}

// outOfOrder uses its second layer first, so gradients do not become final in reverse order of registration.
type outOfOrder struct {
	nn.Base
	A, B *nn.Linear
	Half *core.Tensor
}

func (c *outOfOrder) Forward(x *core.Tensor) *core.Tensor {
	y := op.Add(c.A.Forward(op.Tanh(c.B.Forward(x))), op.To(c.Half, x.DType()))
	return y
}

func newOutOfOrder() *outOfOrder {
	c := &outOfOrder{A: nn.NewLinear(8, 2, nn.LinearOptions{}), B: nn.NewLinear(width, 8, nn.LinearOptions{})}
	c.Half = op.To(op.Ones(2), core.Float32).Keep().SetRequiresGrad(true)
	return c
}

// Buckets start in reverse order of registration, with the right sizes and dtypes. They are rebuilt once, in the order in which gradients
// become final.
func TestCase16Buckets(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		m := newOutOfOrder()
		p, err := ddp.New(m, r.World, ddp.Options{FirstBucketBytes: 1, BucketBytes: 16*8 + 1})
		if err != nil {
			return err
		}
		// Half is registered first; bytes: A.weight 128, A.bias 16, B.weight 384, B.bias 64.
		want := [][]string{{"b.bias"}, {"b.weight"}, {"a.bias", "a.weight"}, {"half"}}
		if got := names(p); !slices.EqualFunc(got, want, slices.Equal) {
			return fmt.Errorf("buckets are %v, want %v", got, want)
		}
		sizes := []int{}
		for i, b := range p.Reducer().Buckets() {
			sizes = append(sizes, b.Bytes())
			if b.Index() != i || b.IsLast() != (i == 3) {
				return errors.New("buckets have wrong indices")
			}
		}
		if want := []int{64, 384, 144, 8}; !slices.Equal(sizes, want) {
			return fmt.Errorf("sizes are %v, want %v", sizes, want)
		}
		for s := range 3 {
			if err := backward(p, r, s); err != nil {
				return err
			}
		}
		stats := p.Reducer().Stats()
		if stats.Rebuilds != 1 || stats.Passes != 3 || stats.Buckets != 4+2*len(names(p)) {
			return fmt.Errorf("stats are %+v", stats)
		}
		if got := names(p); !slices.Contains(got[0], "half") && !slices.Contains(got[0], "a.bias") {
			return fmt.Errorf("buckets were rebuilt as %v", got)
		}
		return p.Close()
	})
}

// Buckets are rebuilt in rank 0's order, also if another rank's gradients become final in a different order.
func TestCase16RebuiltInTheOrderOfRank0(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		var params []ddp.Named
		for i := range 3 {
			params = append(params, ddp.Named{Name: fmt.Sprint("p", i), Tensor: op.Full([]int{2}, core.Num(1), op.TensorOptions{}).SetRequiresGrad(true)})
		}
		red, err := ddp.NewReducer(r.World, params, ddp.Options{FirstBucketBytes: 1, BucketBytes: 1})
		if err != nil {
			return err
		}
		order := []int{0, 1, 2}
		if r.Rank == 1 {
			order = []int{2, 0, 1}
		}
		for s := range 3 {
			if err := red.Forward(1); err != nil {
				return err
			}
			sum := core.Scalar(0.0)
			for _, i := range order { // backward runs in reverse
				sum = op.Add(sum, op.Sum(op.Mul(params[i].Tensor, core.Num(float64(10*s+i+r.Rank))), nil, false))
			}
			if err := autograd.Backward(sum); err != nil {
				return err
			}
			for i, p := range params {
				v, err := core.Values[float64](p.Tensor.Grad())
				if err != nil {
					return err
				}
				if want := float64(10*s+i) + 0.5; v[0] != want || v[1] != want {
					return fmt.Errorf("step %d: the gradient of p%d is %v, want %v", s, i, v, want)
				}
				p.Tensor.SetGrad(nil)
			}
		}
		var got []string
		for _, b := range red.Buckets() {
			got = append(got, b.Names()...)
		}
		if want := []string{"p2", "p1", "p0"}; !slices.Equal(got, want) {
			return fmt.Errorf("buckets hold %v, want %v", got, want)
		}
		return red.Close()
	})
}

// All buckets but the last are reduced before the last gradient is final. With DelayAllReduce none is.
func TestCase17OverlapsWithBackward(t *testing.T) {
	for _, delay := range []bool{false, true} {
		spawn(t, 2, func(r *collective.Rank) error {
			m := mlp()
			o := small
			o.DelayAllReduce = delay
			p, err := ddp.New(m, r.World, o)
			if err != nil {
				return err
			}
			early := -1
			first := nn.Parameters(m)[0] // its gradient becomes final last
			remove := first.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
				early = p.Reducer().Stats().Buckets
				return nil
			}})
			defer remove()
			if err := backward(p, r, 0); err != nil {
				return err
			}
			if all := p.Reducer().Stats().Buckets; all < 3 || early != all-1 && !delay || early != 0 && delay {
				return fmt.Errorf("delay %v: %d of %d buckets were reduced before the last gradient was final", delay, early, all)
			}
			return p.Close()
		})
	}
}

// With BucketView, gradients are views of the buckets, which saves memory. They are views again after gradients were set to nil.
func TestCase24BucketView(t *testing.T) {
	held := map[bool]int{}
	for _, view := range []bool{true, false} {
		spawn(t, 1, func(r *collective.Rank) error {
			m := nn.NewSequential(nn.NewLinear(width, 200, nn.LinearOptions{}), nn.NewLinear(200, 2, nn.LinearOptions{}))
			p, err := ddp.New(m, r.World, ddp.Options{BucketView: view})
			if err != nil {
				return err
			}
			if !view { // a hook needs buffers besides the gradients
				if err := p.Reducer().RegisterHook(ddp.AllReduceHook); err != nil {
					return err
				}
			}
			for s := range 3 {
				nn.ZeroGrad(p)
				if err := backward(p, r, s); err != nil {
					return err
				}
				storage := map[*core.Storage]bool{}
				for _, q := range nn.Parameters(p) {
					storage[q.Grad().Storage()] = true
				}
				if shared := len(storage) == 1; shared != view {
					return fmt.Errorf("step %d: gradients share memory: %v", s, shared)
				}
			}
			all := map[*core.Storage]bool{}
			for _, q := range nn.Parameters(p) {
				all[q.Grad().Storage()] = true
			}
			for _, b := range p.Reducer().Buckets() {
				all[b.Buffer().Storage()] = true
			}
			for s := range all {
				held[view] += s.Size()
			}
			return p.Close()
		})
	}
	require.Less(t, held[true], held[false]*6/10)
}

// Gradients of two-byte dtypes start at 32-bit words of the buffer, since a GPU thread writes whole words.
func TestCase16HalfGradientsAlignToWords(t *testing.T) {
	spawn(t, 1, func(r *collective.Rank) error {
		m := &struct{ nn.Base }{}
		for i, n := range []int{3, 1, 5} {
			m.RegisterParameter(fmt.Sprint("p", i), op.To(op.Ones(n), core.BFloat16).Detach().Keep().SetRequiresGrad(true))
		}
		p, err := ddp.New(m, r.World, ddp.Options{BucketView: true})
		if err != nil {
			return err
		}
		b := p.Reducer().Buckets()[0]
		if n := b.Buffer().Numel(); n != 12 {
			return fmt.Errorf("the buffer has %d elements, want 12", n)
		}
		for _, g := range b.Gradients() {
			if g.Offset()%2 != 0 {
				return fmt.Errorf("a gradient starts at element %d", g.Offset())
			}
		}
		return p.Close()
	})
}
