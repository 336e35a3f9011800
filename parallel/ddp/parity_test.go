package ddp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// variants are options that must all give the same result.
func variants() map[string]ddp.Options {
	with := func(o ddp.Options, change func(*ddp.Options)) ddp.Options { change(&o); return o }
	return map[string]ddp.Options{
		"default": {},
		"small":   small,
		"view":    with(small, func(o *ddp.Options) { o.BucketView = true }),
		"delay":   with(small, func(o *ddp.Options) { o.DelayAllReduce = true }),
		"unused":  with(small, func(o *ddp.Options) { o.FindUnused = true }),
		"static":  with(small, func(o *ddp.Options) { o.StaticGraph, o.BucketView = true, true }),
	}
}

// Training must match one process on the global batch, and match bitwise one process that sums the ranks' gradients in order. All ranks
// must have the same parameters after every step.
func TestCase14And15Parity(t *testing.T) {
	const ranks, steps, each = 3, 4, 4
	for name, make := range optimisers {
		for _, d := range []core.DType{core.Float64, core.Float32} {
			tol := 1e-9
			if d == core.Float32 {
				tol = 1e-5
			}
			var joined, summed []float64
			in64(t, func() {
				require.NoError(t, core.CurrentContext().SetDefaultDType(d))
				m := seededMLP(7)
				o, err := make(nn.Parameters(m))
				require.NoError(t, err)
				for s := range steps {
					x, y := batch(s, 0, ranks*each)
					_, err := step(m, o, x, y)
					require.NoError(t, err)
				}
				joined, err = values(m)
				require.NoError(t, err)
				summed = trainInRankOrder(t, make, ranks, steps, each)
			})
			for variant, options := range variants() {
				if d == core.Float32 && variant != "default" && variant != "view" {
					continue
				}
				t.Run(fmt.Sprint(name, "/", d, "/", variant), func(t *testing.T) {
					spawn(t, ranks, func(r *collective.Rank) error {
						if err := core.CurrentContext().SetDefaultDType(d); err != nil {
							return err
						}
						m := rankMLP(r, 7)
						p, err := ddp.New(m, r.World, options)
						if err != nil {
							return err
						}
						o, err := make(nn.Parameters(p))
						if err != nil {
							return err
						}
						for s := range steps {
							x, y := batch(s, r.Rank*each, (r.Rank+1)*each)
							if _, err := step(p, o, x, y); err != nil {
								return err
							}
							if err := checkSameParameters(r, p); err != nil {
								return fmt.Errorf("step %d: %w", s, err)
							}
						}
						got, err := values(p)
						if err != nil {
							return err
						}
						return errors.Join(near("global batch", got, joined, tol), equal("sums in rank order", got, summed), p.Close())
					})
				})
			}
		}
	}
}

// trainInRankOrder trains in one process. It averages the gradients of the ranks' batches in rank order.
func trainInRankOrder(t *testing.T, make func([]*core.Tensor) (*optim.Optimizer, error), ranks, steps, each int) []float64 {
	m := seededMLP(7)
	params := nn.Parameters(m)
	o, err := make(params)
	require.NoError(t, err)
	for s := range steps {
		lists := [][]*core.Tensor{}
		for r := range ranks {
			x, y := batch(s, r*each, (r+1)*each)
			o.ZeroGrad()
			require.NoError(t, autograd.Backward(mse(nn.Call(m, x), y)))
			var list []*core.Tensor
			for _, p := range params {
				list = append(list, p.Grad().Alias(false).Keep())
			}
			lists = append(lists, list)
		}
		for i, p := range params {
			sum, err := core.Values[float64](lists[0][i])
			require.NoError(t, err)
			for _, l := range lists[1:] {
				v, err := core.Values[float64](l[i])
				require.NoError(t, err)
				for k := range sum {
					sum[k] += v[k]
					if p.DType() == core.Float32 {
						sum[k] = float64(float32(sum[k]))
					}
				}
			}
			if p.DType() == core.Float32 {
				mean := meanFloat32(sum, ranks)
				p.SetGrad(core.FromSlice(mean, p.Shape()...))
				continue
			}
			for k := range sum {
				sum[k] /= float64(ranks)
			}
			p.SetGrad(core.FromSlice(sum, p.Shape()...))
		}
		require.NoError(t, o.Step())
	}
	v, err := values(m)
	require.NoError(t, err)
	return v
}

