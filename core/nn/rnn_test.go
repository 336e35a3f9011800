package nn_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/cpu/blas"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

func floats(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// naive runs one sequence x [t][in] through one layer and direction of a network, by the definition.
func naive(t *testing.T, kind string, state map[string]*core.Tensor, suffix string, x [][]float64, h, c []float64) (out [][]float64, lastH, lastC []float64) {
	read := func(name string) []float64 {
		if p := state[name+suffix]; p != nil {
			return floats(t, p)
		}
		return nil
	}
	wih, whh, bih, bhh, whr := read("weight_ih"), read("weight_hh"), read("bias_ih"), read("bias_hh"), read("weight_hr")
	product := func(w, v, bias []float64) []float64 {
		y := make([]float64, len(w)/len(v))
		for i := range y {
			for j, a := range v {
				y[i] += w[i*len(v)+j] * a
			}
			if bias != nil {
				y[i] += bias[i]
			}
		}
		return y
	}
	for _, v := range x {
		a, b := product(wih, v, bih), product(whh, h, bhh)
		n := map[string]int{"rnn": len(a), "relu": len(a), "lstm": len(a) / 4, "gru": len(a) / 3}[kind]
		next, cell := make([]float64, n), make([]float64, n)
		for i := range n {
			switch kind {
			case "rnn":
				next[i] = math.Tanh(a[i] + b[i])
			case "relu":
				next[i] = max(a[i]+b[i], 0)
			case "lstm":
				in, forget := sigmoid(a[i]+b[i]), sigmoid(a[n+i]+b[n+i])
				cell[i] = forget*c[i] + in*math.Tanh(a[2*n+i]+b[2*n+i])
				next[i] = sigmoid(a[3*n+i]+b[3*n+i]) * math.Tanh(cell[i])
			case "gru":
				reset, update := sigmoid(a[i]+b[i]), sigmoid(a[n+i]+b[n+i])
				next[i] = (1-update)*math.Tanh(a[2*n+i]+reset*b[2*n+i]) + update*h[i]
			}
		}
		if whr != nil {
			next = product(whr, next, nil)
		}
		h, c = next, cell
		out = append(out, h)
	}
	return out, h, c
}

func reversed(x [][]float64) [][]float64 {
	out := make([][]float64, len(x))
	for i := range x {
		out[len(x)-1-i] = x[i]
	}
	return out
}

func TestRecurrentNetworksAgainstTheirDefinition(t *testing.T) {
	for _, kind := range []string{"rnn", "relu", "lstm", "gru"} {
		for _, o := range []nn.RNNOptions{{}, {Layers: 2, Bidirectional: true}, {Layers: 2, BatchFirst: true, NoBias: true}, {ProjSize: 2, Layers: 2, Bidirectional: true}} {
			if o.ProjSize > 0 && kind != "lstm" {
				continue
			}
			core.ManualSeed(9)
			o.ReLU = kind == "relu"
			const steps, n, in, hidden = 4, 3, 5, 6
			out := hidden
			if o.ProjSize > 0 {
				out = o.ProjSize
			}
			layers, directions := max(o.Layers, 1), 1
			if o.Bidirectional {
				directions = 2
			}
			x := op.Randn(steps, n, in)
			h0, c0 := op.Randn(layers*directions, n, out), op.Randn(layers*directions, n, hidden)
			given := x
			if o.BatchFirst {
				given = op.Transpose(x, 0, 1)
			}
			var m nn.Module
			var y, h, c *core.Tensor
			switch kind {
			case "lstm":
				l := nn.NewLSTM(in, hidden, o)
				m = l
				y, h, c = l.Run(given, h0, c0)
			case "gru":
				l := nn.NewGRU(in, hidden, o)
				m = l
				y, h = l.Run(given, h0)
			default:
				l := nn.NewRNN(in, hidden, o)
				m = l
				y, h = l.Run(given, h0)
			}
			require.NoError(t, nn.Err(m))
			require.NoError(t, y.Err())
			if o.BatchFirst {
				y = op.Transpose(y, 0, 1)
			}
			require.Equal(t, []int{steps, n, directions * out}, y.Shape())
			state := nn.StateDict(m)
			xs, hs, cs, ys, hl := floats(t, x), floats(t, h0), floats(t, c0), floats(t, y), floats(t, h)
			for b := range n {
				seq := make([][]float64, steps)
				for s := range steps {
					seq[s] = xs[(s*n+b)*in : (s*n+b+1)*in]
				}
				for l := range layers {
					joined := make([][]float64, steps)
					for d := range directions {
						k := (l*directions+d)*n + b
						suffix := []string{"_l0", "_l0_reverse", "_l1", "_l1_reverse"}[2*l+d]
						source := seq
						if d == 1 {
							source = reversed(seq)
						}
						res, lastH, lastC := naive(t, kind, state, suffix, source, hs[k*out:(k+1)*out], cs[k*hidden:(k+1)*hidden])
						require.InDeltaSlice(t, lastH, hl[k*out:(k+1)*out], 1e-5)
						if kind == "lstm" {
							require.InDeltaSlice(t, lastC, floats(t, c)[k*hidden:(k+1)*hidden], 1e-5)
						}
						if d == 1 {
							res = reversed(res)
						}
						for s := range steps {
							joined[s] = append(joined[s], res[s]...)
						}
					}
					seq = joined
				}
				for s := range steps {
					require.InDeltaSlice(t, seq[s], ys[(s*n+b)*directions*out:(s*n+b+1)*directions*out], 1e-5, "%s %+v", kind, o)
				}
			}
			require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
			for _, p := range nn.NamedParameters(m) {
				require.NotNil(t, p.Tensor.Grad(), p.Name)
			}
		}
	}
}

func TestRecurrentNamesAndErrors(t *testing.T) {
	l := nn.NewLSTM(3, 4, nn.RNNOptions{Layers: 2, Bidirectional: true})
	require.Equal(t, []string{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
		"weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse",
		"weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1",
		"weight_ih_l1_reverse", "weight_hh_l1_reverse", "bias_ih_l1_reverse", "bias_hh_l1_reverse"}, names(nn.NamedParameters(l)))
	require.Equal(t, []int{16, 8}, nn.StateDict(l)["weight_ih_l1"].Shape())
	require.NoError(t, nn.ToDType(l, core.Float64))
	require.Equal(t, core.Float64, l.Registered("weight_hh_l1").DType())
	require.EqualError(t, l.Forward(op.Rand(2, 1, 5)).Err(), "lstm: got an input of shape [2 1 5], want [.., .., 3]")
	_, _, c := l.Run(op.RandWith([]int{2, 1, 3}, op.RandomOptions{DType: new(core.Float64)}), op.Rand(1, 1, 4), nil)
	require.EqualError(t, c.Err(), "lstm: got a state of shape [1 1 4], want [4 1 4]")
	require.ErrorContains(t, nn.Err(nn.NewGRU(3, 4, nn.RNNOptions{ProjSize: 2})), "gru: the projection must be smaller")
	one := nn.NewGRU(3, 4, nn.RNNOptions{})
	y, h := one.Run(op.Rand(5, 3), nil)
	require.Equal(t, []int{5, 4}, y.Shape())
	require.Equal(t, []int{1, 4}, h.Shape())
}

func TestCellsAreStepsOfTheirNetworks(t *testing.T) {
	x := op.Randn(2, 3)
	lstm, cell := nn.NewLSTM(3, 4, nn.RNNOptions{}), nn.NewLSTMCell(3, 4, nn.LinearOptions{})
	gru, gruCell := nn.NewGRU(3, 4, nn.RNNOptions{}), nn.NewGRUCell(3, 4, nn.LinearOptions{})
	rnn, rnnCell := nn.NewRNN(3, 4, nn.RNNOptions{}), nn.NewRNNCell(3, 4, nn.LinearOptions{})
	require.Equal(t, []string{"weight_ih", "weight_hh", "bias_ih", "bias_hh"}, names(nn.NamedParameters(cell)))
	for _, p := range [][2]nn.Module{{lstm, cell}, {gru, gruCell}, {rnn, rnnCell}} {
		state := map[string]*core.Tensor{}
		for name, v := range nn.StateDict(p[0]) {
			state[name[:len(name)-3]] = v
		}
		_, err := nn.LoadStateDict(p[1], state, true)
		require.NoError(t, err)
	}
	sequence := op.Unsqueeze(x, 0)
	h, c := cell.Step(x, nil, nil)
	_, wantH, wantC := lstm.Run(sequence, nil, nil)
	require.InDeltaSlice(t, floats(t, wantH), floats(t, h), 1e-6)
	require.InDeltaSlice(t, floats(t, wantC), floats(t, c), 1e-6)
	_, wantH = gru.Run(sequence, nil)
	require.InDeltaSlice(t, floats(t, wantH), floats(t, gruCell.Step(x, nil)), 1e-6)
	_, wantH = rnn.Run(sequence, nil)
	require.InDeltaSlice(t, floats(t, wantH), floats(t, rnnCell.Step(x, nil)), 1e-6)
}

// TestFusedLayersAgreeWithTheirCells compares a layer, values and gradients, with its cell run step by step: for batches
// that are cut along their sequences and along their features, in both directions.
func TestFusedLayersAgreeWithTheirCells(t *testing.T) {
	const steps, in, hidden = 4, 5, 35
	double := op.RandomOptions{DType: new(core.Float64)}
	for _, kind := range []string{"lstm", "gru"} {
		for _, n := range []int{3, 19} {
			for _, reverse := range []bool{false, true} {
				gates := map[string]int{"lstm": 4, "gru": 3}[kind] * hidden
				var leaves []*core.Tensor
				for _, shape := range [][]int{{steps, n, in}, {n, hidden}, {n, hidden}, {gates, in}, {gates, hidden}, {gates}, {gates}} {
					leaves = append(leaves, op.RandnWith(shape, double).SetRequiresGrad(true))
				}
				x, h, c := leaves[0], leaves[1], leaves[2]
				w := leaves[3:]
				o := op.RecurrentOptions{Reverse: reverse}
				var got, want []*core.Tensor
				var step func(x *core.Tensor)
				if kind == "lstm" {
					y, lastH, lastC := op.LSTMLayer(x, h, c, w[0], w[1], w[2], w[3], o)
					got = []*core.Tensor{y, lastH, lastC}
					cell := nn.NewLSTMCell(in, hidden, nn.LinearOptions{})
					cell.WeightIH, cell.WeightHH, cell.BiasIH, cell.BiasHH = w[0], w[1], w[2], w[3]
					step = func(x *core.Tensor) { h, c = cell.Step(x, h, c) }
				} else {
					leaves = append(leaves[:2:2], leaves[3:]...)
					y, lastH := op.GRULayer(x, h, w[0], w[1], w[2], w[3], o)
					got = []*core.Tensor{y, lastH}
					cell := nn.NewGRUCell(in, hidden, nn.LinearOptions{})
					cell.WeightIH, cell.WeightHH, cell.BiasIH, cell.BiasHH = w[0], w[1], w[2], w[3]
					step = func(x *core.Tensor) { h = cell.Step(x, h) }
				}
				states := make([]*core.Tensor, steps)
				for i := range states {
					at := i
					if reverse {
						at = steps - 1 - i
					}
					step(op.Select(x, 0, at))
					states[at] = h
				}
				want = []*core.Tensor{op.Stack(states, 0), h, c}[:len(got)]
				var seeds []*core.Tensor
				for i, y := range got {
					require.InDeltaSlice(t, floats(t, want[i]), floats(t, y), 1e-12)
					seeds = append(seeds, op.RandnWith(y.Shape(), double))
				}
				gw, err := autograd.Grad(want, leaves, seeds, autograd.Options{})
				require.NoError(t, err)
				gg, err := autograd.Grad(got, leaves, seeds, autograd.Options{})
				require.NoError(t, err)
				for i := range gw {
					require.InDeltaSlice(t, floats(t, gw[i]), floats(t, gg[i]), 1e-9, "%s, %d sequences, input %d", kind, n, i)
				}
			}
		}
	}
}

// TestLayersOfASequenceDoNotDependOnItsBatch holds a layer to the same bits however the batch is cut. OpenBLAS orders a
// sum by the size of the product, so with it the results are only close.
func TestLayersOfASequenceDoNotDependOnItsBatch(t *testing.T) {
	x, weights := op.Randn(6, 21, 40), op.Randn(4*40, 40)
	y, _, _ := op.LSTMLayer(x, nil, nil, weights, weights, nil, nil, op.RecurrentOptions{})
	some, _, _ := op.LSTMLayer(op.Narrow(x, 1, 3, 6), nil, nil, weights, weights, nil, nil, op.RecurrentOptions{})
	want, got := floats(t, op.Narrow(y, 1, 3, 6)), floats(t, some)
	if l, err := blas.Info(); err == nil && l.Path != "" {
		require.InDeltaSlice(t, want, got, 1e-5)
		return
	}
	require.Equal(t, want, got)
}
