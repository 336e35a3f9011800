package optim

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// rosenbrock is the sum of 100 (y - x^2)^2 + (1 - x)^2 over the elements of x and y; its gradient is set by hand.
func rosenbrock(t *testing.T, x, y *core.Tensor) func() (*core.Tensor, error) {
	return func() (*core.Tensor, error) {
		a, b := values(t, x), values(t, y)
		loss := 0.0
		ga, gb := make([]float64, len(a)), make([]float64, len(a))
		for i := range a {
			u, v := b[i]-a[i]*a[i], 1-a[i]
			loss += 100*u*u + v*v
			ga[i], gb[i] = -400*u*a[i]-2*v, 200*u
		}
		x.SetGrad(core.FromSlice(ga, x.Shape()...))
		y.SetGrad(core.FromSlice(gb, y.Shape()...))
		return core.Scalar(loss), nil
	}
}

func TestLBFGSFindsTheMinimum(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, h := range []Hyper{{"strong_wolfe": 1, "max_iter": 100, "max_eval": 300}, {"strong_wolfe": 1}, {"lr": 0.1, "max_iter": 400, "history_size": 3}} {
		x, y := leaf(core.Float64, []float64{-1.2, 0.5, 2}, 3), leaf(core.Float64, []float64{1, -1, 3}, 1, 3)
		o, err := NewLBFGS([]*core.Tensor{x, y}, h)
		require.NoError(t, err)
		first, last := 0.0, 0.0
		for n := range 20 {
			last, err = o.StepWith(rosenbrock(t, x, y))
			require.NoError(t, err)
			if n == 0 {
				first = last
			}
		}
		require.Greater(t, first, 100.0)
		require.Less(t, last, 1e-6, "%v", h)
		require.InDeltaSlice(t, []float64{1, 1, 1}, values(t, x), 1e-3)
		require.InDeltaSlice(t, []float64{1, 1, 1}, values(t, y), 1e-3)
	}
}

// On a quadratic the method's directions are those of the textbook's BFGS with exact arithmetic: the first steps can be
// followed by hand.
func TestLBFGSFollowsTheFormula(t *testing.T) {
	x := leaf(core.Float64, []float64{3, -2}, 2)
	curvature := []float64{1, 4}
	loss := func() (*core.Tensor, error) {
		v := values(t, x)
		g := []float64{curvature[0] * v[0], curvature[1] * v[1]}
		x.SetGrad(core.FromSlice(g))
		return core.Scalar((g[0]*v[0] + g[1]*v[1]) / 2), nil
	}
	o, err := NewLBFGS([]*core.Tensor{x}, Hyper{"max_iter": 2, "lr": 0.5, "max_eval": 10})
	require.NoError(t, err)
	_, err = o.StepWith(loss)
	require.NoError(t, err)
	// By hand, with the inverse Hessian as a 2 by 2 matrix.
	w := []float64{3, -2}
	g := []float64{3, -8}
	t1 := 0.5 * (1.0 / 11)
	s := []float64{-t1 * g[0], -t1 * g[1]}
	w = []float64{w[0] + s[0], w[1] + s[1]}
	g2 := []float64{w[0], 4 * w[1]}
	y := []float64{g2[0] - g[0], g2[1] - g[1]}
	ys, yy := y[0]*s[0]+y[1]*s[1], y[0]*y[0]+y[1]*y[1]
	h := [2][2]float64{{ys / yy, 0}, {0, ys / yy}}
	v := [2][2]float64{{1 - y[0]*s[0]/ys, -y[0] * s[1] / ys}, {-y[1] * s[0] / ys, 1 - y[1]*s[1]/ys}}
	var d [2]float64
	for i := range 2 {
		for j := range 2 {
			b := s[i] * s[j] / ys
			for k := range 2 {
				for l := range 2 {
					b += v[k][i] * h[k][l] * v[l][j]
				}
			}
			d[i] -= b * g2[j]
		}
	}
	require.InDeltaSlice(t, []float64{w[0] + 0.5*d[0], w[1] + 0.5*d[1]}, values(t, x), 1e-12)
}

func TestLBFGSResumesBitExactly(t *testing.T) {
	for _, wolfe := range []float64{0, 1} {
		run := func(stop bool) []float64 {
			h := Hyper{"strong_wolfe": wolfe, "max_iter": 4, "lr": 0.2, "history_size": 3}
			x, y := leaf(core.Float64, []float64{-1.2, 0.5, 2}, 3), leaf(core.Float64, []float64{1, -1, 3}, 1, 3)
			o, err := NewLBFGS([]*core.Tensor{x, y}, h)
			require.NoError(t, err)
			for n := range 4 {
				if stop && n == 2 {
					d := o.StateDict()
					text, err := json.Marshal(d)
					require.NoError(t, err)
					var read StateDict
					require.NoError(t, json.Unmarshal(text, &read))
					require.NoError(t, read.Unflatten(d.Flatten()))
					o, err = NewLBFGS([]*core.Tensor{x, y}, nil)
					require.NoError(t, err)
					require.NoError(t, o.LoadStateDict(&read))
				}
				_, err = o.StepWith(rosenbrock(t, x, y))
				require.NoError(t, err)
			}
			return append(values(t, x), values(t, y)...)
		}
		require.Equal(t, run(false), run(true))
	}
}

