package optim

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// rule updates one element by the formula in rules.h. g is the gradient after sign and weight decay, w the parameter
// after decoupled decay. It returns the new parameter and changes the states.
type rule struct {
	name   string
	states int
	update func(w, g float64, s []float64, x []float64) float64
}

func lerp(a, b, t float64) float64 { return a + t*(b-a) }

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

func adam(w, g float64, s, x []float64) float64 {
	s[0], s[1] = lerp(s[0], g, x[4]), x[5]*s[1]+x[6]*g*g
	return w - x[3]*s[0]/(math.Sqrt(s[1])/x[7]+x[8])
}

var rules = []rule{
	{"sgd", 0, func(w, g float64, s, x []float64) float64 { return w - x[3]*g }},
	{"momentum", 1, func(w, g float64, s, x []float64) float64 {
		s[0] = x[4]*s[0] + x[5]*g
		return w - x[3]*(x[6]*g+x[7]*s[0])
	}},
	{"adam", 2, adam},
	{"amsgrad", 3, func(w, g float64, s, x []float64) float64 {
		adam(w, g, s, x)
		s[2] = max(s[2], s[1])
		return w - x[3]*s[0]/(math.Sqrt(s[2])/x[7]+x[8])
	}},
	{"adamax", 2, func(w, g float64, s, x []float64) float64 {
		s[0], s[1] = lerp(s[0], g, x[4]), max(x[5]*s[1], math.Abs(g)+x[6])
		return w - x[3]*s[0]/s[1]
	}},
	{"nadam", 2, func(w, g float64, s, x []float64) float64 {
		s[0], s[1] = lerp(s[0], g, x[4]), x[5]*s[1]+x[6]*g*g
		return w - (x[3]*g+x[9]*s[0])/(math.Sqrt(s[1]/x[7])+x[8])
	}},
	{"radam", 2, func(w, g float64, s, x []float64) float64 {
		s[0], s[1] = lerp(s[0], g, x[4]), x[5]*s[1]+x[6]*g*g
		if x[7] == 0 {
			return w - x[3]*s[0]
		}
		return w - x[3]*s[0]*x[7]/(math.Sqrt(s[1])+x[8])
	}},
	{"adagrad", 1, func(w, g float64, s, x []float64) float64 {
		s[0] += g * g
		return w - x[3]*g/(math.Sqrt(s[0])+x[4])
	}},
	{"adadelta", 2, func(w, g float64, s, x []float64) float64 {
		s[0] = x[4]*s[0] + x[5]*g*g
		d := math.Sqrt(s[1]+x[6]) / math.Sqrt(s[0]+x[6]) * g
		s[1] = x[4]*s[1] + x[5]*d*d
		return w - x[3]*d
	}},
	{"rmsprop", 1, func(w, g float64, s, x []float64) float64 {
		s[0] = x[4]*s[0] + x[5]*g*g
		return w - x[3]*g/(math.Sqrt(s[0])+x[6])
	}},
	{"rmsprop_momentum", 2, func(w, g float64, s, x []float64) float64 {
		s[0] = x[4]*s[0] + x[5]*g*g
		s[1] = x[7]*s[1] + g/(math.Sqrt(s[0])+x[6])
		return w - x[3]*s[1]
	}},
	{"rmsprop_centered", 2, func(w, g float64, s, x []float64) float64 {
		s[0], s[1] = x[4]*s[0]+x[5]*g*g, lerp(s[1], g, x[5])
		return w - x[3]*g/(math.Sqrt(max(s[0]-s[1]*s[1], 0))+x[6])
	}},
	{"rmsprop_centered_momentum", 3, func(w, g float64, s, x []float64) float64 {
		s[0], s[1] = x[4]*s[0]+x[5]*g*g, lerp(s[1], g, x[5])
		s[2] = x[7]*s[2] + g/(math.Sqrt(max(s[0]-s[1]*s[1], 0))+x[6])
		return w - x[3]*s[2]
	}},
	{"rprop", 2, func(w, g float64, s, x []float64) float64 {
		factor := 1.0
		switch turn := g * s[0]; {
		case turn > 0:
			factor = x[4]
		case turn < 0:
			factor = x[3]
		}
		if factor == x[3] {
			g = 0
		}
		s[0], s[1] = g, min(max(s[1]*factor, x[5]), x[6])
		return w - sign(g)*s[1]
	}},
	{"lion", 1, func(w, g float64, s, x []float64) float64 {
		u := lerp(s[0], g, x[4])
		s[0] = lerp(s[0], g, x[5])
		return w - x[3]*sign(u)
	}},
	{"asgd", 1, func(w, g float64, s, x []float64) float64 {
		w -= x[3] * g
		s[0] = lerp(s[0], w, x[4])
		return w
	}},
}