// meanFloat32 returns sum / n, rounded like float32 tensors.
func meanFloat32(sum []float64, n int) []float32 {
	out := make([]float32, len(sum))
	for i, v := range sum {
		out[i] = float32(v) / float32(n)
	}
	return out
}

// checkSameParameters returns an error unless the parameters of all ranks are bitwise equal.
func checkSameParameters(r *collective.Rank, m nn.Module) error {
	mine, err := values(m)
	if err != nil {
		return err
	}
	all, err := r.World.Exchange([]byte(fmt.Sprint(mine)))
	if err != nil {
		return err
	}
	for i, b := range all {
		if string(b) != string(all[0]) {
			return fmt.Errorf("the parameters of rank %d differ from those of rank 0", i)
		}
	}
	return nil
}

// If the ranks' batches differ in size, the weighted mean of the gradients is that of the global batch. The unweighted mean is not.
func TestWeightedGlobalBatch(t *testing.T) {
	const ranks = 3
	rows := []int{0, 1, 4, 12}
	var want []float64
	in64(t, func() {
		m := seededMLP(7)
		x, y := batch(0, 0, rows[ranks])
		require.NoError(t, autograd.Backward(mse(nn.Call(m, x), y)))
		var err error
		want, err = grads(m)
		require.NoError(t, err)
	})
	for _, weighted := range []bool{true, false} {
		spawn(t, ranks, func(r *collective.Rank) error {
			m := rankMLP(r, 7)
			p, err := ddp.New(m, r.World, ddp.Options{Weighted: weighted, FirstBucketBytes: 1, BucketBytes: 200})
			if err != nil {
				return err
			}
			x, y := batch(0, rows[r.Rank], rows[r.Rank+1])
			if err := autograd.Backward(mse(nn.Call(p, x), y)); err != nil {
				return err
			}
			got, err := grads(p)
			if err != nil {
				return err
			}
			if err := near("gradient", got, want, 1e-9); (err == nil) != weighted {
				return fmt.Errorf("weighted %v: %v", weighted, err)
			}
			return p.Close()
		})
	}
}

// Passes in NoSync send nothing. The next pass reduces the gradients of all of them.
func TestCase18NoSyncSendsNothing(t *testing.T) {
	const ranks, each = 2, 2
	for variant, options := range variants() {
		t.Run(variant, func(t *testing.T) {
			var want []float64
			in64(t, func() {
				m := seededMLP(7)
				for s := range 3 {
					x, y := batch(s, 0, ranks*each)
					require.NoError(t, autograd.Backward(mse(nn.Call(m, x), y)))
				}
				var err error
				want, err = grads(m)
				require.NoError(t, err)
			})
			spawn(t, ranks, func(r *collective.Rank) error {
				m := rankMLP(r, 7)
				p, err := ddp.New(m, r.World, options)
				if err != nil {
					return err
				}
				for round := range 2 { // before and after buckets are rebuilt
					nn.ZeroGrad(p)
					before := r.World.Stats().Total()
					micro := func(s int) error {
						x, y := batch(s, r.Rank*each, (r.Rank+1)*each)
						return autograd.Backward(mse(nn.Call(p, x), y))
					}
					err = p.NoSync(func() error { return errors.Join(micro(0), micro(1)) })
					if err != nil {
						return err
					}
					if sent := r.World.Stats().Total() - before; sent != 0 {
						return fmt.Errorf("round %d: %d bytes were sent", round, sent)
					}
					if err := micro(2); err != nil {
						return err
					}
					if r.World.Stats().Total() == before {
						return errors.New("the last step sent nothing")
					}
					got, err := grads(p)
					if err != nil {
						return err
					}
					if err := near("gradient", got, want, 1e-9); err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
				}
				return p.Close()
			})
		})
	}
}

