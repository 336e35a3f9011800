package ddp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// Ranks with 2, 5 and 0 batches match one process, with both divisors. At the end all ranks have the same parameters.
func TestCase19Join(t *testing.T) {
	counts := []int{2, 5, 0}
	for _, byActive := range []bool{false, true} {
		var want []float64
		in64(t, func() { want = expectedJoin(t, counts, byActive) })
		for variant, options := range variants() {
			options.Weighted = false
			t.Run(fmt.Sprint(byActive, "/", variant), func(t *testing.T) {
				spawn(t, len(counts), func(r *collective.Rank) error {
					m := rankMLP(r, 7)
					p, err := ddp.New(m, r.World, options)
					if err != nil {
						return err
					}
					o, err := optim.NewSGD(nn.Parameters(p), optim.Hyper{"lr": 0.1})
					if err != nil {
						return err
					}
					err = p.Join(ddp.JoinOptions{DivideByActive: byActive}, func() error {
						for s := range counts[r.Rank] {
							x, y := batch(s, r.Rank*4, r.Rank*4+4)
							if _, err := step(p, o, x, y); err != nil {
								return err
							}
						}
						return nil
					})
					if err != nil {
						return err
					}
					got, err := values(p)
					if err != nil {
						return err
					}
					return errors.Join(checkSameParameters(r, p), near("parameters", got, want, 1e-12), p.Close())
				})
			})
		}
	}
}

// expectedJoin trains in one process and returns the parameters that a join must give.
func expectedJoin(t *testing.T, counts []int, byActive bool) []float64 {
	m := seededMLP(7)
	params := nn.Parameters(m)
	o, err := optim.NewSGD(params, optim.Hyper{"lr": 0.1})
	require.NoError(t, err)
	for s := range 5 {
		o.ZeroGrad()
		active := 0
		for r, n := range counts {
			if s < n {
				active++
				require.NoError(t, backward(m, &collective.Rank{Rank: r}, s))
			}
		}
		divisor := len(counts)
		if byActive {
			divisor = active
		}
		for _, p := range params {
			op.DivInPlace(p.Grad(), core.Num(float64(divisor)))
		}
		require.NoError(t, o.Step())
	}
	v, err := values(m)
	require.NoError(t, err)
	return v
}

// With Throw, every rank gets an error when the first runs out of batches. With equal numbers of batches there is no error.
func TestCase19JoinThrows(t *testing.T) {
	train := func(r *collective.Rank, n int) error {
		p, err := ddp.New(mlp(), r.World, small)
		if err != nil {
			return err
		}
		return p.Join(ddp.JoinOptions{Throw: true}, func() error {
			for s := range n {
				if err := backward(p, r, s); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := trySpawn(3, func(r *collective.Rank) error { return train(r, 2+r.Rank) })
	for r := range 3 {
		require.ErrorContains(t, err, fmt.Sprintf("rank %d: join: rank 0 has no more batches", r))
	}
	spawn(t, 3, func(r *collective.Rank) error { return train(r, 2) })
	require.ErrorContains(t, trySpawn(2, func(r *collective.Rank) error { return train(r, 1+r.Rank) }), "rank 1: join: rank 0 has no more batches")
}

// Buffers are broadcast from the highest rank that has a batch, in each step and at the end, unless the options keep them.
func TestCase19JoinBuffers(t *testing.T) {
	counts := []int{1, 3, 2}
	for _, keep := range []bool{false, true} {
		options := small
		options.KeepBuffers = keep
		spawn(t, len(counts), func(r *collective.Rank) error {
			bn := nn.NewBatchNorm1d(4, nn.BatchNormOptions{})
			p, err := ddp.New(nn.NewSequential(nn.NewLinear(width, 4, nn.LinearOptions{}), bn, nn.NewLinear(4, 2, nn.LinearOptions{})), r.World, options)
			if err != nil {
				return err
			}
			err = p.Join(ddp.JoinOptions{}, func() error {
				for s := range counts[r.Rank] {
					if s == 1 { // rank 2 is the highest with a batch, then rank 1
						if err := op.FillInPlace(bn.NumBatchesTracked, core.Num(float64(10*r.Rank))).Err(); err != nil {
							return err
						}
					}
					if err := backward(p, r, s); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			want := int64(22)
			if keep {
				want = []int64{1, 12, 21}[r.Rank]
			}
			if n, err := bn.NumBatchesTracked.Int(); err != nil || int64(n) != want {
				return fmt.Errorf("keep %v: the statistics are of %d batches, want %d: %w", keep, n, want, err)
			}
			if !keep {
				err = checkSameParameters(r, p)
			}
			return errors.Join(err, p.Close())
		})
	}
}

// A rank that runs out of batches after NoSync contributes zeros with a weight of 0.
func TestCase19JoinAfterNoSync(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		o := small
		o.Weighted = true
		p, err := ddp.New(seededMLP(7), r.World, o)
		if err != nil {
			return err
		}
		err = p.Join(ddp.JoinOptions{}, func() error {
			if err := p.NoSync(func() error { return backward(p, r, 0) }); err != nil || r.Rank == 1 {
				return err
			}
			return backward(p, r, 1)
		})
		if err != nil || r.Rank == 1 {
			return errors.Join(err, p.Close())
		}
		m := seededMLP(7)
		for s := range 2 {
			if err := backward(m, r, s); err != nil {
				return err
			}
		}
		want, err := grads(m)
		if err != nil {
			return err
		}
		got, err := grads(p)
		return errors.Join(err, near("gradient", got, want, 1e-9), p.Close())
	})
}

// A join works with NoSync and with weights, for both divisors.
func TestCase19JoinWithNoSyncAndWeights(t *testing.T) {
	for _, byActive := range []bool{false, true} {
		joinWeighted(t, byActive)
	}
}

func joinWeighted(t *testing.T, byActive bool) {
	spawn(t, 2, func(r *collective.Rank) error {
		o := small
		o.Weighted = true
		p, err := ddp.New(seededMLP(7), r.World, o)
		if err != nil {
			return err
		}
		err = p.Join(ddp.JoinOptions{DivideByActive: byActive}, func() error {
			for s := range 1 + 2*r.Rank {
				if s%2 == 1 {
					if err := p.NoSync(func() error { return backward(p, r, s) }); err != nil {
						return err
					}
					continue
				}
				if err := backward(p, r, s); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || r.Rank == 0 {
			return err
		}
		// Rank 1: step 0 with rank 0, steps 1 and 2 alone.
		m := seededMLP(7)
		for i, part := range [][3]int{{0, 0, 8}, {1, 4, 8}, {2, 4, 8}} {
			x, y := batch(part[0], part[1], part[2])
			if err := autograd.Backward(mse(nn.Call(m, x), y)); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
		want, err := grads(m)
		if err != nil {
			return err
		}
		got, err := grads(p)
		if err != nil {
			return err
		}
		// Alone, rank 1 has all the weight: (2 * what it holds + 0) / 2, or what it holds / 1.
		return errors.Join(near("gradient", got, want, 1e-9), p.Close())
	})
}
