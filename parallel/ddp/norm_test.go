package ddp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// bufferValues returns all buffers of m, one after the other.
func bufferValues(m nn.Module) (all []float64, err error) {
	for _, n := range nn.NamedTensors(m) {
		if n.Kind == nn.Buffer {
			v, err := core.Values[float64](n.Tensor)
			if err != nil {
				return nil, err
			}
			all = append(all, v...)
		}
	}
	return all, nil
}

// Buffers of rank 0 are broadcast before each forward pass, unless KeepBuffers is set; with LocalBuffers not even at construction.
func TestCase22Buffers(t *testing.T) {
	for _, o := range []ddp.Options{{}, {KeepBuffers: true}, {LocalBuffers: true}} {
		keep := o.KeepBuffers || o.LocalBuffers
		spawn(t, 3, func(r *collective.Rank) error {
			m := nn.NewSequential(nn.NewLinear(width, 4, nn.LinearOptions{}), nn.NewBatchNorm1d(4, nn.BatchNormOptions{}), nn.NewLinear(4, 2, nn.LinearOptions{}))
			mean := nn.StateDict(m)["1.running_mean"]
			if err := op.FillInPlace(mean, core.Num(float64(r.Rank))).Err(); err != nil {
				return err
			}
			p, err := ddp.New(m, r.World, o)
			if err != nil {
				return err
			}
			first := 0.0
			if o.LocalBuffers {
				first = float64(r.Rank)
			}
			if v, err := core.Values[float64](mean); err != nil || v[0] != first {
				return fmt.Errorf("%+v: the buffer begins with %v, want %v, %v", o, v, first, err)
			}
			for s := range 2 {
				if err := backward(p, r, s); err != nil {
					return err
				}
			}
			if err := p.Begin(4); err != nil {
				return err
			}
			mine, err := bufferValues(m)
			if err != nil {
				return err
			}
			all, err := r.World.Exchange([]byte(fmt.Sprint(mine)))
			if err != nil {
				return err
			}
			if same := string(all[0]) == string(all[1]) && string(all[0]) == string(all[2]); same == keep {
				return fmt.Errorf("keep %v: buffers are equal: %v", keep, same)
			}
			before := r.World.Stats().Total()
			core.NoGrad(func() { x, _ := batch(0, 0, 2); nn.Call(p, x) })
			if r.World.Stats().Total() != before {
				return errors.New("a forward pass without gradients sent something")
			}
			return p.Close()
		})
	}
}

// SyncBatchNorm on two ranks matches batch norm on the global batch, with equal, different and empty batches.
func TestCase22SyncBatchNorm(t *testing.T) {
	for _, rows := range [][]int{{0, 3, 6}, {0, 1, 7}, {0, 0, 5}} {
		for _, d := range []core.DType{core.Float64, core.Float32} {
			tol := 1e-9
			if d == core.Float32 {
				tol = 2e-5
			}
			make := func(g *collective.Group) nn.Layer {
				bn := nn.NewBatchNorm1d(width, nn.BatchNormOptions{})
				nn.InitUniform(bn.Weight, 0.5, 2)
				nn.InitUniform(bn.Bias, -1, 1)
				if g == nil {
					return bn
				}
				return ddp.NewSyncBatchNorm(bn, g)
			}
			// The loss is a sum, so the ranks' gradients add up to those of the global batch.
			run := func(m nn.Layer, from, to int) (y, dx, dp, buffers []float64, err error) {
				x, _ := batch(0, from, to)
				x = op.Add(op.Mul(x, core.Num(float64(3))), core.Num(float64(5))).Detach()
				x.SetRequiresGrad(true)
				out := nn.Call(m, x)
				loss := op.Sum(op.Mul(op.Mul(out, out), out), nil, false)
				if err = autograd.Backward(loss); err != nil {
					return
				}
				var e [4]error
				y, e[0] = core.Values[float64](out)
				if to > from {
					dx, e[1] = core.Values[float64](x.Grad())
				}
				dp, e[2] = grads(m)
				buffers, e[3] = bufferValues(m)
				return y, dx, dp, buffers, errors.Join(e[:]...)
			}
			var y, dx, dp, buffers []float64
			in64(t, func() {
				require.NoError(t, core.CurrentContext().SetDefaultDType(d))
				core.ManualSeed(4)
				var err error
				y, dx, dp, buffers, err = run(make(nil), 0, rows[2])
				require.NoError(t, err)
			})
			spawn(t, 2, func(r *collective.Rank) error {
				if err := core.CurrentContext().SetDefaultDType(d); err != nil {
					return err
				}
				core.ManualSeed(4)
				from, to := rows[r.Rank], rows[r.Rank+1]
				gy, gdx, gdp, gb, err := run(make(r.World), from, to)
				if err != nil {
					return err
				}
				sum := core.FromSlice(gdp)
				if err := r.World.AllReduce(sum, collective.Sum).Wait(); err != nil {
					return err
				}
				gdp, err = core.Values[float64](sum)
				return errors.Join(err, near("output", gy, y[from*width:to*width], tol), near("input's gradient", gdx, dx[from*width:to*width], 10*tol),
					near("parameters' gradients", gdp, dp, 10*tol), near("running statistics", gb, buffers, tol))
			})
		}
	}
}

