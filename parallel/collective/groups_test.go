package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// allEqual returns an error unless all elements of x are want.
func allEqual(x *core.Tensor, want float64) error {
	got, err := core.Values[float64](x)
	if err != nil {
		return err
	}
	for _, v := range got {
		if v != want {
			return fmt.Errorf("got %v, want %v everywhere", got, want)
		}
	}
	return nil
}

// filled returns a float64 tensor with n elements v.
func filled(n int, v float64) *core.Tensor {
	x := make([]float64, n)
	for i := range x {
		x[i] = v
	}
	return core.FromSlice(x)
}

// TestCase05Groups checks that row and column groups of a 2 by 2 grid work concurrently, in any order between the ranks. Ranks
// outside a group get nil.
func TestCase05Groups(t *testing.T) {
	require.NoError(t, spawn(4, []string{"cpu:0", "cpu:1"}, longTimeout, func(r *Rank) error {
		var row, column *Group
		for i := range 2 {
			a, err := r.World.New([]int{2 * i, 2*i + 1}, Options{})
			if err != nil {
				return err
			}
			b, err := r.World.New([]int{i, i + 2}, Options{})
			if err != nil {
				return err
			}
			if (a != nil) != (r.Rank/2 == i) || (b != nil) != (r.Rank%2 == i) {
				return errors.New("a rank outside the group got a handle, or one inside none")
			}
			if a != nil {
				row = a
			}
			if b != nil {
				column = b
			}
		}
		for i := range 200 {
			x, y := filled(3, float64(r.Rank)), filled(3, float64(r.Rank))
			if (r.Rank+i)%2 == 0 {
				row.AllReduce(x, Sum)
				column.AllReduce(y, Sum)
			} else {
				column.AllReduce(y, Sum)
				row.AllReduce(x, Sum)
			}
			if err := errors.Join(allEqual(x, float64(4*(r.Rank/2)+1)), allEqual(y, float64(2*(r.Rank%2)+2))); err != nil {
				return err
			}
		}
		if row.Rank() != r.Rank%2 || column.Rank() != r.Rank/2 || row.Size() != 2 {
			return fmt.Errorf("rank %d is %d in its row and %d in its column", r.Rank, row.Rank(), column.Rank())
		}
		reversed, err := r.World.New([]int{3, 2, 1, 0}, Options{Name: "reversed"})
		if err != nil {
			return err
		}
		x := filled(1, float64(r.Rank))
		reversed.Broadcast(x, 0)
		return errors.Join(allEqual(x, 3), reversed.Barrier())
	}))
}

func TestNewGroupDisagreement(t *testing.T) {
	err := spawn(2, nil, longTimeout, func(r *Rank) error {
		_, err := r.World.New([]int{r.Rank}, Options{})
		return err
	})
	require.ErrorContains(t, err, "wants a group of [0], rank 1 one of [1]")
	require.NoError(t, spawn(1, nil, longTimeout, func(r *Rank) error {
		for _, ranks := range [][]int{nil, {1}, {0, 0}, {-1}} {
			if _, err := r.World.New(ranks, Options{}); err == nil {
				return fmt.Errorf("no error for the ranks %v", ranks)
			}
		}
		return nil
	}))
}

// TestCase06Works waits for a work twice, with a timeout, or never. Works end in the order of the calls.
func TestCase06Works(t *testing.T) {
	late := make(chan struct{})
	require.NoError(t, spawn(2, nil, longTimeout, func(r *Rank) error {
		if r.Rank == 1 {
			<-late
		}
		x, y := filled(2, 1), filled(2, 2)
		first, second := r.World.AllReduce(x, Sum), r.World.AllReduce(y, Sum)
		if r.Rank == 0 {
			if done, err := first.WaitFor(10 * time.Millisecond); done || err != nil || first.Done() {
				return fmt.Errorf("done without the other rank: %v", err)
			}
			close(late)
		}
		if err := second.Wait(); err != nil {
			return err
		}
		if !first.Done() && first.Wait() != nil {
			return errors.New("the second collective was done before the first")
		}
		if done, err := first.WaitFor(0); !done || err != nil || first.Wait() != nil || first.Wait() != nil {
			return fmt.Errorf("waited twice: %v %v", done, err)
		}
		for range 100 { // dropped without a wait
			r.World.AllReduce(y, Max)
		}
		return errors.Join(allEqual(x, 2), allEqual(y, 4))
	}))
}

