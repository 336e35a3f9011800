package tensor_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
)

// TestRowsWithoutARule compares the list in the documentation with the registry: at least 9 rows in 10 have a rule.
func TestRowsWithoutARule(t *testing.T) {
	var without []string
	for _, r := range op.Rows() {
		if op.RuleOf(r.Name) == nil {
			without = append(without, "`"+r.Name+"`")
		}
	}
	assert.LessOrEqual(t, 10*len(without), len(op.Rows()))
	text, err := os.ReadFile("../../docs/distributed-tensors.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "These have no rule:")
	require.True(t, found)
	list, _, _ := strings.Cut(rest, ".\n")
	got := strings.Fields(strings.ReplaceAll(list, ",", " "))
	slices.Sort(got)
	slices.Sort(without)
	assert.Equal(t, without, got, "docs/distributed-tensors.md should list: %s", strings.Join(without, ", "))
}

// TestColumnsThenRows counts: a layer divided by columns and one divided by rows take one all-reduce forward and one backward, however
// many layers read the input.
func TestColumnsThenRows(t *testing.T) {
	onMesh(t, []int{2}, func(m *mesh.Mesh) error {
		calls := func() int { return len(m.Group(0).Recorder()) }
		distribute := func(x *core.Tensor, p core.Placement) *core.Tensor {
			return tensor.Distribute(x, m, []core.Placement{p})
		}
		x := distribute(op.Randn(3, 4), core.Replicate()).SetRequiresGrad(true)
		up := distribute(op.Randn(8, 4), core.Shard(0)).SetRequiresGrad(true)
		gate := distribute(op.Randn(8, 4), core.Shard(0)).SetRequiresGrad(true)
		down := distribute(op.Randn(4, 8), core.Shard(1)).SetRequiresGrad(true)
		before := calls()
		h := op.Mul(op.Silu(op.Linear(x, gate, nil)), op.Linear(x, up, nil))
		y := tensor.Redistribute(op.Linear(h, down, nil), []core.Placement{core.Replicate()})
		if err := y.Err(); err != nil {
			return err
		}
		if n := calls() - before; n != 1 {
			return fmt.Errorf("%d collectives forward, want 1", n)
		}
		if err := autograd.Backward(op.Sum(y, nil, false)); err != nil {
			return err
		}
		if n := calls() - before; n != 2 {
			return fmt.Errorf("%d collectives in all, want 2", n)
		}
		return nil
	})
}

// TestPendingFactors tells what becomes of pending factors: those of products of matrices are divided first, unless the
// result is much smaller.
func TestPendingFactors(t *testing.T) {
	onMesh(t, []int{2}, func(m *mesh.Mesh) error {
		whole := core.Replicate()
		of := func(x *core.Tensor, p core.Placement) *core.Tensor {
			return tensor.Distribute(x, m, []core.Placement{p})
		}
		alike := func(x *core.Tensor) *core.Tensor { return tensor.Full(of(op.To(x, core.Float64), whole)) }
		x, w, narrow := alike(op.Randn(8, 64)), alike(op.Randn(64, 64)), alike(op.Randn(64, 4))
		for _, p := range []core.Placement{core.Partial(core.Sums), core.Partial(core.Means)} {
			for _, c := range []struct {
				name      string
				out, want *core.Tensor
				placed    core.Placement
			}{
				{"times", op.Mul(of(x, p), of(x, whole)), op.Mul(x, x), core.Partial(core.Sums)},
				{"by", op.Div(of(x, p), of(x, whole)), op.Div(x, x), core.Partial(core.Sums)},
				{"sum", op.Add(of(x, p), of(x, core.Partial(core.Sums))), op.Add(x, x), core.Partial(core.Sums)},
				{"product", op.MatMul(of(x, p), of(w, whole)), op.MatMul(x, w), core.Shard(0)},
				{"narrow product", op.MatMul(of(x, p), of(narrow, whole)), op.MatMul(x, narrow), core.Partial(core.Sums)},
			} {
				if got := tensor.Placements(c.out); !slices.Equal(got, []core.Placement{c.placed}) {
					return fmt.Errorf("%s of %v: placed %v, want %v", c.name, p, got, c.placed)
				}
				if err := near(c.name, tensor.Full(c.out), c.want); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// TestPendingParameters refuses parameters of which every rank would change a part of the sum by the whole step.
func TestPendingParameters(t *testing.T) {
	onMesh(t, []int{2}, func(m *mesh.Mesh) error {
		p := tensor.Distribute(op.Ones(4), m, []core.Placement{core.Partial(core.Sums)}).SetRequiresGrad(true)
		if _, err := optim.NewSGD([]*core.Tensor{p}, optim.Hyper{"lr": 1}); err == nil || !strings.Contains(err.Error(), "redistribute it") {
			return fmt.Errorf("got %v, want an error", err)
		}
		return nil
	})
}

// TestMistakes looks at what errors say.
func TestMistakes(t *testing.T) {
	onMesh(t, []int{2}, func(m *mesh.Mesh) error {
		x := tensor.Distribute(op.Ones(4, 3), m, []core.Placement{core.Shard(0)})
		for want, got := range map[string]*core.Tensor{
			"cannot shard dimension 2":       tensor.Distribute(op.Ones(4, 3), m, []core.Placement{core.Shard(2)}),
			"2 placements for the 1":         tensor.Redistribute(x, []core.Placement{core.Replicate(), core.Replicate()}),
			"input 1 is an ordinary tensor":  op.Add(x, op.Ones(3)),
			"want a distributed tensor":      tensor.Full(op.Ones(3)),
			"has a part of shape":            tensor.FromLocal(op.Ones(4), m, []core.Placement{core.Shard(0)}, []int{5}),
			"needs another placement":        op.AddInPlace(tensor.Distribute(op.Ones(4, 3), m, []core.Placement{core.Partial(core.Sums)}), core.Num(1)),
			"shapes [[4 3] [3 4]] do not":    op.Add(x, tensor.Distribute(op.Ones(3, 4), m, nil)),
			"no gradient passes through Par": op.Exp(tensor.FromLocal(op.Ones(4).SetRequiresGrad(true), m, []core.Placement{core.Partial(core.Maxima)}, nil)),
		} {
			if err := got.Err(); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v, want an error with %q", got, want)
			}
		}
		return nil
	})
}

func alike(x, y *core.Tensor) bool { return equal([]*core.Tensor{x}, []*core.Tensor{y}) == nil }

// TestRandomStatesAgree draws on ranks with seeds of their own: replicated numbers are equal, and divided ones are those of one device.
func TestRandomStatesAgree(t *testing.T) {
	for _, shape := range [][]int{{3}, {2, 2}} {
		onMesh(t, shape, func(m *mesh.Mesh) error {
			first := !slices.ContainsFunc(m.Coordinate(), func(c int) bool { return c > 0 })
			gen := core.CurrentContext().Generator(op.Ones(1).Device())
			for i, diverge := range []func(){
				func() { core.ManualSeed(1) },
				func() { core.ManualSeed(2) }, // a seed after the ranks agreed
				func() { op.Randn(100) },      // a draw that the others do not make
				func() { gen.SetState(3, 4) }, // a state that was kept
			} {
				seed := uint64(7 + i)
				core.ManualSeed(seed)
				want := op.Dropout(op.Ones(6, 5), 0.5, true)
				core.ManualSeed(seed)
				if !first {
					diverge()
				}
				replicated := tensor.Distribute(op.Ones(6, 5), m, nil)
				state := func() string { return fmt.Sprint(gen.State()) }
				before := state()
				if got := op.Dropout(replicated, 0.5, true).Parts().Local(); !alike(got, want) {
					return fmt.Errorf("replicated: %v, want %v", got, want)
				}
				if state() == before {
					return fmt.Errorf("the generator has not moved")
				}
				core.ManualSeed(seed)
				sharded := tensor.Distribute(op.Ones(6, 5), m, []core.Placement{core.Shard(0)})
				if got := tensor.Full(op.Dropout(sharded, 0.5, true)); !alike(got, want) {
					return fmt.Errorf("divided: %v, want %v", got, want)
				}
			}
			return nil
		})
	}
}

// TestGradientsThatAreSet lie as their tensor's gradient does, or are refused.
func TestGradientsThatAreSet(t *testing.T) {
	onMesh(t, []int{2}, func(m *mesh.Mesh) error {
		p := tensor.Distribute(op.Ones(4), m, []core.Placement{core.Shard(0)}).SetRequiresGrad(true)
		p.SetGrad(tensor.Distribute(op.Ones(4), m, nil))
		if got := p.Grad(); !slices.Equal(tensor.Placements(got), tensor.Placements(p)) || !alike(tensor.Full(got), op.Ones(4)) {
			return fmt.Errorf("got %v with placements %v", got, tensor.Placements(got))
		}
		p.SetGrad(op.Ones(4))
		if err := p.Grad().Err(); err == nil || !strings.Contains(err.Error(), "is a distributed tensor") {
			return fmt.Errorf("an ordinary gradient: got %v, want an error", err)
		}
		x := op.Ones(4).SetRequiresGrad(true)
		x.SetGrad(tensor.Distribute(op.Ones(4), m, nil))
		if err := x.Grad().Err(); err == nil || !strings.Contains(err.Error(), "for an ordinary tensor") {
			return fmt.Errorf("a distributed gradient: got %v, want an error", err)
		}
		return nil
	})
}

// TestEmbeddingRenorm compares the scaling of used rows in place with that on one device, for rows and for columns that ranks share.
func TestEmbeddingRenorm(t *testing.T) {
	for _, placed := range [][]core.Placement{{core.Shard(0)}, {core.Shard(1)}, {core.Shard(0), core.Shard(1)}, {core.InterleavedShard(0, 2), core.Shard(0)}, nil} {
		axes := []int{3}
		if len(placed) == 2 {
			axes = []int{2, 3}
		}
		onMesh(t, axes, func(m *mesh.Mesh) error {
			for _, order := range []float64{1, 2, 3.5} {
				whole := op.Div(numbered(7, 4), core.Num(10))
				used := core.FromSlice([]int64{6, 1, 1, 3}, 2, 2)
				d := tensor.Distribute(whole, m, placed)
				got := op.EmbeddingRenormInPlace(d, tensor.Distribute(used, m, nil), 1, order)
				if got != d {
					return fmt.Errorf("another tensor, %v", got)
				}
				want := op.EmbeddingRenormInPlace(op.Clone(whole), used, 1, order)
				if err := equal([]*core.Tensor{tensor.Full(d)}, []*core.Tensor{want}); err != nil {
					return fmt.Errorf("%v, order %v: %w", placed, order, err)
				}
			}
			return nil
		})
	}
}
