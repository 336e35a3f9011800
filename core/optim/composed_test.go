package optim

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// adafactorReference is the update of a matrix with n columns, or of a vector (n = 0), written down with loops.
func adafactorReference(h Hyper, t float64, w, g []float64, n int, row, col []float64) {
	rms := func(x []float64) float64 {
		s := 0.0
		for _, v := range x {
			s += v * v
		}
		return math.Sqrt(s / float64(len(x)))
	}
	eps1, take := h["eps1"], math.Pow(t, h["beta2_decay"])
	size := max(rms(w), h["eps2"]) * min(h["lr"], 1/math.Sqrt(t))
	variance := make([]float64, len(w))
	if n == 0 {
		for i := range w {
			row[i] += take * (g[i]*g[i] - row[i])
			variance[i] = row[i]
		}
	} else {
		m := len(w) / n
		total := 0.0
		for i := range m {
			s := 0.0
			for k := range n {
				s += g[i*n+k] * g[i*n+k] / float64(n)
			}
			row[i] += take * (s - row[i])
			total += row[i] / float64(m)
		}
		for k := range n {
			s := 0.0
			for i := range m {
				s += g[i*n+k] * g[i*n+k] / float64(m)
			}
			col[k] += take * (s - col[k])
		}
		for i := range variance {
			variance[i] = row[i/n] * col[i%n] / max(total, eps1)
		}
	}
	update := make([]float64, len(w))
	for i := range update {
		update[i] = g[i] / math.Sqrt(max(variance[i], eps1*eps1))
	}
	clip := max(1, rms(update)/h["d"])
	for i := range w {
		w[i] = w[i]*(1-h["lr"]*h["weight_decay"]) - update[i]*size/clip
	}
}

func TestAdafactor(t *testing.T) {
	for _, h := range []Hyper{{"lr": 0.1, "eps1": 1e-6}, {"lr": 0.5, "eps1": 1e-3, "weight_decay": 0.1, "d": 1.5, "beta2_decay": -0.5}} {
		full, err := merge("adafactor", Defaults("adafactor"), h)
		require.NoError(t, err)
		want := [][]float64{start(3), start(35)}
		rows, col := [][]float64{make([]float64, 3), make([]float64, 5)}, make([]float64, 7)
		params := []*core.Tensor{leaf(core.Float64, want[0], 3), leaf(core.Float64, want[1], 5, 7)}
		o, err := New("adafactor", h, Params{Tensors: params})
		require.NoError(t, err)
		for n := 1; n <= 8; n++ {
			for k, p := range params {
				g := values(t, p)
				for i := range g {
					g[i] = gradient(g[i], float64(n), i)
				}
				adafactorReference(full, float64(n), want[k], g, 7*k, rows[k], col)
				p.SetGrad(core.FromSlice(g, p.Shape()...))
			}
			require.NoError(t, o.Step())
			for k, p := range params {
				require.InDeltaSlice(t, want[k], values(t, p), 1e-11)
			}
			if n == 4 { // states of their own shapes go through a dict
				d := o.StateDict()
				require.Equal(t, []int{5, 1}, d.Params[1].Tensors["row_var"].Shape())
				require.NotContains(t, d.Params[1].Tensors, "variance")
				other, err := New("adafactor", h, Params{Tensors: params})
				require.NoError(t, err)
				require.NoError(t, other.LoadStateDict(d))
				o = other
			}
		}
	}
}

func TestMuonMovesAlongOrthogonalMatrices(t *testing.T) {
	for _, shape := range [][]int{{3, 5}, {5, 3}} {
		p := leaf(core.Float32, make([]float64, 15), shape...)
		o, err := New("muon", Hyper{"lr": 1, "weight_decay": 0}, Params{Tensors: []*core.Tensor{p}})
		require.NoError(t, err)
		g := start(15)
		for i := range g {
			g[i] = math.Sin(float64(i*i + 1))
		}
		p.SetGrad(op.To(core.FromSlice(g, shape...), core.Float32))
		require.NoError(t, core.Autocast("cpu", core.BFloat16, func() { require.NoError(t, o.Step()) }))
		move := p.Detach()
		if shape[0] > shape[1] {
			move = op.Transpose(move, 0, 1)
		}
		gram := values(t, op.MatMul(move, op.Transpose(move, 0, 1)))
		scale := max(1, float64(shape[0])/float64(shape[1]))
		for i, v := range gram {
			if i%4 == 0 {
				require.InDelta(t, 1, v/scale, 0.5, "near the unit matrix")
			} else {
				require.InDelta(t, 0, v/scale, 0.25, "near the unit matrix")
			}
		}
	}
	_, err := New("muon", nil, Params{Tensors: []*core.Tensor{leaf(core.Float32, start(3), 3)}})
	require.ErrorContains(t, err, "only matrices")
}

func TestRatesOfAveragingAndPlateausGoOn(t *testing.T) {
	rate := 1.0
	for epoch := 1; epoch <= 5; epoch++ {
		rate = AnnealSWA(rate, 0.2, epoch, 4, true)
		require.InDelta(t, max(0.2, 1-0.2*float64(epoch)), rate, 1e-12)
	}
	require.Equal(t, 0.2, AnnealSWA(1, 0.2, 1, 0, false))
	require.InDelta(t, 0.6, AnnealSWA(1, 0.2, 1, 2, false), 1e-12)

	p, err := NewReduceLROnPlateau(Rates([]float64{1}, []float64{1}, nil), PlateauOptions{Patience: new(int)})
	require.NoError(t, err)
	p.Continue(PlateauState{Best: 1, Bad: 0})
	require.True(t, p.Step(2))
	require.Equal(t, PlateauState{Best: 1}, p.Now())
}
