package layers_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
	"github.com/plait-ml/plait/parallel/tensor/layers"
)

// llama is a block with the layers of a Llama's, and as many heads.
type llama struct {
	nn.Base
	Norm1, Norm2               *nn.RMSNorm
	QProj, KProj, VProj, OProj *nn.Linear
	GateProj, UpProj, DownProj *nn.Linear
	heads                      int
}

func newLlama(heads int) *llama {
	linear := func(in, out int) *nn.Linear { return nn.NewLinear(in, out, nn.LinearOptions{NoBias: true}) }
	norm := func() *nn.RMSNorm { return nn.NewRMSNorm([]int{width}, nn.NormOptions{}) }
	return &llama{Norm1: norm(), Norm2: norm(), heads: heads,
		QProj: linear(width, width), KProj: linear(width, width), VProj: linear(width, width), OProj: linear(width, width),
		GateProj: linear(width, 8), UpProj: linear(width, 8), DownProj: linear(8, width)}
}

func (b *llama) Forward(x *core.Tensor) *core.Tensor {
	split := func(x *core.Tensor) *core.Tensor { return op.Transpose(op.Unflatten(x, -1, b.heads, -1), 1, 2) }
	h := nn.Call(b.Norm1, x)
	y := op.ScaledDotProductAttention(split(nn.Call(b.QProj, h)), split(nn.Call(b.KProj, h)), split(nn.Call(b.VProj, h)), op.AttentionOptions{Causal: true})
	x = op.Add(x, nn.Call(b.OProj, op.Flatten(op.Transpose(y, 1, 2), 2, 3)))
	h = nn.Call(b.Norm2, x)
	return op.Add(x, nn.Call(b.DownProj, op.Mul(op.Silu(nn.Call(b.GateProj, h)), nn.Call(b.UpProj, h))))
}

// readyModels returns models that [layers.Ready] knows, all of codes.
func readyModels() map[string]func() *nn.Sequential {
	of := func(block func() nn.Layer) func() *nn.Sequential {
		return func() *nn.Sequential {
			core.ManualSeed(3)
			table, head := nn.NewEmbedding(kinds, width, nn.EmbeddingOptions{}), nn.NewLinear(width, kinds, nn.LinearOptions{NoBias: true})
			head.Weight = table.Weight
			return nn.NewSequential(table, block(), block(), nn.NewLayerNorm([]int{width}, nn.NormOptions{}), head)
		}
	}
	return map[string]func() *nn.Sequential{
		"llama":  of(func() nn.Layer { return newLlama(2) }),
		"llama3": of(func() nn.Layer { return newLlama(3) }),
		"transformer": of(func() nn.Layer {
			return nn.NewTransformerEncoderLayer(width, 2, nn.TransformerOptions{FeedForward: 8, NormFirst: true})
		}),
		"sequential": func() *nn.Sequential { return languageModel(true) },
	}
}

func TestReadyPlansTrainAsOneDevice(t *testing.T) {
	for name, make := range readyModels() {
		for _, o := range []layers.ReadyOptions{{}, {Sequence: true}, {Pieces: 2}, {Sequence: true, Pieces: 3}} {
			t.Run(fmt.Sprintf("%s%+v", name, o), func(t *testing.T) {
				onRanks(t, 2, func(m *mesh.Mesh) error {
					loss, grads, err := step(make())
					if err != nil {
						return err
					}
					want, err := values(append(grads, loss))
					if err != nil {
						return err
					}
					model := make()
					plan, err := layers.Ready(model, o)
					if err != nil {
						return err
					}
					if err := layers.Divide(model, m, plan); err != nil {
						return err
					}
					if err := m.BeginPass(); err != nil {
						return err
					}
					if loss, grads, err = step(model); err != nil {
						return err
					}
					if _, err := m.Pass().End(-1); err != nil {
						return err
					}
					got, err := values(append(grads, loss))
					assert.InDeltaSlice(t, want, got, 1e-12)
					return err
				})
			})
		}
	}
}

func TestReadyPlansDivideAllOfABlock(t *testing.T) {
	attention := func() nn.Layer { return nn.NewMultiheadAttention(width, 2, nn.AttentionOptions{}) }
	onRanks(t, 2, func(m *mesh.Mesh) error {
		for _, model := range []nn.Layer{readyModels()["transformer"](), nn.NewSequential(nn.NewSequential(attention())), nn.NewSequential(attention())} {
			for _, p := range nn.Parameters(model) {
				p.Keep()
			}
			plan, err := layers.Ready(model, layers.ReadyOptions{})
			if err != nil {
				return err
			}
			if err := layers.Divide(model, m, plan); err != nil {
				return err
			}
			for _, p := range nn.NamedParameters(model) {
				for end, want := range map[string]core.Placement{"in_proj_weight": core.Shard(0), "in_proj_bias": core.Shard(0), "out_proj.weight": core.Shard(1), "out_proj.bias": core.Replicate()} {
					if strings.HasSuffix(p.Name, end) {
						assert.Equal(t, []core.Placement{want}, tensor.Placements(p.Tensor), p.Name)
					}
				}
			}
		}
		return nil
	})
}