// Whatever evaluation fails, the parameters are where they were, and nothing is left in memory.
func TestLBFGSFailureChangesNothing(t *testing.T) {
	for _, wolfe := range []float64{0, 1} {
		for fail := range 6 {
			alone(t, func(usage func(int) int) { failingEvaluation(t, wolfe, fail, usage) })
		}
	}
	o, err := NewLBFGS([]*core.Tensor{leaf(core.Float32, start(2), 2)}, nil)
	require.NoError(t, err)
	require.EqualError(t, o.Step(), "lbfgs: a step evaluates the loss several times: use StepWith")
}

func failingEvaluation(t *testing.T, wolfe float64, fail int, usage func(int) int) {
	x, y := leaf(core.Float64, []float64{-1.2, 0.5, 2}, 3), leaf(core.Float64, []float64{1, -1, 3}, 1, 3)
	o, err := NewLBFGS([]*core.Tensor{x, y}, Hyper{"strong_wolfe": wolfe, "lr": 0.01})
	require.NoError(t, err)
	loss := rosenbrock(t, x, y)
	core.Tidy(func() {
		_, err = o.StepWith(loss)
		require.NoError(t, err)
	})
	o.ZeroGrad()
	before := append(values(t, x), values(t, y)...)
	state, bytes := o.StateDict(), usage(-1)
	n := 0
	core.Tidy(func() {
		_, err = o.StepWith(func() (*core.Tensor, error) {
			if n++; n > fail {
				return nil, errors.New("no more data")
			}
			return loss()
		})
	})
	o.ZeroGrad()
	require.ErrorContains(t, err, "no more data")
	require.Equal(t, before, append(values(t, x), values(t, y)...))
	require.Equal(t, state, o.StateDict())
	require.Equal(t, bytes, usage(-1), "wolfe %v, failure %d", wolfe, fail)
}

// A search whose first probe is far out ends as far from its start as the rate says that it has chosen, and where it evaluated:
// nothing is left of the digits that the parameters have far out.
func TestLineSearchReturnsFromFarOut(t *testing.T) {
	start := []float64{0.001, 0.25, -0.125}
	x := leaf(core.Float32, start, 3)
	var points [][]float64
	o, err := NewLBFGS([]*core.Tensor{x}, Hyper{"strong_wolfe": 1, "max_iter": 1, "max_eval": 40, "lr": 1e8})
	require.NoError(t, err)
	_, err = o.StepWith(func() (*core.Tensor, error) {
		v := values(t, x)
		loss, g := 0.0, make([]float32, len(v))
		for i, at := range v {
			d := at - float64(i) - 0.5
			root := math.Sqrt(1 + d*d)
			loss, g[i] = loss+root, float32(d/root)
		}
		x.SetGrad(core.FromSlice(g))
		points = append(points, v)
		return core.Scalar(loss), nil
	})
	require.NoError(t, err)
	end, l := values(t, x), o.lbfgs
	require.Greater(t, math.Abs(points[1][0]), 1e6)
	require.Contains(t, points, end)
	for i, d := range values(t, l.direction) {
		require.InDelta(t, start[i]+l.rate*d, end[i], 1e-6)
	}
}

// A complex parameter is moved as the real one that its parts are, beside real ones too.
func TestLBFGSOfComplexNumbers(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, h := range []Hyper{{"lr": 0.3, "max_iter": 4}, {"strong_wolfe": 1, "max_iter": 4}} {
		parts := leaf(core.Float64, []float64{3, -2, 1, 0.5}, 2, 2)
		z := core.FromSlice([]complex128{3 - 2i, 1 + 0.5i}).SetRequiresGrad(true)
		shift := []*core.Tensor{leaf(core.Float64, []float64{0.5, 2}, 2), leaf(core.Float64, []float64{0.5, 2}, 2)}
		loss := func(x, y *core.Tensor, view func(*core.Tensor) *core.Tensor) func() (*core.Tensor, error) {
			return func() (*core.Tensor, error) {
				x.SetGrad(nil)
				y.SetGrad(nil)
				var l *core.Tensor
				core.EnableGrad(func() {
					v := view(x)
					d := op.Sub(op.Mul(v, op.Complex(y, op.Square(y))), core.Num(1))
					l = op.Sum(op.Square(op.Square(op.Abs(d))), nil, false)
				})
				return l, autograd.Backward(l)
			}
		}
		same := func(x *core.Tensor) *core.Tensor { return x }
		first, err := NewLBFGS([]*core.Tensor{z, shift[0]}, h)
		require.NoError(t, err)
		second, err := NewLBFGS([]*core.Tensor{parts, shift[1]}, h)
		require.NoError(t, err)
		for range 3 {
			a, err := first.StepWith(loss(z, shift[0], same))
			require.NoError(t, err)
			b, err := second.StepWith(loss(parts, shift[1], op.ViewAsComplex))
			require.NoError(t, err)
			require.InDelta(t, b, a, 1e-9*b)
		}
		require.InDeltaSlice(t, values(t, parts), values(t, op.ViewAsReal(z.Detach())), 1e-9)
		require.InDeltaSlice(t, values(t, shift[1]), values(t, shift[0]), 1e-9)
	}
}
