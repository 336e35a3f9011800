package optim

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	processes "github.com/plait-ml/plait/core/sharing"
)

func values(t testing.TB, x *core.Tensor) []float64 {
	t.Helper()
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

// leaf returns a parameter of a dtype with the given elements.
func leaf(d core.DType, v []float64, shape ...int) *core.Tensor {
	x := core.FromSlice(v, shape...)
	defer x.Release()
	return op.To(x, d).SetRequiresGrad(true)
}

// gradient is a made-up gradient at w in step n, with changes of sign.
func gradient(w, n float64, i int) float64 { return 0.7*w + math.Sin(n*1.3+float64(i)) }

func start(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Cos(float64(i)*0.7) * 2
	}
	return v
}

// TestTrajectories compares ten steps of every algorithm with the published formulas in float64.
func TestTrajectories(t *testing.T) {
	for name, list := range variants {
		for _, h := range list {
			for _, d := range []core.DType{core.Float64, core.Float32} {
				t.Run(fmt.Sprintf("%s/%v/%v", name, h, d), func(t *testing.T) {
					full, err := merge(name, Defaults(name), h)
					require.NoError(t, err)
					want := map[int][]float64{0: start(3), 1: start(35)}
					params := []*core.Tensor{leaf(d, want[0], 3), leaf(d, want[1], 5, 7)}
					o, err := New(name, h, Params{Tensors: params})
					require.NoError(t, err)
					memory := map[[2]int]map[string]float64{}
					for n := 1; n <= 10; n++ {
						for k, p := range params {
							w := values(t, p)
							g := make([]float64, len(w))
							for i := range w {
								g[i] = gradient(w[i], float64(n), i)
								// The reference follows the same gradients, so that differences do not grow with the steps.
								if d == core.Float32 {
									g[i] = float64(float32(g[i]))
								}
								m := memory[[2]int{k, i}]
								if m == nil {
									m = map[string]float64{}
									memory[[2]int{k, i}] = m
								}
								want[k][i] = references[name](full, float64(n), want[k][i], g[i], m)
							}
							x := core.FromSlice(g, p.Shape()...)
							p.SetGrad(op.To(x, d))
						}
						require.NoError(t, o.Step())
						tolerance := 1e-11
						if d == core.Float32 {
							tolerance = 2e-5
						}
						for k, p := range params {
							for i, v := range values(t, p) {
								require.InDelta(t, want[k][i], v, tolerance*(1+math.Abs(want[k][i])), "step %d, parameter %d, element %d", n, k, i)
							}
						}
					}
				})
			}
		}
	}
	for _, name := range Algorithms() {
		if algorithms[name].update != nil && name != "sparse_adam" { // the others have tests of their own
			require.NotEmpty(t, variants[name], name)
		}
	}
}

// makeSparse makes the gradients sparse for an algorithm that takes no others.
func makeSparse(algorithm string, params []*core.Tensor) {
	for _, p := range params {
		if algorithm == "sparse_adam" {
			p.SetGrad(op.ToSparse(p.Grad(), 1))
		}
	}
}

func setGrads(params []*core.Tensor, v ...float64) {
	for i, p := range params {
		g := make([]float64, p.Numel())
		for k := range g {
			g[k] = v[i%len(v)] * (1 + float64(k))
		}
		p.SetGrad(op.To(core.FromSlice(g, p.Shape()...), p.DType()))
	}
}

func TestParametersWithoutGradientsAreSkipped(t *testing.T) {
	params := []*core.Tensor{leaf(core.Float64, start(3), 3), leaf(core.Float64, start(3), 3)}
	o, err := NewAdam(params, Hyper{"lr": 0.1})
	require.NoError(t, err)
	setGrads(params[:1], 1)
	require.NoError(t, o.Step())
	require.NotEqual(t, start(3), values(t, params[0]))
	require.Equal(t, start(3), values(t, params[1]))
	d := o.StateDict()
	require.Contains(t, d.Params, 0)
	require.NotContains(t, d.Params, 1)
	// The second parameter's own count starts with its own first step.
	setGrads(params, 1)
	require.NoError(t, o.Step())
	require.Equal(t, 2.0, o.StateDict().Params[0].Step)
	require.Equal(t, 1.0, o.StateDict().Params[1].Step)
	o.ZeroGrad()
	require.Nil(t, params[0].Grad())
	require.NoError(t, o.Step())
}

