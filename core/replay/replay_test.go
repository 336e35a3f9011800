package replay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/core/replay"
)

// A trainer is a small model with dropout, its optimiser and its schedule.
type trainer struct {
	params    []*core.Tensor
	optimizer *optim.Optimizer
	schedule  *optim.Schedule
	autocast  bool
	runs      int // of the function
}

func newTrainer(t *testing.T, autocast bool) *trainer {
	core.ManualSeed(7)
	m := &trainer{autocast: autocast}
	for _, shape := range [][]int{{32, 16}, {32}, {32}, {32}, {3, 32}, {3}} {
		m.params = append(m.params, op.Mul(op.Randn(shape...), core.Num(0.3)).Detach().Keep().SetRequiresGrad(true))
	}
	var err error
	m.optimizer, err = optim.NewAdamW(m.params, optim.Hyper{"lr": 1e-2, "weight_decay": 0.1})
	require.NoError(t, err)
	m.schedule, err = optim.NewLambdaLR(m.optimizer, func(epoch int) float64 { return 1 / float64(1+epoch) })
	require.NoError(t, err)
	return m
}

func (m *trainer) step(in []*core.Tensor) (out []*core.Tensor, err error) {
	m.runs++
	out = core.RunScope(func() []*core.Tensor {
		var loss, norm *core.Tensor
		forward := func() {
			h := op.Dropout(op.Gelu(op.Linear(in[0], m.params[0], m.params[1]), "none"), 0.3, true)
			h = op.LayerNorm(h, []int{32}, m.params[2], m.params[3], 1e-5)
			h = op.Linear(op.Dropout(h, 0.1, true), m.params[4], m.params[5])
			loss = op.CrossEntropy(h, in[1], op.CrossEntropyOptions{})
		}
		m.optimizer.ZeroGrad()
		if m.autocast {
			err = core.Autocast("cpu", core.BFloat16, forward)
		} else {
			forward()
		}
		if err == nil {
			err = autograd.Backward(loss)
		}
		if err != nil {
			return nil
		}
		norm = optim.ClipGradNorm(m.params, 0.5, optim.ClipOptions{})
		if err = norm.Err(); err == nil {
			err = m.optimizer.Step()
		}
		return []*core.Tensor{loss.Detach(), norm}
	})
	return out, err
}

func data(rows, step int) []*core.Tensor {
	x, y := make([]float32, rows*16), make([]int64, rows)
	for i := range x {
		x[i] = float32((i*i+step)%13)/6 - 1
	}
	for i := range y {
		y[i] = int64((i + step) % 3)
	}
	return []*core.Tensor{core.FromSlice(x, rows, 16), core.FromSlice(y, rows)}
}

func read(t *testing.T, list ...*core.Tensor) (all [][]byte) {
	t.Helper()
	for _, x := range list {
		b, err := x.Bytes()
		require.NoError(t, err)
		all = append(all, b)
	}
	return all
}

// TestReplaysEqualEager compares many steps with the same steps without replays, bit for bit.
func TestReplaysEqualEager(t *testing.T) {
	for _, autocast := range []bool{false, true} {
		const steps = 12
		type seen struct {
			results, grads, params [][]byte
			seed, offset           uint64
		}
		run := func(s *replay.Step) (all []seen, m *trainer, state *optim.StateDict) {
			core.Tidy(func() {
				m = newTrainer(t, autocast)
				cpu, err := core.OpenDevice("cpu")
				require.NoError(t, err)
				for n := range steps {
					rows := 8
					if n == steps-2 {
						rows = 5 // runs in full
					}
					in := data(rows, n)
					var out []*core.Tensor
					if s != nil {
						out, err = s.Run("", in, m.step)
					} else {
						out, err = m.step(in)
					}
					require.NoError(t, err)
					require.NoError(t, m.schedule.Step())
					v := seen{results: read(t, out...), params: read(t, m.params...)}
					for _, p := range m.params {
						v.grads = append(v.grads, read(t, p.Grad())...)
					}
					v.seed, v.offset = core.CurrentContext().Generator(cpu).State()
					all = append(all, v)
				}
				state = m.optimizer.StateDict()
			})
			return all, m, state
		}
		want, _, wantState := run(nil)
		s := &replay.Step{Tell: func(reason error) { t.Error(reason) }}
		defer s.Close()
		got, m, gotState := run(s)
		require.Equal(t, want, got)
		require.Equal(t, 4, m.runs, "the first, two recordings, and the one of another shape")
		require.Equal(t, len(wantState.Params), len(gotState.Params))
		for i, p := range wantState.Params {
			require.Equal(t, p.Step, gotState.Params[i].Step)
			for name, x := range p.Tensors {
				require.Equal(t, read(t, x), read(t, gotState.Params[i].Tensors[name]), name)
			}
		}
	}
}

// TestMemoryStaysConstant runs replays and looks at the memory in use.
func TestMemoryStaysConstant(t *testing.T) {
	cpu, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	s := &replay.Step{}
	defer s.Close()
	var m *trainer
	core.Tidy(func() { m = newTrainer(t, false) })
	coretest.Settle(t, cpu)
	used := 0
	for n := range 20 {
		core.Tidy(func() {
			_, err := s.Run("", data(8, n), m.step)
			require.NoError(t, err)
		})
		if n == 5 {
			used = core.MemoryUsage(cpu).Current
		}
	}
	require.Equal(t, used, core.MemoryUsage(cpu).Current)
	require.Equal(t, 3, m.runs)
}