// TestLayersSeeWhatAnInputHasBecome changes an input between two layers of a pass, and after it.
func TestLayersSeeWhatAnInputHasBecome(t *testing.T) {
	onRanks(t, 2, func(m *mesh.Mesh) error {
		core.ManualSeed(3)
		l := nn.NewLinear(2, 4, nn.LinearOptions{NoBias: true})
		weight := l.Weight.Detach()
		model := nn.NewSequential(l)
		out := core.Replicate()
		if err := layers.Divide(model, m, map[string]layers.Style{"0": layers.Columns{Output: &out, Local: true}}); err != nil {
			return err
		}
		if err := m.BeginPass(); err != nil {
			return err
		}
		x := op.Ones(1, 2)
		for i := range 3 {
			if i == 2 {
				if _, err := m.Pass().End(-1); err != nil {
					return err
				}
			}
			got, err := core.Values[float64](nn.Call(model, x))
			if err != nil {
				return err
			}
			want, err := core.Values[float64](op.Linear(x, weight, nil))
			if err != nil {
				return err
			}
			assert.InDeltaSlice(t, want, got, 1e-12)
			x.Adopt(op.Full([]int{1, 2}, core.Num(float64(i+2)), op.TensorOptions{}))
		}
		return nil
	})
}

// TestWhatReadyPlansExchange counts the collectives of a block, of the heads and of the features.
func TestWhatReadyPlansExchange(t *testing.T) {
	onRanks(t, 2, func(m *mesh.Mesh) error {
		calls := func(blocks int, o layers.ReadyOptions) (map[string]int, error) {
			core.ManualSeed(3)
			list := []nn.Layer{nn.NewEmbedding(kinds, width, nn.EmbeddingOptions{})}
			for range blocks {
				list = append(list, newLlama(2))
			}
			model := nn.NewSequential(append(list, nn.NewLinear(width, kinds, nn.LinearOptions{NoBias: true}))...)
			plan, err := layers.Ready(model, o)
			if err != nil {
				return nil, err
			}
			if err := layers.Divide(model, m, plan); err != nil {
				return nil, err
			}
			if err := m.BeginPass(); err != nil {
				return nil, err
			}
			before := m.Group(0).Stats().Calls
			core.WithMode(func(m core.Mode) core.Mode { return m.WithReplicates(true) }, func() {
				scores := nn.Call(model, core.FromSlice([]int64{0, 1, 2, 3, 6, 5, 4, 1}, batch, length))
				err = autograd.Backward(op.Sum(op.Square(scores), nil, false))
			})
			if err != nil {
				return nil, err
			}
			after := m.Group(0).Stats().Calls
			for kind := range after {
				after[kind] -= before[kind]
			}
			_, err = m.Pass().End(-1)
			return after, err
		}
		for _, c := range []struct {
			o    layers.ReadyOptions
			want map[string]int
		}{
			{layers.ReadyOptions{}, map[string]int{"all_reduce": 4}},
			{layers.ReadyOptions{Sequence: true}, map[string]int{"all_gather": 4, "reduce_scatter": 4, "all_reduce": 2}}, // gradients of two norms
			{layers.ReadyOptions{Pieces: 2}, map[string]int{"all_reduce": 8}},
		} {
			one, err := calls(1, c.o)
			if err != nil {
				return err
			}
			two, err := calls(2, c.o)
			if err != nil {
				return err
			}
			for kind, n := range one {
				two[kind] -= n
			}
			maps.DeleteFunc(two, func(_ string, n int) bool { return n == 0 })
			assert.Equal(t, c.want, two, "%+v", c.o)
		}
		return nil
	})
}

func TestReadyPlansByName(t *testing.T) {
	model := readyModels()["transformer"]()
	plan, err := layers.Ready(model, layers.ReadyOptions{})
	assert.NoError(t, err)
	assert.Equal(t, []string{"0", "1.linear1", "1.linear2", "1.self_attn", "1.self_attn.out_proj", "2.linear1", "2.linear2", "2.self_attn", "2.self_attn.out_proj", "4"},
		slices.Sorted(maps.Keys(plan)))
	assert.Equal(t, layers.Columns{}, plan["1.linear1"])
	whole := core.Replicate()
	assert.Equal(t, layers.Rows{Input: &whole, Local: true}, plan["1.self_attn.out_proj"])
	assert.Equal(t, layers.Heads{}, plan["1.self_attn"])

	_, err = layers.Ready(nn.NewSequential(nn.NewLinear(2, 2, nn.LinearOptions{})), layers.ReadyOptions{})
	assert.ErrorContains(t, err, "the linear layers are 0. Give a plan")
	_, err = layers.Ready(nn.NewTanh(), layers.ReadyOptions{})
	assert.ErrorContains(t, err, "the linear layers are none. Give a plan")
	_, err = layers.Ready(nil, layers.ReadyOptions{})
	assert.Error(t, err)
	_, err = layers.Ready(nn.NewSequential(nn.NewSequential(&nn.Linear{}, &nn.Linear{})), layers.ReadyOptions{})
	assert.Error(t, err)
}
