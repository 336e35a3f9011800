package collective

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest/wiretest"
	"github.com/plait-ml/plait/core/op"
)

// byNode returns the result of ranks that are threads: those of each process are summed first, then the sums.
func byNode(t *testing.T, counts []int, d core.DType, n int, o ReduceOp) []byte {
	t.Helper()
	inner := o
	if o == Avg {
		inner = Sum
	}
	var partial []*core.Tensor
	first := 0
	for _, count := range counts {
		sums := make([]*core.Tensor, count)
		require.NoError(t, Spawn(count, nil, longTimeout, func(r *Rank) error {
			sums[r.Rank] = nodeInput(first+r.Rank, d, n)
			return r.World.AllReduce(sums[r.Rank], inner).Wait()
		}))
		partial, first = append(partial, sums[0]), first+count
	}
	require.NoError(t, Spawn(len(counts), nil, longTimeout, func(r *Rank) error { return r.World.AllReduce(partial[r.Rank], inner).Wait() }))
	if o == Avg {
		op.DivInPlace(partial[0], core.Num(float64(first)))
	}
	b, err := partial[0].Bytes()
	require.NoError(t, err)
	return b
}

func nodeInput(rank int, d core.DType, n int) *core.Tensor {
	rng := rand.New(rand.NewPCG(uint64(rank), 77))
	v := make([]float64, n)
	for i := range v {
		if v[i] = float64(rng.IntN(100)); d.IsFloat() {
			v[i] = rng.NormFloat64()
		}
	}
	return tensorOf(v, d)
}

// TestAllReduceByNode compares bits with sums within each process followed by sums of these, whatever the size of the tensors.
func TestAllReduceByNode(t *testing.T) {
	for _, counts := range [][]int{{2, 2}, {3, 1}, {1, 2, 3}, {1, 1, 1}, {4}} {
		for _, n := range []int{0, 1, 7, 9001, 700_003} {
			for _, c := range []struct {
				dtype core.DType
				op    ReduceOp
			}{{core.Float32, Sum}, {core.Float64, Avg}, {core.Int32, Max}, {core.Int64, BitXor}, {core.BFloat16, Sum}} {
				if testing.Short() && n > 10_000 && (c.dtype != core.Float32 || len(counts) != 3) {
					continue
				}
				want := byNode(t, counts, c.dtype, n, c.op)
				net := wiretest.New(len(counts), 0, 1)
				require.NoError(t, spawnIn(net, counts, nil, longTimeout, func(r *Rank) error {
					x, y := nodeInput(r.Rank, c.dtype, n), nodeInput(r.Rank, c.dtype, n)
					w := r.World.AllReduceByNode([]*core.Tensor{x, y}, c.op)
					if err := w.Wait(); err != nil {
						return err
					}
					for _, got := range []*core.Tensor{x, y} {
						if b, err := got.Bytes(); err != nil || !bytes.Equal(b, want) {
							return fmt.Errorf("%d of %v on %v, %v: other bits (%v)", n, c.dtype, counts, c.op, err)
						}
					}
					return nil
				}))
			}
		}
	}
}

// TestAllReduceByNodeTraffic counts the bytes between processes: they do not depend on the number of ranks of each.
func TestAllReduceByNodeTraffic(t *testing.T) {
	const n = 1 << 20
	for _, counts := range [][]int{{2, 2}, {4, 4}, {2, 2, 2, 2}} {
		p := len(counts)
		net := wiretest.New(p, 0, 1)
		require.NoError(t, eachProcess(net, counts, longTimeout, func(w *World, _ int) error {
			before := net.Transport(w.Process()).Bytes()
			err := w.Spawn(nil, func(r *Rank) error {
				return errors.Join(r.World.AllReduceByNode([]*core.Tensor{op.Ones(n)}, Sum).Wait(), r.World.Barrier())
			})
			if got, want := net.Transport(w.Process()).Bytes()-before, 2*4*n*(p-1)/p; err == nil && got != want {
				err = fmt.Errorf("process %d of %v sent %d bytes, want %d", w.Process(), counts, got, want)
			}
			return err
		}))
	}
}

// TestOrdersDisagree calls both orders.
func TestOrdersDisagree(t *testing.T) {
	for _, counts := range [][]int{{2}, {1, 1}} {
		net := wiretest.New(len(counts), 0, 1)
		require.NoError(t, spawnIn(net, counts, nil, Options{Timeout: time.Minute, Log: func(string) {}}, func(r *Rank) error {
			x := op.Ones(3)
			var err error
			if r.Rank == 0 {
				err = r.World.AllReduce(x, Sum).Wait()
			} else {
				err = r.World.AllReduceByNode([]*core.Tensor{x}, Sum).Wait()
			}
			if err == nil || !bytes.Contains([]byte(err.Error()), []byte("all_reduce(sum by node) of float32[3]")) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		}))
	}
}