func TestGroups(t *testing.T) {
	a, b := leaf(core.Float64, []float64{1}, 1), leaf(core.Float64, []float64{1}, 1)
	o, err := New("sgd", Hyper{"lr": 0.5}, Params{Tensors: []*core.Tensor{a}}, Params{Tensors: []*core.Tensor{b}, Hyper: Hyper{"lr": 0.25, "weight_decay": 1}})
	require.NoError(t, err)
	setGrads([]*core.Tensor{a, b}, 1)
	require.NoError(t, o.Step())
	require.Equal(t, []float64{0.5}, values(t, a))
	require.Equal(t, []float64{0.5}, values(t, b))
	require.NoError(t, o.Groups()[0].Set("lr", 0.1))
	require.Equal(t, 0.1, o.Groups()[0].LR())
	require.NoError(t, o.Step())
	require.InDelta(t, 0.4, values(t, a)[0], 1e-15)
}

// Parameters and gradients of any layout get the same step.
func TestStridedParameters(t *testing.T) {
	for name := range variants {
		plain := leaf(core.Float32, start(12), 3, 4)
		base := op.To(core.FromSlice(start(12), 3, 4), core.Float32)
		flipped := op.Clone(op.Transpose(base, 0, 1)) // [4 3], contiguous
		strided := op.Transpose(flipped, 0, 1).Detach().SetRequiresGrad(true)
		require.Equal(t, []int{1, 3}, strided.Strides())
		o, err := New(name, nil, Params{Tensors: []*core.Tensor{plain, strided}})
		require.NoError(t, err)
		for n := range 3 {
			setGrads([]*core.Tensor{plain}, math.Cos(float64(n)))
			g := op.Clone(op.Transpose(plain.Grad(), 0, 1))
			strided.SetGrad(op.Transpose(g, 0, 1))
			require.NoError(t, o.Step())
		}
		require.Equal(t, values(t, plain), values(t, strided), name)
		require.NotEqual(t, start(12), values(t, plain))
	}
}

// Half parameters take their steps in float32; with a master copy, steps too small for the half type add up.
func TestHalfParameters(t *testing.T) {
	for _, d := range []core.DType{core.Float16, core.BFloat16} {
		p, q := leaf(d, []float64{1, -1, 2}, 3), leaf(d, []float64{1, -1, 2}, 3)
		o, err := New("sgd", Hyper{"lr": 1e-4}, Params{Tensors: []*core.Tensor{p}, Hyper: Hyper{"master_weights": 1}}, Params{Tensors: []*core.Tensor{q}})
		require.NoError(t, err)
		for range 1000 {
			for _, x := range []*core.Tensor{p, q} {
				x.SetGrad(op.To(core.FromSlice([]float64{1, 1, 1}), d))
			}
			require.NoError(t, o.Step())
		}
		require.InDeltaSlice(t, []float64{0.9, -1.1, 1.9}, values(t, p), 0.008)
		require.Equal(t, []float64{1, -1, 2}, values(t, q), "each step is below half a unit")
		require.Equal(t, core.Float32, o.StateDict().Params[0].Tensors["master"].DType())
	}
}

// Training that stops, saves, loads and goes on is the same as training that does not stop, bit for bit.
func TestResumeBitExactly(t *testing.T) {
	for name, list := range variants {
		for _, h := range list {
			run := func(stop bool) []float64 {
				params := []*core.Tensor{leaf(core.Float32, start(5), 5), leaf(core.BFloat16, start(6), 6)}
				h := Hyper{"master_weights": 1}
				for k, v := range list[0] {
					h[k] = v
				}
				o, err := New(name, h, Params{Tensors: params})
				require.NoError(t, err)
				for n := range 6 {
					if stop && n == 3 {
						d := o.StateDict()
						text, err := json.Marshal(d)
						require.NoError(t, err)
						var read StateDict
						require.NoError(t, json.Unmarshal(text, &read))
						require.NoError(t, read.Unflatten(d.Flatten()))
						o2, err := New(name, nil, Params{Tensors: params})
						require.NoError(t, err)
						require.NoError(t, o2.LoadStateDict(&read))
						o.Release()
						o = o2
					}
					setGrads(params, math.Cos(float64(n)*2), 0.3)
					require.NoError(t, o.Step())
				}
				return append(values(t, params[0]), values(t, params[1])...)
			}
			require.Equal(t, run(false), run(true), "%s %v", name, h)
		}
	}
}