// TestCase06MemoryAfterWait checks that the memory has the result after Wait, also for a strided tensor, which is written back
// from a copy.
func TestCase06MemoryAfterWait(t *testing.T) {
	o := longTimeout
	o.LinkRate = 1e9 // the simulated links take some milliseconds
	require.NoError(t, spawn(2, nil, o, func(r *Rank) error {
		for _, gaps := range []bool{false, true} {
			x := op.Ones(2000, 1000)
			if gaps {
				x = op.Transpose(x, 0, 1)
			}
			w := r.World.AllReduce(x, Sum)
			if err := w.Wait(); err != nil {
				return err
			}
			memory := unsafe.Slice((*float32)(x.Storage().Memory().Ptr), x.Numel())
			if last := memory[len(memory)-1]; last != 2 || !w.Done() {
				return fmt.Errorf("gaps %v: after a wait the last element in memory is %v", gaps, last)
			}
		}
		return nil
	}))
}

// TestReleaseDuringCollective checks that memory released during a collective is not reused before the collective ends, and is
// freed then.
func TestReleaseDuringCollective(t *testing.T) {
	dev, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	held := bytesOf(dev)
	late := make(chan struct{})
	require.NoError(t, spawn(2, onCPU0, longTimeout, func(r *Rank) error {
		x := filled(1000, float64(r.Rank+1))
		if r.Rank == 1 {
			<-late
		}
		out := []*core.Tensor{filled(1000, 0), filled(1000, 0)}
		r.World.AllGather(out, x)
		x.Release()
		noise := filled(1000, 99) // without the collective it would reuse the memory of x
		if r.Rank == 0 {
			close(late)
		}
		err := errors.Join(allEqual(out[0], 1), allEqual(out[1], 2), allEqual(noise, 99))
		for _, t := range append(out, noise) {
			t.Release()
		}
		return err
	}))
	assert.LessOrEqual(t, bytesOf(dev), held)
}

// TestWriteWaitsForPeersReads checks that a rank's next write to a tensor waits for a slow peer that still reads it.
func TestWriteWaitsForPeersReads(t *testing.T) {
	require.NoError(t, spawn(2, nil, longTimeout, func(r *Rank) error {
		for range 50 {
			big := filled(200000, float64(r.Rank+1))
			r.World.AllReduce(big, Sum)
			op.MulInPlace(big, core.Num(0)) // overwrites it
			if err := allEqual(big, 0); err != nil {
				return err
			}
			in, out := filled(100000, float64(r.Rank+1)), filled(100000, 0)
			r.World.AllToAllInto(out, in, nil, nil)
			op.MulInPlace(in, core.Num(0))
			got, err := core.Values[float64](out)
			if err != nil || got[0] != 1 || got[99999] != 2 {
				return fmt.Errorf("a peer read what was written after: %v %v (%v)", got[0], got[99999], err)
			}
			big.Release()
			in.Release()
			out.Release()
		}
		return nil
	}))
}

func TestBadArguments(t *testing.T) {
	require.NoError(t, spawn(2, nil, longTimeout, func(r *Rank) error {
		x, i := filled(4, 1), op.To(filled(4, 1), core.Int64)
		released := filled(1, 1)
		released.Release()
		for what, w := range map[string]*Work{
			"avg of integers":  r.World.AllReduce(i, Avg),
			"bits of floats":   r.World.AllReduce(x, BitAnd),
			"root":             r.World.Broadcast(x, 2),
			"negative root":    r.World.Reduce(x, -1, Sum),
			"too few outputs":  r.World.AllGather([]*core.Tensor{x}, x),
			"odd parts":        r.World.AllGatherInto(filled(3, 1), x),
			"too few inputs":   r.World.ReduceScatter(x, nil, Sum),
			"nil":              r.World.AllReduce(nil, Sum),
			"released":         r.World.AllReduce(released, Sum),
			"sizes":            r.World.AllToAllInto(x, x, []int{1, 2}, nil),
			"negative sizes":   r.World.AllToAllInto(x, x, []int{5, -1}, nil),
			"unknown reducing": r.World.AllReduce(x, ReduceOp(77)),
		} {
			if w.Wait() == nil {
				return fmt.Errorf("no error: %s", what)
			}
		}
		// These calls failed before they were numbered, so the ranks still agree.
		return errors.Join(r.World.AllReduce(x, Sum).Wait(), allEqual(x, 2))
	}))
	_, err := NewWorld(0, Options{})
	require.Error(t, err)
	require.Error(t, spawn(2, []string{"nothing:0"}, longTimeout, func(*Rank) error { return nil }))
	require.Error(t, AllReduceSync(nil, Sum))
	require.Error(t, AllReduceSync([]*core.Tensor{filled(2, 1), filled(3, 1)}, Sum))
}

