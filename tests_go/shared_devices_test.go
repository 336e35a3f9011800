package tests_go

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/collective"
)

// Ranks and groups that share devices in every combination come to the end of collectives of every kind, launched one after
// the other with computation on their results in between, while one rank is slow to enqueue; and to the same bits.
func TestSharedDevices(t *testing.T) {
	needGPU(t)
	devices := []string{"cpu:0", "cpu:1", "gpu:0", "gpu:1"}
	if gpu.Count() < 2 {
		devices = devices[:3]
	}
	for _, world := range []int{2, 3} {
		want := on(t, world, []string{"cpu:0"}, mixture)
		for _, list := range assignments(devices, world) {
			require.Equal(t, want, on(t, world, list, mixture), fmt.Sprint(list))
		}
	}
}

// assignments returns the ways to give n ranks devices, those left out that only exchange the names of two of a kind.
func assignments(devices []string, n int) (all [][]string) {
	if n == 0 {
		return [][]string{nil}
	}
	for _, before := range assignments(devices, n-1) {
		for _, d := range devices {
			first := d[:3] + ":0"
			if d == first || slices.Contains(before, first) {
				all = append(all, append(slices.Clone(before), d))
			}
		}
	}
	return all
}

// mixture launches collectives in several groups, waits for none but the last, and returns what came of it.
func mixture(r *collective.Rank) ([][]byte, error) {
	n, me := r.World.Size(), r.Rank
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	again, err := r.World.New(all, collective.Options{})
	if err != nil {
		return nil, err
	}
	pair, err := r.World.New([]int{0, n - 1}, collective.Options{})
	if err != nil {
		return nil, err
	}
	const part = 500
	shard, full := random(r, part, 1, core.Float32), random(r, part*n, 2, core.Float32)
	sum, other := random(r, part, 3, core.Float32), random(r, 700, 4, core.Float32)
	var works collective.Works
	for i := range 8 {
		if i%n == me {
			time.Sleep(2 * time.Millisecond)
		}
		// What is gathered, used, and its sum given back, as divided models do it; a copy within a GPU and one over the host.
		works = append(works, r.World.AllGatherInto(full, shard))
		product := op.Mul(full, core.Num(0.5))
		works = append(works, r.World.ReduceScatterInto(sum, product, collective.Avg))
		works = append(works, again.Broadcast(other, i%n))
		op.AddInPlace(other, core.Num(float64(me)))
		works = append(works, again.AllReduce(other, collective.Avg))
		op.AddInPlace(shard, op.Mul(sum, core.Num(0.1)))
		if pair != nil {
			works = append(works, pair.AllReduce(sum, collective.Max))
		}
		op.AddInPlace(sum, op.Narrow(other, 0, 0, part))
		next, before := (me+1)%n, (me+n-1)%n
		got := op.ZerosLike(sum, op.TensorOptions{})
		works = append(works, r.World.Send(sum, next, i), r.World.Recv(got, before, i))
		op.AddInPlace(shard, op.Mul(got, core.Num(0.01)))
	}
	if err := works.Wait(); err != nil {
		return nil, err
	}
	return bytesOf(shard, full, sum, other)
}
