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

// Ranks with 2, 5 and 0 batches, with both divisors. In the end all have the model of the longest.
func TestCase19Join(t *testing.T) {
	counts := []int{2, 5, 0}
	for _, byActive := range []bool{false, true} {
		var want []float64
		in64(t, func() { want = joinedByHand(t, counts, byActive) })
		for variant, options := range variants() {
			options.Weighted = false
			t.Run(fmt.Sprint(byActive, "/", variant), func(t *testing.T) {
				spawn(t, len(counts), func(r *collective.Rank) error {
					m := mlp()
					if r.Rank == 0 {
						if err := start(7, m); err != nil {
							return err
						}
					}
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
					return errors.Join(sameEverywhere(r, p), near("parameters", got, want, 1e-12), p.Close())
				})
			})
		}
	}
}

func joinedByHand(t *testing.T, counts []int, byActive bool) []float64 {
	m := mlpLike(7)
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

// Every rank stops with the first that has no more batches, if that is asked for. Ranks with equal numbers end well.
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

// Buffers are those of a rank that still has batches, in each step and in the end.
func TestCase19JoinBuffers(t *testing.T) {
	counts := []int{1, 3, 2}
	spawn(t, len(counts), func(r *collective.Rank) error {
		bn := nn.NewBatchNorm1d(4, nn.BatchNormOptions{})
		p, err := ddp.New(nn.NewSequential(nn.NewLinear(width, 4, nn.LinearOptions{}), bn, nn.NewLinear(4, 2, nn.LinearOptions{})), r.World, small)
		if err != nil {
			return err
		}
		err = p.Join(ddp.JoinOptions{}, func() error {
			for s := range counts[r.Rank] {
				if err := backward(p, r, s); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n, err := bn.NumBatchesTracked.Int(); err != nil || n != 3 {
			return fmt.Errorf("the statistics are of %d batches, want the 3 of rank 1: %w", n, err)
		}
		return errors.Join(sameEverywhere(r, p), p.Close())
	})
}

// The samples of passes that were not synchronised before a rank ran out of batches have no weight: it sends zeros.
func TestCase19JoinAfterNoSync(t *testing.T) {
	spawn(t, 2, func(r *collective.Rank) error {
		o := small
		o.Weighted = true
		p, err := ddp.New(mlpLike(7), r.World, o)
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
		m := mlpLike(7)
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

// Steps without synchronisation, and weights, in a join.
func TestCase19JoinWithNoSyncAndWeights(t *testing.T) {
	for _, byActive := range []bool{false, true} {
		joinWeighted(t, byActive)
	}
}

func joinWeighted(t *testing.T, byActive bool) {
	spawn(t, 2, func(r *collective.Rank) error {
		o := small
		o.Weighted = true
		p, err := ddp.New(mlp(), r.World, o)
		if err != nil {
			return err
		}
		if _, err := p.Load(nn.StateDict(mlpLike(7)), true); err != nil {
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
		m := mlpLike(7)
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