func TestLoadStateDictChecks(t *testing.T) {
	params := []*core.Tensor{leaf(core.Float32, start(5), 5)}
	make := func(n int) *Optimizer {
		o, err := NewAdam([]*core.Tensor{leaf(core.Float32, start(n), n)}, nil)
		require.NoError(t, err)
		setGrads(o.Groups()[0].Params(), 1)
		require.NoError(t, o.Step())
		return o
	}
	o, err := NewAdam(params, nil)
	require.NoError(t, err)
	require.ErrorContains(t, o.LoadStateDict(make(4).StateDict()), "has another shape, got [4], want [5]")
	require.Empty(t, o.StateDict().Params)
	d := make(5).StateDict()
	d.Algorithm = "sgd"
	require.EqualError(t, o.LoadStateDict(d), `adam: the state is of another algorithm, got "sgd"`)
	d = make(5).StateDict()
	d.Groups[0].Hyper["lr"] = -1
	require.EqualError(t, o.LoadStateDict(d), "adam: lr must be at least 0, got -1")
	d = make(5).StateDict()
	d.Groups = append(d.Groups, d.Groups[0])
	require.EqualError(t, o.LoadStateDict(d), "adam: the state has another number of groups, got 2, want 1")
	require.NoError(t, o.LoadStateDict(make(5).StateDict()))
	require.Equal(t, 1.0, o.StateDict().Params[0].Step)
}

// A step leaves no tensors behind, inside a scope or not.
func TestStepsKeepMemoryFlat(t *testing.T) {
	alone(t, func(usage func(int) int) {
		params := []*core.Tensor{leaf(core.Float32, start(1000), 1000)}
		o, err := NewAdamW(params, nil)
		require.NoError(t, err)
		base := 0
		for n := range 20 {
			core.Tidy(func() {
				setGrads(params, 1)
				require.NoError(t, o.Step())
			})
			o.ZeroGrad()
			if n == 0 {
				base = usage(-1)
			}
		}
		require.Equal(t, base, usage(-1))
	})
}

func BenchmarkStep(b *testing.B) {
	for _, name := range []string{"sgd", "adamw", "lion"} {
		b.Run(name+"/150x8K", func(b *testing.B) {
			var params []*core.Tensor
			for range 150 {
				params = append(params, leaf(core.Float32, start(8192), 8192))
			}
			setGrads(params, 1)
			o, err := New(name, nil, Params{Tensors: params})
			require.NoError(b, err)
			for b.Loop() {
				if err := o.Step(); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, core.Synchronize())
		})
	}
}

// TestSharedStates has two optimisers of equal parameters take steps in turn on states in memory that processes share.
func TestSharedStates(t *testing.T) {
	mk := func() *Optimizer {
		o, err := NewAdam([]*core.Tensor{leaf(core.Float32, start(5), 5)}, nil)
		require.NoError(t, err)
		return o
	}
	first, second, alone := mk(), mk(), mk()
	d := first.StateDict()
	d.Params[0] = ParamState{Tensors: map[string]*core.Tensor{"exp_avg": op.Zeros(5), "exp_avg_sq": op.Zeros(5)}}
	for _, s := range d.Params[0].Tensors {
		_, err := processes.Move(s)
		require.NoError(t, err)
	}
	require.NoError(t, first.LoadStateDict(d))
	require.NoError(t, second.LoadStateDict(d))
	for n, o := range []*Optimizer{first, second, first} {
		setGrads(o.Groups()[0].Params(), float64(n+1))
		setGrads(alone.Groups()[0].Params(), float64(n+1))
		require.NoError(t, o.SetStep(0, float64(n)))
		require.NoError(t, o.Step())
		require.NoError(t, alone.Step())
	}
	got, _ := first.State(0)
	want, _ := alone.State(0)
	require.Equal(t, 3.0, got.Step)
	for name, given := range d.Params[0].Tensors {
		require.Equal(t, values(t, want.Tensors[name]), values(t, got.Tensors[name]), name)
		require.Equal(t, values(t, want.Tensors[name]), values(t, given), name)
	}
	require.EqualError(t, first.SetStep(1, 0), "adam: there is no parameter of that number: 1")
}
