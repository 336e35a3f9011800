package layers_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
	"github.com/plait-ml/plait/parallel/tensor/layers"
)

const width, kinds, batch, length = 6, 7, 2, 4

// onRanks runs fn on n ranks that share a device, in float64. No op without a rule may gather its inputs.
func onRanks(t *testing.T, n int, fn func(m *mesh.Mesh) error) {
	t.Helper()
	require.NoError(t, collective.Spawn(n, []string{"cpu:0"}, collective.Options{Timeout: 2 * time.Minute}, func(r *collective.Rank) error {
		if err := core.CurrentContext().SetDefaultDType(core.Float64); err != nil {
			return err
		}
		m, err := mesh.New(r.World, []int{n}, mesh.Options{Names: []string{"tp"}})
		if err != nil {
			return err
		}
		core.WithMode(func(m core.Mode) core.Mode { return m.WithStrict(true) }, func() { err = fn(m) })
		return err
	}))
}

// languageModel returns an embedding, blocks of a norm and two layers, and the scores of the vocabulary, by the embedding's weight if tied.
func languageModel(tied bool) *nn.Sequential {
	core.ManualSeed(3)
	table := nn.NewEmbedding(kinds, width, nn.EmbeddingOptions{})
	list := []nn.Layer{table}
	for range 2 {
		list = append(list, nn.NewSequential(nn.NewLayerNorm([]int{width}, nn.NormOptions{}), nn.NewLinear(width, 10, nn.LinearOptions{}), nn.NewTanh(),
			nn.NewLinear(10, width, nn.LinearOptions{})))
	}
	head := nn.NewLinear(width, kinds, nn.LinearOptions{NoBias: true})
	if tied {
		head.Weight = table.Weight
	}
	model := nn.NewSequential(append(list, head)...)
	for _, p := range nn.Parameters(model) {
		p.Keep()
	}
	return model
}

func plan(sequence bool) map[string]layers.Style {
	out := core.Replicate()
	p := map[string]layers.Style{"3": layers.Columns{}}
	if sequence {
		out = core.Shard(1)
		p["*.0"] = layers.Sequence{}
	}
	p["0"], p["*.1"], p["*.3"] = layers.Rows{Output: out}, layers.Columns{}, layers.Rows{Output: out}
	return p
}

// step returns the loss and the gradients of a model.
func step(model *nn.Sequential) (loss *core.Tensor, grads []*core.Tensor, err error) {
	codes := core.FromSlice([]int64{0, 1, 2, 3, 6, 5, 4, 1}, batch, length)
	core.WithMode(func(m core.Mode) core.Mode { return m.WithReplicates(true) }, func() {
		scores := nn.Call(model, codes)
		loss = op.CrossEntropy(op.Flatten(scores, 0, 1), core.FromSlice([]int64{1, 2, 3, 4, 5, 6, 0, 2}, batch*length), op.CrossEntropyOptions{})
		if loss.Parts() != nil {
			loss = tensor.Full(loss)
		}
		err = autograd.Backward(loss)
	})
	for _, p := range nn.Parameters(model) {
		g := p.Grad()
		if g != nil && g.Parts() != nil {
			g = tensor.Full(g)
		}
		grads = append(grads, g)
	}
	return loss, grads, err
}