// TestRefused has steps that cannot be replayed: each runs in full every time, and the reason is told once.
func TestRefused(t *testing.T) {
	x := []*core.Tensor{core.FromSlice([]float32{1, 2, 3})}
	n := 0.0
	kept := core.FromSlice([]float32{0})
	w := core.FromSlice([]float32{1}).SetRequiresGrad(true)
	for name, c := range map[string]struct {
		fn     func(in []*core.Tensor) ([]*core.Tensor, error)
		reason string
	}{
		"value": {func(in []*core.Tensor) ([]*core.Tensor, error) {
			y := op.Sum(in[0], nil, false)
			_, err := y.Item()
			return []*core.Tensor{y}, err
		}, "reads the value"},
		"number": {func(in []*core.Tensor) ([]*core.Tensor, error) {
			n++
			return []*core.Tensor{op.Mul(in[0], core.Num(n))}, nil
		}, "a number changes from step to step"},
		"state": {func(in []*core.Tensor) ([]*core.Tensor, error) {
			kept = op.Add(kept, op.Sum(in[0], nil, false))
			return []*core.Tensor{op.Add(kept, core.Num(1))}, nil
		}, "made by the step before"},
		"graph": {func(in []*core.Tensor) ([]*core.Tensor, error) {
			return []*core.Tensor{op.Mul(op.Exp(w), in[0])}, nil
		}, "gradient may still be asked for"},
		"argument": {func(in []*core.Tensor) ([]*core.Tensor, error) {
			return []*core.Tensor{op.Exp(op.AddInPlace(in[0], core.Num(0)))}, nil
		}, "changes an argument in place"},
		"seed": {func(in []*core.Tensor) ([]*core.Tensor, error) {
			core.ManualSeed(uint64(3 + n))
			return []*core.Tensor{op.Dropout(in[0], 0.5, true)}, nil
		}, "seeds a generator"},
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			s := &replay.Step{Tell: func(reason error) { told = append(told, reason.Error()) }}
			defer s.Close()
			for range 9 {
				out, err := s.Run("", x, c.fn)
				require.NoError(t, err)
				require.NoError(t, out[0].Wait())
			}
			require.Len(t, told, 1)
			require.Contains(t, told[0], c.reason)
		})
	}
}

// TestResults returns an argument, a tensor from outside, and a result twice.
func TestResults(t *testing.T) {
	s := &replay.Step{Tell: func(reason error) { t.Error(reason) }}
	defer s.Close()
	w := core.FromSlice([]float32{5})
	var before []*core.Tensor
	for n := range 6 {
		out, err := s.Run("", []*core.Tensor{core.FromSlice([]float32{float32(n)})}, func(in []*core.Tensor) ([]*core.Tensor, error) {
			y := op.Add(in[0], w)
			return []*core.Tensor{in[0], w, y, y}, nil
		})
		require.NoError(t, err)
		for i, want := range []float64{float64(n), 5, float64(n + 5), float64(n + 5)} {
			v, err := out[i].Item()
			require.NoError(t, err)
			require.Equal(t, want, v)
		}
		require.Same(t, w, out[1])
		if before != nil {
			for i, want := range []float64{float64(n - 1), 5, float64(n + 4), float64(n + 4)} {
				v, err := before[i].Item()
				require.NoError(t, err)
				require.Equal(t, want, v, "a replay changes no earlier result")
			}
		}
		before = out
	}
}

// TestErrors lets the function fail, and replays find a bad index.
func TestErrors(t *testing.T) {
	s := &replay.Step{}
	defer s.Close()
	table := core.FromSlice([]float32{1, 2, 3}, 3, 1)
	fail := false
	fn := func(in []*core.Tensor) ([]*core.Tensor, error) {
		if fail {
			return nil, core.Errorf(core.ValueError, "fn", "asked to fail")
		}
		y := op.Embedding(in[0], table, op.EmbeddingOptions{})
		return []*core.Tensor{op.Mul(y, core.Num(2))}, nil
	}
	index := func(i int64) []*core.Tensor { return []*core.Tensor{core.FromSlice([]int64{i})} }
	run := func(i int64) (float64, error) {
		out, err := s.Run("", index(i), fn)
		if err != nil {
			return 0, err
		}
		return out[0].Item()
	}
	for n := range 10 {
		fail = n == 1
		v, err := run(int64(n % 3))
		if fail {
			require.ErrorContains(t, err, "asked to fail")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 2*float64(n%3+1), v)
		if n > 5 {
			_, err = run(7)
			require.ErrorContains(t, err, "index")
		}
	}
}

// TestChangedBetweenSteps replaces gradients and states between replays.
func TestChangedBetweenSteps(t *testing.T) {
	run := func(s *replay.Step) (params [][]byte, runs int) {
		core.Tidy(func() {
			m := newTrainer(t, false)
			step := func(n int) {
				var err error
				if s != nil {
					_, err = s.Run("", data(8, n), m.step)
				} else {
					_, err = m.step(data(8, n))
				}
				require.NoError(t, err)
			}
			for n := range 6 {
				step(n)
			}
			require.NoError(t, m.optimizer.LoadStateDict(m.optimizer.StateDict()))
			m.optimizer.ZeroGrad()
			for n := range 6 {
				step(n)
			}
			params, runs = read(t, m.params...), m.runs
		})
		return params, runs
	}
	want, _ := run(nil)
	s := &replay.Step{}
	defer s.Close()
	got, runs := run(s)
	require.Equal(t, want, got)
	require.Equal(t, 6, runs, "three, then one that finds other states, and two recordings")
}
