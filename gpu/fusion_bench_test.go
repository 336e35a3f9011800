package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// releasing returns x and releases its inputs, as a program in Python does.
func releasing(x *core.Tensor, used ...*core.Tensor) *core.Tensor {
	for _, u := range used {
		u.Release()
	}
	return x
}

// geluByHand is the tanh approximation of gelu, in nine calls.
func geluByHand(x *core.Tensor) *core.Tensor {
	y := op.Mul(x, x)
	y = releasing(op.Mul(y, x), y)
	y = releasing(op.Mul(y, core.Num(0.044715)), y)
	y = releasing(op.Add(x, y), y)
	y = releasing(op.Mul(y, core.Num(0.7978845608)), y)
	y = releasing(op.Tanh(y), y)
	y = releasing(op.Add(y, core.Num(1)), y)
	y = releasing(op.Mul(x, y), y)
	return releasing(op.Mul(y, core.Num(0.5)), y)
}

// lstmCell is the elementwise part of an LSTM cell, in nine calls. gates are [B 4H], c is [B H].
func lstmCell(gates, c *core.Tensor) (*core.Tensor, *core.Tensor) {
	g := op.Chunk(gates, 4, 1)
	in, forget, cell, out := op.Sigmoid(g[0]), op.Sigmoid(g[1]), op.Tanh(g[2]), op.Sigmoid(g[3])
	releasing(nil, g...)
	kept := releasing(op.Mul(forget, c), forget)
	added := releasing(op.Mul(in, cell), in, cell)
	c = releasing(op.Add(kept, added), kept, added)
	squashed := op.Tanh(c)
	return releasing(op.Mul(out, squashed), out, squashed), c
}

// adamWByHand is an AdamW step for one parameter, in eleven calls.
func adamWByHand(p, g, m, v *core.Tensor) {
	op.MulInPlace(p, core.Num(0.9999))
	op.MulInPlace(m, core.Num(0.9))
	s := op.Mul(g, core.Num(0.1))
	releasing(op.AddInPlace(m, s), s)
	op.MulInPlace(v, core.Num(0.999))
	s = op.Mul(g, g)
	s = releasing(op.Mul(s, core.Num(0.001)), s)
	releasing(op.AddInPlace(v, s), s)
	d := op.Sqrt(v)
	d = releasing(op.Add(d, core.Num(1e-8)), d)
	u := releasing(op.Div(m, d), d)
	s = releasing(op.Mul(u, core.Num(-1e-3)), u)
	releasing(op.AddInPlace(p, s), s)
}

// BenchmarkFusion measures chains of elementwise ops, with and without fusion, in a small size and in one that is bound by
// memory.
func BenchmarkFusion(b *testing.B) {
	d := device(b)
	large := 64 << 20
	if d.Software() {
		large = 1 << 18
	}
	for name, n := range map[string]int{"tiny": 1 << 7, "small": 1 << 12, "large": large} {
		x := on(d, n/64, 64)
		gates := on(d, n/64, 4*64)
		const parameters = 4
		var state [4 * parameters]*core.Tensor
		for i := range state {
			state[i] = on(d, n/64, 64)
		}
		for chain, fn := range map[string]func(){
			"adds": func() {
				y := op.Add(x, x)
				for range 99 {
					y = releasing(op.Add(y, x), y)
				}
				y.Release()
			},
			"gelu": func() { geluByHand(x).Release() },
			"lstm": func() {
				h, c := lstmCell(gates, x)
				releasing(nil, h, c)
			},
			"adamw": func() {
				for i := range parameters {
					adamWByHand(state[4*i], state[4*i+1], state[4*i+2], state[4*i+3])
				}
			},
		} {
			round := func() {
				for range 20 {
					fn()
				}
			}
			for _, how := range []string{"fused", "apart"} {
				b.Run(chain+"/"+name+"/"+how, func(b *testing.B) {
					if how == "apart" {
						defer gpu.SetFusion(d, false)()
					}
					for range 20 {
						core.Tidy(round)
					}
					require.NoError(b, d.Synchronize())
					before := d.Traffic().Dispatches
					benchmark(b, d, round)
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/20, "us/chain")
					b.ReportMetric(float64(d.Traffic().Dispatches-before)/float64(b.N+1)/20, "dispatches")
				})
			}
		}
		releasing(nil, x, gates)
		releasing(nil, state[:]...)
	}
}
