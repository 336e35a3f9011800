package collective

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest/wiretest"
	"github.com/plait-ml/plait/core/op"
)

// mixed returns tensors of several dtypes and sizes, around those that share messages. Their values are small integers, so that sums are exact.
func mixed(r *Rank, seed uint64) (list []*core.Tensor) {
	sizes := rand.New(rand.NewPCG(seed, 1)) // the same on all ranks
	values := rand.New(rand.NewPCG(seed, uint64(2+r.Rank)))
	dtypes := []core.DType{core.Float32, core.BFloat16, core.Int64, core.Uint8, core.Float64}
	for i := range 40 {
		n := []int{0, 1, 3, 100, 1000, 8191, 16385, 33000, 70000}[sizes.IntN(9)]
		v := make([]float64, n)
		for k := range v {
			v[k] = float64(values.IntN(10))
		}
		list = append(list, tensorOf(v, dtypes[i%len(dtypes)]))
	}
	return list
}

// collectMixed runs the collectives of several tensors, and returns the contents of all tensors after them.
func collectMixed(r *Rank) (all [][]byte, err error) {
	g, size := r.World, r.World.Size()
	keep := func(w *Work, list []*core.Tensor) {
		err = errors.Join(err, w.Wait())
		for _, t := range list {
			b, e := t.Bytes()
			all, err = append(all, b), errors.Join(err, e)
		}
	}
	sums, copies := mixed(r, 1), mixed(r, 2)
	keep(g.AllReduceMany(sums, Sum), sums)
	keep(g.AllReduceByNode(sums, Max), sums)
	keep(g.BroadcastMany(copies, size-1), copies)
	ins := mixed(r, 3)
	outs, parts, sizes := make([]*core.Tensor, len(ins)), make([]*core.Tensor, len(ins)), make([][]int, len(ins))
	for i, t := range ins {
		outs[i] = tensorOf(make([]float64, t.Numel()*size), t.DType())
		sizes[i] = make([]int, size)
		for rest, q := t.Numel(), 0; q < size; q++ {
			sizes[i][q] = rest / 2
			if q == size-1 {
				sizes[i][q] = rest
			}
			rest -= sizes[i][q]
		}
		parts[i] = tensorOf(make([]float64, sizes[i][r.Rank]), t.DType())
	}
	keep(g.ReduceScatterParts(parts, ins, sizes, Sum), parts)
	for i, t := range ins {
		for q := range size {
			sizes[i][q] = t.Numel()
		}
	}
	keep(g.AllGatherParts(outs, ins, sizes), outs)
	return all, err
}

// TestMixedTensorsAcrossProcesses compares the bits of collectives of many tensors with those of threads.
func TestMixedTensorsAcrossProcesses(t *testing.T) {
	const ranks = 3
	want := make([][][]byte, ranks)
	require.NoError(t, Spawn(ranks, nil, longTimeout, func(r *Rank) (err error) {
		want[r.Rank], err = collectMixed(r)
		return err
	}))
	for _, counts := range [][]int{{1, 1, 1}, {2, 1}, {1, 2}} {
		t.Run(fmt.Sprint(counts), func(t *testing.T) {
			require.NoError(t, spawnIn(wiretest.New(len(counts), 0, 1), counts, nil, longTimeout, func(r *Rank) error {
				got, err := collectMixed(r)
				if err != nil {
					return err
				}
				for i := range got {
					if !bytes.Equal(got[i], want[r.Rank][i]) {
						return fmt.Errorf("tensor %d has other bits than with threads", i)
					}
				}
				return nil
			}))
		})
	}
}

// TestSmallTensorsShareMessages counts the messages of collectives of many small tensors.
func TestSmallTensorsShareMessages(t *testing.T) {
	const tensors, n, processes = 100, 1000, 2
	net := wiretest.New(processes, 0, 1)
	require.NoError(t, spawnIn(net, []int{1, 1}, nil, longTimeout, func(r *Rank) error {
		list := make([]*core.Tensor, tensors)
		for i := range list {
			list[i] = op.Ones(n)
		}
		// The tensors have 400 kB in all, and messages at most 256 KiB. Of a sum there are inputs and results, of half of the elements.
		for _, c := range []struct {
			name string
			run  func() *Work
			want int
		}{
			{"all_reduce", func() *Work { return r.World.AllReduceMany(list, Sum) }, 2},
			{"broadcast", func() *Work { return r.World.BroadcastMany(list, 0) }, 2 * (1 - r.Rank)},
		} {
			before := net.Transport(r.Rank).Messages()
			if err := c.run().Wait(); err != nil {
				return err
			}
			if got := net.Transport(r.Rank).Messages() - before; got != c.want {
				return fmt.Errorf("%s: rank %d sent %d messages, want %d", c.name, r.Rank, got, c.want)
			}
			if err := r.World.Barrier(); err != nil {
				return err
			}
		}
		return nil
	}))
}