// Parameters may be frozen and unfrozen between steps.
func TestCase21Freezing(t *testing.T) {
	for variant, options := range variants() {
		if variant == "static" {
			continue // a static graph must not change
		}
		t.Run(variant, func(t *testing.T) {
			var want []float64
			train := func(m nn.Layer, from, to int) error {
				o, err := optim.NewSGD(nn.Parameters(m), optim.Hyper{"lr": 0.1})
				if err != nil {
					return err
				}
				params := nn.Parameters(m)
				for s := range 5 {
					params[2].SetRequiresGrad(s != 1 && s != 2)
					params[5].SetRequiresGrad(s != 2)
					x, y := batch(s, from, to)
					if _, err := step(m, o, x, y); err != nil {
						return fmt.Errorf("step %d: %w", s, err)
					}
				}
				return nil
			}
			in64(t, func() {
				m := seededMLP(7)
				require.NoError(t, train(m, 0, 8))
				var err error
				want, err = values(m)
				require.NoError(t, err)
			})
			spawn(t, 2, func(r *collective.Rank) error {
				m := rankMLP(r, 7)
				p, err := ddp.New(m, r.World, options)
				if err != nil {
					return err
				}
				if err := train(p, r.Rank*4, r.Rank*4+4); err != nil {
					return err
				}
				got, err := values(p)
				if err != nil {
					return err
				}
				return errors.Join(near("parameters", got, want, 1e-9), p.Close())
			})
		})
	}
}

// With weights and gradient accumulation, a rank's weight counts the samples of all its passes.
func TestCase18Weighted(t *testing.T) {
	const a, b = 2, 6 // samples of rank 0's two passes; rank 1 has 8 in each
	spawn(t, 2, func(r *collective.Rank) error {
		o := small
		o.Weighted = true
		p, err := ddp.New(seededMLP(7), r.World, o)
		if err != nil {
			return err
		}
		pass := func(m nn.Layer, rank, s int) error {
			n := []int{a, b}[s]
			if rank == 1 {
				n = 8
			}
			x, y := batch(s, 10*rank, 10*rank+n)
			return autograd.Backward(mse(nn.Call(m, x), y))
		}
		if err := errors.Join(p.NoSync(func() error { return pass(p, r.Rank, 0) }), pass(p, r.Rank, 1)); err != nil {
			return err
		}
		var want []float64
		for rank, weight := range []float64{(a + b) / 24.0, 16 / 24.0} {
			m := seededMLP(7)
			if err := errors.Join(pass(m, rank, 0), pass(m, rank, 1)); err != nil {
				return err
			}
			g, err := grads(m)
			if err != nil {
				return err
			}
			if want == nil {
				want = make([]float64, len(g))
			}
			for i := range g {
				want[i] += weight * g[i]
			}
		}
		got, err := grads(p)
		return errors.Join(err, near("gradient", got, want, 1e-9), p.Close())
	})
}

// The end of an inner NoSync does not end the outer one.
func TestCase18NestedNoSync(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		p, err := ddp.New(mlp(), r.World, small)
		if err != nil {
			return err
		}
		err = p.NoSync(func() error {
			return errors.Join(p.NoSync(func() error { return nil }), backward(p, r, 0))
		})
		if n := p.Reducer().Stats().Bytes; err != nil || n != 0 {
			return fmt.Errorf("%d bytes were reduced, %w", n, err)
		}
		err = backward(p, r, 1)
		if n := p.Reducer().Stats().Bytes; err != nil || n == 0 {
			return fmt.Errorf("%d bytes were reduced, %w", n, err)
		}
		return p.Close()
	})
}
