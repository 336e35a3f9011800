package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// after returns x and releases what it was made of, as a program in Python does.
func after(x *core.Tensor, used ...*core.Tensor) *core.Tensor {
	for _, u := range used {
		u.Release()
	}
	return x
}

// geluByHand is the approximation of gelu by tanh, nine calls.
func geluByHand(x *core.Tensor) *core.Tensor {
	y := op.Mul(x, x)
	y = after(op.Mul(y, x), y)
	y = after(op.Mul(y, core.Num(0.044715)), y)
	y = after(op.Add(x, y), y)
	y = after(op.Mul(y, core.Num(0.7978845608)), y)
	y = after(op.Tanh(y), y)
	y = after(op.Add(y, core.Num(1)), y)
	y = after(op.Mul(x, y), y)
	return after(op.Mul(y, core.Num(0.5)), y)
}

// lstmCell is what follows the products of a cell: nine calls. gates are [B 4H], c is [B H].
func lstmCell(gates, c *core.Tensor) (*core.Tensor, *core.Tensor) {
	g := op.Chunk(gates, 4, 1)
	in, forget, cell, out := op.Sigmoid(g[0]), op.Sigmoid(g[1]), op.Tanh(g[2]), op.Sigmoid(g[3])
	after(nil, g...)
	kept := after(op.Mul(forget, c), forget)
	added := after(op.Mul(in, cell), in, cell)
	c = after(op.Add(kept, added), kept, added)
	squashed := op.Tanh(c)
	return after(op.Mul(out, squashed), out, squashed), c
}

// adamWByHand is a step for one parameter, eleven calls.
func adamWByHand(p, g, m, v *core.Tensor) {
	op.MulInPlace(p, core.Num(0.9999))
	op.MulInPlace(m, core.Num(0.9))
	s := op.Mul(g, core.Num(0.1))
	after(op.AddInPlace(m, s), s)
	op.MulInPlace(v, core.Num(0.999))
	s = op.Mul(g, g)
	s = after(op.Mul(s, core.Num(0.001)), s)
	after(op.AddInPlace(v, s), s)
	d := op.Sqrt(v)
	d = after(op.Add(d, core.Num(1e-8)), d)
	u := after(op.Div(m, d), d)
	s = after(op.Mul(u, core.Num(-1e-3)), u)
	after(op.AddInPlace(p, s), s)
}

// Chains of elementwise operations, fused and one by one. Sizes are those of a part of a step of a small model, and of one
// where memory is what counts.
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
					y = after(op.Add(y, x), y)
				}
				y.Release()
			},
			"gelu": func() { geluByHand(x).Release() },
			"lstm": func() {
				h, c := lstmCell(gates, x)
				after(nil, h, c)
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
					repeat(b, d, round)
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/20, "us/chain")
					b.ReportMetric(float64(d.Traffic().Dispatches-before)/float64(b.N+1)/20, "dispatches")
				})
			}
		}
		after(nil, x, gates)
		after(nil, state[:]...)
	}
}