func operand(r *rawtensor.Tensor) core.Operand {
	return core.Operand{Memory: core.Memory{Ptr: r.Ptr}, DType: core.DType(r.DType), Shape: r.Shape, Strides: r.Strides}
}

func get(r *rawtensor.Tensor, i int) float64 {
	switch r.DType {
	case rawtensor.Float16:
		return float64(core.Float16Value(unsafe.Slice((*uint16)(r.Ptr), r.Numel())[i]))
	case rawtensor.BFloat16:
		return float64(core.BFloat16Value(unsafe.Slice((*uint16)(r.Ptr), r.Numel())[i]))
	case rawtensor.Float32:
		return float64(unsafe.Slice((*float32)(r.Ptr), r.Numel())[i])
	}
	return unsafe.Slice((*float64)(r.Ptr), r.Numel())[i]
}

func set(r *rawtensor.Tensor, i int, v float64) {
	switch r.DType {
	case rawtensor.Float32:
		unsafe.Slice((*float32)(r.Ptr), r.Numel())[i] = float32(v)
	case rawtensor.Float64:
		unsafe.Slice((*float64)(r.Ptr), r.Numel())[i] = v
	default:
		unsafe.Slice((*uint16)(r.Ptr), r.Numel())[i] = uint16(rawtensor.Encode(r.DType, v))
	}
}

// A list has parameters of several dtypes and sizes, with gradients and states. One has a master copy.
type list struct {
	param, grad, master []*rawtensor.Tensor
	state               [][]*rawtensor.Tensor
	numbers             []float64
}

func newList(t testing.TB, states int) *list {
	l := &list{}
	r := rand.New(rand.NewPCG(1, 2))
	random := func(dtype, n int, low, high float64) *rawtensor.Tensor {
		x := rawtensor.New(t, dtype, n)
		for i := range n {
			set(x, i, low+(high-low)*r.Float64())
		}
		return x
	}
	for k, c := range []struct{ dtype, n int }{
		{rawtensor.Float64, 5}, {rawtensor.Float64, 0}, {rawtensor.Float32, 40_000}, {rawtensor.Float64, 17_001}, {rawtensor.Float32, 1},
		{rawtensor.Float16, 3000}, {rawtensor.BFloat16, 17_000}, {rawtensor.BFloat16, 100}, {rawtensor.Float64, 0},
	} {
		wide := rawtensor.Float32
		if c.dtype == rawtensor.Float64 {
			wide = c.dtype
		}
		l.param = append(l.param, random(c.dtype, c.n, -2, 2))
		l.grad = append(l.grad, random(c.dtype, c.n, -1, 1))
		var s []*rawtensor.Tensor
		for range states {
			s = append(s, random(wide, c.n, 0.05, 0.2))
		}
		l.state = append(l.state, s)
		var master *rawtensor.Tensor
		if k == 7 {
			master = random(wide, c.n, -2, 2)
		}
		l.master = append(l.master, master)
		l.numbers = append(l.numbers, []float64{1, -1}[k%2], 0.1*float64(k%3), 1-0.01*float64(k%4), 0.3, 0.2, 0.9, 0.15, 0.8, 0.1, 0.25)
	}
	return l
}