func values(list []*core.Tensor) (all []float64, err error) {
	for _, t := range list {
		v, err := core.Values[float64](t)
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return all, nil
}

func TestDividedLayersTrainAsOneDevice(t *testing.T) {
	for _, n := range []int{2, 3} { // 7 classes and 10 features do not divide by 3
		for _, sequence := range []bool{false, true} {
			for _, tied := range []bool{false, true} {
				t.Run(fmt.Sprint(n, sequence, tied), func(t *testing.T) {
					onRanks(t, n, func(m *mesh.Mesh) error {
						alone := languageModel(tied)
						loss, grads, err := step(alone)
						if err != nil {
							return err
						}
						want, err := values(append(grads, loss))
						if err != nil {
							return err
						}
						model := languageModel(tied)
						if err := layers.Divide(model, m, plan(sequence)); err != nil {
							return err
						}
						for _, p := range nn.NamedParameters(model) {
							_, norm := map[string]bool{"1.0.weight": true, "1.0.bias": true, "2.0.weight": true, "2.0.bias": true}[p.Name]
							assert.Equal(t, sequence || !norm, p.Tensor.Parts() != nil, p.Name)
						}
						loss, grads, err = step(model)
						if err != nil {
							return err
						}
						got, err := values(append(grads, loss))
						if err != nil {
							return err
						}
						assert.InDeltaSlice(t, want, got, 1e-12)
						return nil
					})
				})
			}
		}
	}
}

// TestWhatAPairOfLayersExchanges counts the collectives of one more pair of a column and a row layer.
func TestWhatAPairOfLayersExchanges(t *testing.T) {
	onRanks(t, 2, func(m *mesh.Mesh) error {
		calls := func(pairs int, sequence bool) (map[string]int, error) {
			core.ManualSeed(3)
			var list []nn.Layer
			p := map[string]layers.Style{}
			x := core.Placement{}
			out := core.Replicate()
			if sequence {
				x, out = core.Shard(1), core.Shard(1)
			}
			for i := range pairs {
				list = append(list, nn.NewLinear(width, 8, nn.LinearOptions{NoBias: true}), nn.NewTanh(), nn.NewLinear(8, width, nn.LinearOptions{NoBias: true}))
				p[fmt.Sprint(3*i)], p[fmt.Sprint(3*i+2)] = layers.Columns{Input: x}, layers.Rows{Output: out}
			}
			model := nn.NewSequential(list...)
			if err := layers.Divide(model, m, p); err != nil {
				return nil, err
			}
			before := m.Group(0).Stats().Calls
			in := op.Rand(batch, length, width).SetRequiresGrad(true)
			y := nn.Call(model, in)
			if err := autograd.Backward(op.Sum(op.Square(tensor.Local(y, nil)), nil, false)); err != nil {
				return nil, err
			}
			after := m.Group(0).Stats().Calls
			for kind := range after {
				after[kind] -= before[kind]
			}
			return after, nil
		}
		for _, sequence := range []bool{false, true} {
			two, err := calls(2, sequence)
			if err != nil {
				return err
			}
			three, err := calls(3, sequence)
			if err != nil {
				return err
			}
			more := map[string]int{}
			for kind, n := range three {
				if n > two[kind] {
					more[kind] = n - two[kind]
				}
			}
			want := map[string]int{"all_reduce": 2}
			if sequence {
				want = map[string]int{"all_gather": 2, "reduce_scatter": 2}
			}
			assert.Equal(t, want, more, "sequence %v", sequence)
		}
		return nil
	})
}

func TestWrongPlans(t *testing.T) {
	onRanks(t, 2, func(m *mesh.Mesh) error {
		model := languageModel(false)
		before := nn.Parameters(model)
		for _, c := range []struct {
			plan map[string]layers.Style
			want string
		}{
			{map[string]layers.Style{"9": layers.Rows{}}, `the plan names "9"; the module has 0, 1, 1.0`},
			{map[string]layers.Style{"*.0": layers.Rows{}}, "1.0: divide: Rows wants a Linear or an Embedding, got *nn.LayerNorm"},
			{map[string]layers.Style{"0": nil}, "0 has no style"},
			{map[string]layers.Style{"0": (*layers.Columns)(nil)}, "0 has no style"},
			{map[string]layers.Style{"0": layers.Rows{Pieces: -1}}, "0: want at least one piece, got -1"},
			{map[string]layers.Style{fmt.Sprint(m.Coordinate()[0]): layers.Columns{}}, "the ranks' plans differ: rank 0 has"},
		} {
			assert.ErrorContains(t, layers.Divide(model, m, c.plan), c.want)
			assert.True(t, slices.Equal(before, nn.Parameters(model)))
		}
		wide, err := mesh.New(m.Group(0), []int{2, 1}, mesh.Options{})
		if err != nil {
			return err
		}
		assert.ErrorContains(t, layers.Divide(model, wide, nil), "want a mesh of one dimension")
		return nil
	})
}

func TestOtherModels(t *testing.T) {
	onRanks(t, 2, func(m *mesh.Mesh) error {
		linear := func(in, out int) nn.Layer { return nn.NewLinear(in, out, nn.LinearOptions{}) }
		plan := map[string]layers.Style{"1": layers.Columns{}}
		for _, c := range []struct {
			layers [2][]nn.Layer
			want   string
		}{
			{[2][]nn.Layer{{linear(2, 3), linear(3, 4)}, {linear(2, 3), linear(3, 6)}},
				"the ranks' modules differ: rank 0 has 1.weight, float64 of shape [4 3], rank 1 has 1.weight, float64 of shape [6 3]"},
			{[2][]nn.Layer{{linear(2, 3), linear(3, 4)}, {linear(2, 3)}}, "rank 0 has 1, a *nn.Linear, rank 1 has nothing there"},
		} {
			err := layers.Divide(nn.NewSequential(c.layers[m.Coordinate()[0]]...), m, plan)
			assert.ErrorContains(t, err, c.want)
		}
		same := []nn.Layer{linear(2, 3+m.Coordinate()[0]), linear(3, 4)} // the plan does not name what differs
		return layers.Divide(nn.NewSequential(same...), m, plan)
	})
}
