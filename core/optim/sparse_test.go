package optim

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// rowsGrad sets a gradient of rows, of which the first is given as two entries.
func rowsGrad(p *core.Tensor, d core.DType, rows []int64, v [][]float64) {
	var flat []float64
	for _, row := range v {
		flat = append(flat, row...)
	}
	values := op.To(core.FromSlice(flat, len(v), len(v[0])), d)
	twice := op.Cat([]*core.Tensor{values, op.Mul(op.Narrow(values, 0, 0, 1), core.Num(0.5))}, 0)
	at := op.Reshape(core.FromSlice(append(append([]int64{}, rows...), rows[0])), 1, len(rows)+1)
	p.SetGrad(op.SparseCOO(at, twice, p.Shape()))
}

// Steps by sparse gradients are those of the formulas on the rows that they have; a fresh Adam knows these rows alone.
func TestSparseTrajectories(t *testing.T) {
	for name, list := range map[string][]Hyper{
		"sgd": {{"lr": 0.1}, {"lr": 0.1, "maximize": 1}}, "adagrad": {{"lr": 0.3, "lr_decay": 0.1, "initial_accumulator_value": 0.5}},
		"sparse_adam": {{"lr": 0.1}, {"lr": 0.1, "beta1": 0.5, "beta2": 0.7, "eps": 0.1, "maximize": 1}},
	} {
		for _, h := range list {
			full, err := merge(name, Defaults(name), h)
			require.NoError(t, err)
			formula := references[name]
			if name == "sparse_adam" {
				formula = func(h Hyper, t, w, g float64, s map[string]float64) float64 {
					m, _ := moments(h, t, signed(h, g), s)
					return w - h["lr"]*math.Sqrt(1-math.Pow(h["beta2"], t))*m/(math.Sqrt(s["v"])+h["eps"])
				}
			}
			p := leaf(core.Float64, start(8), 4, 2)
			o, err := New(name, h, Params{Tensors: []*core.Tensor{p}})
			require.NoError(t, err)
			want, memory := start(8), map[int64]map[string]float64{}
			for n := 1; n <= 6; n++ {
				rows := [][]int64{{3, 1}, {1, 0}}[n%2]
				g := [][]float64{{math.Sin(float64(n)), 1}, {0.25, -float64(n)}}
				rowsGrad(p, core.Float64, rows, g)
				for i, row := range rows {
					for j := range 2 {
						at, total := 2*row+int64(j), g[i][j]
						if i == 0 {
							total *= 1.5
						}
						if memory[at] == nil {
							memory[at] = map[string]float64{}
						}
						if name == "adagrad" && memory[at]["sum"] == 0 {
							memory[at]["sum"] = h["initial_accumulator_value"]
						}
						want[at] = formula(full, float64(n), want[at], total, memory[at])
					}
				}
				require.NoError(t, o.Step())
				require.InDeltaSlice(t, want, values(t, p), 1e-11, "%s %v step %d", name, h, n)
			}
			require.InDeltaSlice(t, start(8)[4:6], values(t, p)[4:6], 0)
		}
	}
}

func TestSparseGradientsAsDenseOnes(t *testing.T) {
	for _, h := range []Hyper{{"lr": 0.1, "momentum": 0.9, "nesterov": 1}, {"lr": 0.1, "weight_decay": 0.1}} {
		p, q := leaf(core.Float32, start(8), 4, 2), leaf(core.Float32, start(8), 4, 2)
		o, err := NewSGD([]*core.Tensor{p, q}, h)
		require.NoError(t, err)
		for n := range 3 {
			rowsGrad(p, core.Float32, []int64{int64(n), 3}, [][]float64{{1, 2}, {3, 4}})
			q.SetGrad(op.ToDense(p.Grad()))
			require.NoError(t, o.Step())
			require.Equal(t, values(t, q), values(t, p))
		}
	}
}

func TestSparseGradientsOfHalves(t *testing.T) {
	p := leaf(core.BFloat16, []float64{1, 1, 1, 1}, 2, 2)
	o, err := NewSGD([]*core.Tensor{p}, Hyper{"lr": 1e-4, "master_weights": 1})
	require.NoError(t, err)
	for range 1000 {
		rowsGrad(p, core.BFloat16, []int64{1}, [][]float64{{1, 1}})
		require.NoError(t, o.Step())
	}
	require.Equal(t, []float64{1, 1}, values(t, p)[:2])
	require.InDelta(t, 0.85, values(t, p)[2], 0.008)
}

func TestSparseGradientsThatAreRefused(t *testing.T) {
	for name, want := range map[string]string{
		"adam": "Adam does not support sparse gradients, please consider SparseAdam instead", "lion": "does not support sparse gradients",
		"adafactor": "does not support sparse gradients", "muon": "does not support sparse gradients",
	} {
		p := leaf(core.Float64, start(8), 4, 2)
		o, err := New(name, nil, Params{Tensors: []*core.Tensor{p}})
		require.NoError(t, err)
		rowsGrad(p, core.Float64, []int64{1}, [][]float64{{1, 1}})
		require.ErrorContains(t, o.Step(), want)
		require.Equal(t, start(8), values(t, p))
	}
	p := leaf(core.Float64, start(8), 4, 2)
	o, err := NewAdagrad([]*core.Tensor{p}, Hyper{"weight_decay": 0.1})
	require.NoError(t, err)
	rowsGrad(p, core.Float64, []int64{1}, [][]float64{{1, 1}})
	require.ErrorContains(t, o.Step(), "weight_decay option is not compatible with sparse gradients")
	o, err = NewSparseAdam([]*core.Tensor{p}, nil)
	require.NoError(t, err)
	setGrads([]*core.Tensor{p}, 1)
	require.ErrorContains(t, o.Step(), "SparseAdam does not support dense gradients, please consider Adam instead")
	_, err = NewSGD([]*core.Tensor{op.SparseCOO(op.Reshape(core.FromSlice([]int64{0}), 1, 1), op.Ones(1), []int{1})}, nil)
	require.ErrorContains(t, err, "is a sparse tensor")
}

func TestNormsOfSparseGradients(t *testing.T) {
	p, q := leaf(core.Float64, start(8), 4, 2), leaf(core.Float64, start(2), 2)
	rowsGrad(p, core.Float64, []int64{1}, [][]float64{{2, 2}})
	setGrads([]*core.Tensor{q}, 2)
	norm := ClipGradNorm([]*core.Tensor{p, q}, 1, ClipOptions{})
	require.InDelta(t, math.Sqrt(18+20), values(t, norm)[0], 1e-6)
	require.InDelta(t, 3/math.Sqrt(38), values(t, op.ToDense(p.Grad()))[2], 1e-6)
	require.ErrorContains(t, ClipGradValue([]*core.Tensor{p}, 1), "clip the norm")
}