func (l *list) call(which, states int) *core.Call {
	c := &core.Call{Op: "step", Floats: l.numbers, InPlace: true}
	for i, p := range l.param {
		c.Ins = append(c.Ins, operand(l.grad[i]))
		c.Outs = append(c.Outs, operand(p))
		for _, s := range l.state[i] {
			c.Outs = append(c.Outs, operand(s))
		}
		if l.master[i] != nil {
			c.Outs = append(c.Outs, operand(l.master[i]))
			c.Ints = append(c.Ints, int64(which), int64(states), 1)
		} else {
			c.Ints = append(c.Ints, int64(which), int64(states), 0)
		}
	}
	return c
}

func (l *list) bytes() (b [][]byte) {
	for i, p := range l.param {
		b = append(b, append([]byte(nil), p.Memory()...))
		for _, s := range l.state[i] {
			b = append(b, append([]byte(nil), s.Memory()...))
		}
	}
	return b
}

func TestRules(t *testing.T) {
	require.Len(t, rules, 16)
	for which, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			got, start := newList(t, r.states), newList(t, r.states)
			alone := newList(t, r.states)
			if r.name == "rprop" {
				for i := 0; i < len(got.numbers); i += contract.OptimNumbers {
					copy(got.numbers[i+3:], []float64{0.5, 1.2, 0.05, 0.15})
				}
				alone.numbers = got.numbers
			}
			workers := pool.New(3)
			defer workers.Close()
			ctx := &kernel.Context{Pool: workers.Ptr()}
			defer ctx.FreeScratch()
			for range 2 {
				require.NoError(t, step(ctx, got.call(which, r.states)))
			}
			for k, p := range start.param {
				tolerance := map[int]float64{rawtensor.Float64: 1e-13, rawtensor.Float32: 2e-5, rawtensor.Float16: 3e-3, rawtensor.BFloat16: 3e-2}[p.DType]
				for i := range p.Numel() {
					x := got.numbers[k*contract.OptimNumbers : (k+1)*contract.OptimNumbers]
					w, s := get(p, i), make([]float64, r.states)
					if m := start.master[k]; m != nil {
						w = get(m, i)
					}
					for n := range s {
						s[n] = get(start.state[k][n], i)
					}
					for range 2 {
						g := x[0]*get(start.grad[k], i) + x[1]*w
						w = r.update(w*x[2], g, s, x)
					}
					// lion and rprop take the sign of a sum, which its last bit may decide.
					if d := math.Abs(get(got.param[k], i) - w); d > tolerance*(1+math.Abs(w)) && !(r.name == "lion" || r.name == "rprop") {
						require.Failf(t, "parameter", "%s %d[%d]: got %v, want %v", rawtensor.Name(p.DType), k, i, get(got.param[k], i), w)
					} else if d > 1.1 {
						require.Failf(t, "parameter", "%s %d[%d]: got %v, want %v", rawtensor.Name(p.DType), k, i, get(got.param[k], i), w)
					}
					for n := range s {
						require.InDelta(t, s[n], get(got.state[k][n], i), max(tolerance, 1e-13)*(1+math.Abs(s[n]))+1e-9, "state %d of %d", n, k)
					}
					if m := got.master[k]; m != nil {
						rounded := rawtensor.Decode(p.DType, rawtensor.Encode(p.DType, get(m, i)))
						require.Equal(t, rounded, get(got.param[k], i))
					}
				}
			}

			for range 2 {
				require.NoError(t, step(&kernel.Context{}, alone.call(which, r.states)))
			}
			require.Equal(t, alone.bytes(), got.bytes(), "one thread and three")
		})
	}
}

func norms(t *testing.T, list []core.Operand, p float64, root int64) float64 {
	out := rawtensor.New(t, rawtensor.Float64)
	workers := pool.New(3)
	defer workers.Close()
	ctx := &kernel.Context{Pool: workers.Ptr()}
	defer ctx.FreeScratch()
	require.NoError(t, norm(ctx, &core.Call{Op: "norm", Outs: []core.Operand{operand(out)}, Ins: list, Ints: []int64{root}, Floats: []float64{p}}))
	return get(out, 0)
}