// With Weighted and batches of different sizes, gradients through SyncBatchNorm are those of the global batch.
func TestWeightedSyncBatchNorm(t *testing.T) {
	rows := []int{0, 1, 6, 8}
	make := func(g *collective.Group) *nn.Sequential {
		core.ManualSeed(4)
		bn := nn.NewBatchNorm1d(5, nn.BatchNormOptions{})
		first, last := nn.NewLinear(width, 5, nn.LinearOptions{}), nn.NewLinear(5, 2, nn.LinearOptions{})
		if g == nil {
			return nn.NewSequential(first, bn, last)
		}
		return nn.NewSequential(first, ddp.NewSyncBatchNorm(bn, g), last)
	}
	var want []float64
	in64(t, func() {
		m := make(nil)
		x, y := batch(0, 0, rows[3])
		require.NoError(t, autograd.Backward(mse(nn.Call(m, x), y)))
		var err error
		want, err = grads(m)
		require.NoError(t, err)
	})
	spawn(t, 3, func(r *collective.Rank) error {
		m := make(r.World)
		p, err := ddp.New(m, r.World, ddp.Options{Weighted: true})
		if err != nil {
			return err
		}
		x, y := batch(0, rows[r.Rank], rows[r.Rank+1])
		if err := autograd.Backward(mse(nn.Call(p, x), y)); err != nil {
			return err
		}
		got, err := grads(m)
		return errors.Join(err, near("gradients", got, want, 1e-9), p.Close())
	})
}

// A differentiable all-reduce has a second derivative.
func TestSyncBatchNormSecondDerivative(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		x, _ := batch(r.Rank, 0, 3)
		x.SetRequiresGrad(true)
		return autograd.CheckDouble(func(in []*core.Tensor) []*core.Tensor {
			// Finite differences change the inputs of both ranks at the same time, so check half of the sum of both.
			y := ddp.AllReduce(r.World, op.Mul(in[0], in[0]), collective.Sum)
			return []*core.Tensor{op.Mul(op.Sum(y, nil, false), core.Num(0.5))}
		}, []*core.Tensor{x}, 1e-5, 1e3, 1e3)
	})
}

func TestSyncBatchNormErrors(t *testing.T) {
	spawn(t, 1, func(r *collective.Rank) error {
		l := ddp.NewSyncBatchNorm(nn.NewBatchNorm1d(3, nn.BatchNormOptions{}), r.World)
		for _, shape := range [][]int{{3}, {1, 3}} {
			if err := l.Forward(op.Zeros(shape...)).Err(); err == nil || !strings.Contains(err.Error(), "sync_batch_norm") {
				return fmt.Errorf("%v: got %v", shape, err)
			}
		}
		nn.Eval(l)
		return l.Forward(op.Zeros(1, 3)).Err()
	})
}