// TestTensorsOnTwoDevices checks that all ranks get an error if one rank passes tensors on two devices.
func TestTensorsOnTwoDevices(t *testing.T) {
	other, err := core.OpenDevice("cpu:1")
	require.NoError(t, err)
	err = spawn(2, onCPU0, longTimeout, func(r *Rank) error {
		x, y := filled(1, 1), filled(1, 1)
		if r.Rank == 1 {
			y = op.ToDevice(y, other)
		}
		return r.World.AllReduceMany([]*core.Tensor{x, y}, Sum).Wait()
	})
	require.ErrorContains(t, err, "want one device for each rank")
	require.ErrorContains(t, err, "rank 1 cannot take part")
}

// TestCase07Bytes checks the byte counts against the formulas.
func TestCase07Bytes(t *testing.T) {
	require.NoError(t, spawn(4, nil, longTimeout, func(r *Rank) error {
		g := r.World
		g.AllReduce(filled(100, 1), Sum)
		g.AllGatherInto(filled(400, 0), filled(100, 1))
		g.ReduceScatterInto(filled(100, 0), filled(400, 1), Sum)
		s := g.Stats()
		if s.Bytes["all_reduce"] != 2*800*3/4 || s.Bytes["all_gather"] != 3200*3/4 || s.Bytes["reduce_scatter"] != 3200*3/4 || s.Calls["all_reduce"] != 1 {
			return fmt.Errorf("got %v", s)
		}
		return g.Barrier()
	}))
}

// TestSharedDevices checks that many groups on shared devices do not deadlock, although each rank enqueues in its own order and
// at its own pace.
func TestSharedDevices(t *testing.T) {
	const world = 4
	for _, devices := range [][]string{onCPU0, {"cpu:0", "cpu:1"}, nil} {
		require.NoError(t, spawn(world, devices, longTimeout, func(r *Rank) error {
			var groups []*Group
			for _, ranks := range [][]int{{0, 1, 2, 3}, {0, 1}, {2, 3}, {1, 2, 3}, {3, 0}} {
				g, err := r.World.New(ranks, Options{})
				if err != nil {
					return err
				}
				if g != nil {
					groups = append(groups, g)
				}
			}
			random := rand.New(rand.NewPCG(3, uint64(r.Rank)))
			for range 30 {
				sums := make([]*core.Tensor, len(groups))
				for _, i := range random.Perm(len(groups)) {
					sums[i] = op.Add(filled(2000, 1), core.Num(0))
					groups[i].AllReduce(sums[i], Sum)
					if random.IntN(10) == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				for i, x := range sums {
					if err := allEqual(x, float64(groups[i].Size())); err != nil {
						return err
					}
				}
			}
			return nil
		}))
	}
}

// TestCollectivesLeakNoMemory checks that no memory is in use after the ranks have ended.
func TestCollectivesLeakNoMemory(t *testing.T) {
	dev, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	before := bytesOf(dev)
	for range 20 {
		require.NoError(t, spawn(2, onCPU0, longTimeout, func(r *Rank) error {
			core.Tidy(func() {
				x := filled(1000, 1)
				r.World.AllReduce(x, Sum)
				r.World.AllReduce(op.Mul(x, x), Avg)
			})
			return nil
		}))
	}
	assert.LessOrEqual(t, bytesOf(dev), before)
}

// bytesOf returns the bytes in use. Tensors of earlier tests may be collected at any time, so it may drop.
func bytesOf(d core.Device) int { return core.MemoryUsage(d).Current }