func TestNorms(t *testing.T) {
	l := newList(t, 0)
	var ins []core.Operand
	var all []float64
	for _, g := range l.grad {
		ins = append(ins, operand(g))
		for i := range g.Numel() {
			all = append(all, math.Abs(get(g, i)))
		}
	}
	for _, p := range []float64{2, 1, 3, 0.5, math.Inf(1), math.Inf(-1), 0} {
		want, least := 0.0, math.Inf(1)
		for _, v := range all {
			least = min(least, v)
			switch {
			case math.IsInf(p, 1):
				want = max(want, v)
			default:
				want += math.Pow(v, p)
			}
		}
		if math.IsInf(p, -1) {
			want = least
		}
		require.InEpsilon(t, want, norms(t, ins, p, 0), 1e-12, "p = %v", p)
		if !math.IsInf(p, 0) && p != 0 {
			want = math.Pow(want, 1/p)
		}
		require.InEpsilon(t, want, norms(t, ins, p, 1), 1e-12, "p = %v", p)
	}
	require.Zero(t, norms(t, nil, 2, 1))
	big := rawtensor.New(t, rawtensor.Float32, 2)
	set(big, 0, 3e30)
	set(big, 1, 4e30)
	require.InEpsilon(t, 5e30, norms(t, []core.Operand{operand(big)}, 2, 1), 1e-6)
	set(big, 1, math.NaN())
	for _, p := range []float64{1, 2, math.Inf(1), math.Inf(-1)} {
		require.True(t, math.IsNaN(norms(t, []core.Operand{operand(big)}, p, 1)), "p = %v", p)
	}
}

func TestClipClamp(t *testing.T) {
	workers := pool.New(2)
	defer workers.Close()
	ctx := &kernel.Context{Pool: workers.Ptr()}
	defer ctx.FreeScratch()
	check := func(name string, k kernel.Func, in float64, floats []float64, want func(v float64) float64) {
		l, before := newList(t, 0), newList(t, 0)
		c := &core.Call{Op: name, Floats: floats, InPlace: true, Ins: []core.Operand{{IsNumber: true, Number: core.FloatNumber(in)}}}
		for _, g := range l.grad {
			c.Outs = append(c.Outs, operand(g))
		}
		require.NoError(t, k(ctx, c))
		for k, g := range l.grad {
			tolerance := map[int]float64{rawtensor.Float64: 1e-15, rawtensor.Float32: 1e-7, rawtensor.Float16: 1e-3, rawtensor.BFloat16: 1e-2}[g.DType]
			for i := range g.Numel() {
				require.InDelta(t, want(get(before.grad[k], i)), get(g, i), tolerance, name)
			}
		}
	}
	check("clip", clip, 10, []float64{2}, func(v float64) float64 { return v * 2 / (10 + 1e-6) })
	check("clip", clip, 1, []float64{2}, func(v float64) float64 { return v })
	check("clamp", clamp, 0, []float64{0.5}, func(v float64) float64 { return min(max(v, -0.5), 0.5) })
}

func BenchmarkStep(b *testing.B) {
	for _, which := range []int{1, 2, 7, 14} {
		b.Run(rules[which].name, func(b *testing.B) {
			const n = 1 << 22
			l := &list{}
			for range 4 {
				l.param = append(l.param, rawtensor.New(b, rawtensor.Float32, n/4))
				l.grad = append(l.grad, rawtensor.New(b, rawtensor.Float32, n/4))
				var s []*rawtensor.Tensor
				for range rules[which].states {
					s = append(s, rawtensor.New(b, rawtensor.Float32, n/4))
				}
				l.state, l.master = append(l.state, s), append(l.master, nil)
				l.numbers = append(l.numbers, 1, 0, 1, 0.3, 0.2, 0.9, 0.15, 0.8, 0.1, 0.25)
			}
			for i := range l.param {
				for k := range n / 4 {
					set(l.param[i], k, 0.5)
					set(l.grad[i], k, 0.1)
				}
			}
			workers := pool.New(2)
			defer workers.Close()
			ctx := &kernel.Context{Pool: workers.Ptr()}
			c := l.call(which, rules[which].states)
			b.SetBytes(int64(4 * n * (3 + 2*rules[which].states)))
			for b.Loop() {
				if err := step(ctx, c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
