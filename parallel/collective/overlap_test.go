package collective

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// pieces are the inputs and outputs of one rank: the offsets of their first elements in the rank's memory. Each has n elements.
type pieces struct {
	n         int
	ins, outs []int
}

// overlap reports whether the pieces at offsets a and b overlap.
func (p pieces) overlap(a, b int) bool { return a < b+p.n && b < a+p.n }

// outputsOverlap reports whether two outputs overlap.
func (p pieces) outputsOverlap() bool {
	for i, a := range p.outs {
		if slices.ContainsFunc(p.outs[i+1:], func(b int) bool { return p.overlap(a, b) }) {
			return true
		}
	}
	return false
}

// memorySize is the number of elements in a rank's memory.
const memorySize = 60

// TestOverlappingInputsAndOutputs runs collectives whose inputs and outputs overlap at random. Results must be those of
// collectives on copies, or overlapping outputs must be an error.
func TestOverlappingInputsAndOutputs(t *testing.T) {
	one, all, none := func(int) int { return 1 }, func(n int) int { return n }, func(int) int { return 0 }
	add := func(parts ...[]float64) []float64 {
		sum := slices.Clone(parts[0])
		for _, p := range parts[1:] {
			for i := range p {
				sum[i] += p[i]
			}
		}
		return sum
	}
	// ins[r][i] is input i of rank r; rank 0 is the root.
	cases := []struct {
		kind              Kind
		rootIns, rootOuts func(n int) int
		ins, outs         func(n int) int
		start             func(g *Group, ins, outs []*core.Tensor) *Work
		want              func(ins [][][]float64, rank, out int) []float64
	}{
		{KindAllGather, one, all, one, all,
			func(g *Group, ins, outs []*core.Tensor) *Work { return g.AllGather(outs, ins[0]) },
			func(ins [][][]float64, rank, out int) []float64 { return ins[out][0] }},
		{KindGather, one, all, one, none,
			func(g *Group, ins, outs []*core.Tensor) *Work { return g.Gather(outs, ins[0], 0) },
			func(ins [][][]float64, rank, out int) []float64 { return ins[out][0] }},
		{KindScatter, all, one, none, one,
			func(g *Group, ins, outs []*core.Tensor) *Work { return g.Scatter(outs[0], ins, 0) },
			func(ins [][][]float64, rank, out int) []float64 { return ins[0][rank] }},
		{KindReduceScatter, all, one, all, one,
			func(g *Group, ins, outs []*core.Tensor) *Work { return g.ReduceScatter(outs[0], ins, Sum) },
			func(ins [][][]float64, rank, out int) []float64 {
				var parts [][]float64
				for r := range ins {
					parts = append(parts, ins[r][rank])
				}
				return add(parts...)
			}},
		{KindAllToAll, all, all, all, all,
			func(g *Group, ins, outs []*core.Tensor) *Work { return g.AllToAll(outs, ins) },
			func(ins [][][]float64, rank, out int) []float64 { return ins[out][rank] }},
	}
	random := rand.New(rand.NewPCG(3, 4))
	succeeded, failed := 0, 0
	for round := range 300 {
		c := cases[round%len(cases)]
		world := 1 + random.IntN(4)
		common := random.IntN(4) == 0 // all ranks use one memory
		draw := func(r int, n int) pieces {
			p := pieces{n: n}
			ins, outs := c.ins, c.outs
			if r == 0 {
				ins, outs = c.rootIns, c.rootOuts
			}
			spread := []int{10, memorySize - 8}[random.IntN(2)]
			for range ins(world) {
				p.ins = append(p.ins, random.IntN(spread))
			}
			for i := range outs(world) {
				at := random.IntN(spread)
				if random.IntN(2) == 0 { // adjacent, as parts of one tensor
					at = i * n
				}
				if random.IntN(3) == 0 && len(p.ins) > 0 { // in the memory of an input
					at = p.ins[random.IntN(len(p.ins))]
				}
				p.outs = append(p.outs, at)
			}
			return p
		}
		allPieces := make([]pieces, world)
		n := random.IntN(9)
		for r := range allPieces {
			allPieces[r] = draw(r, n)
			for common && slices.ContainsFunc(allPieces[r].ins, func(in int) bool {
				return slices.ContainsFunc(allPieces[r].outs, func(out int) bool { return allPieces[r].overlap(in, out) })
			}) {
				allPieces[r] = draw(r, n)
			}
		}
		mustFail := n > 0 && slices.ContainsFunc(allPieces, pieces.outputsOverlap)

		memory := make([][]float64, world) // actual and expected contents
		ins := make([][][]float64, world)
		for r := range memory {
			memory[r] = make([]float64, memorySize)
			for i := range memory[r] {
				memory[r][i] = float64(random.IntN(1000))
			}
			if common {
				memory[r] = memory[0]
			}
			for _, at := range allPieces[r].ins {
				ins[r] = append(ins[r], slices.Clone(memory[r][at:at+n]))
			}
		}
		given := make([]*core.Tensor, world)
		for r := range given {
			given[r] = core.FromSlice(memory[r])
			if common {
				given[r] = given[0]
			}
		}
		err := Spawn(world, nil, longTimeout, func(r *Rank) error {
			cut := func(from []int) (list []*core.Tensor) {
				for _, at := range from {
					list = append(list, op.Narrow(given[r.Rank], 0, at, n))
				}
				return list
			}
			in, out := cut(allPieces[r.Rank].ins), cut(allPieces[r.Rank].outs)
			if err := c.start(r.World, in, out).Wait(); err != nil {
				return err
			}
			return r.World.Barrier()
		})
		what := fmt.Sprintf("round %d: %v of %+v, common %v", round, c.kind, allPieces, common)
		if mustFail || common && err != nil {
			require.ErrorContains(t, err, "share memory", what)
			failed++
			continue
		}
		require.NoError(t, err, what)
		succeeded++
		for r, p := range allPieces {
			for i, at := range p.outs {
				copy(memory[r][at:at+n], c.want(ins, r, i))
			}
		}
		for r := range memory {
			got, err := core.Values[float64](given[r])
			require.NoError(t, err)
			require.Equal(t, memory[r], got, what)
		}
	}
	require.Greater(t, succeeded, 100)
	require.Greater(t, failed, 30)
}

// TestOverlappingOutputsAreAnError checks that the error names both outputs that share memory, on one rank or on two.
func TestOverlappingOutputsAreAnError(t *testing.T) {
	sheet := func() *core.Tensor { return op.Zeros(4, 6) }
	for _, c := range []struct {
		want  string
		start func(r *Rank) *Work
	}{
		{"all_gather: outputs 0 and 1, float32[2] and float32[2], share memory", func(r *Rank) *Work {
			x := op.Zeros(2)
			return r.World.AllGather([]*core.Tensor{x, x}, op.Ones(2))
		}},
		{"all_reduce: tensors 0 and 1, float32[3] and float32[3], share memory", func(r *Rank) *Work {
			x := op.Zeros(4)
			return r.World.AllReduceMany([]*core.Tensor{op.Narrow(x, 0, 0, 3), op.Narrow(x, 0, 1, 3)}, Sum)
		}},
		{"all_gather: outputs 0 and 1, float32[4 3] and float32[4 4], share memory", func(r *Rank) *Work {
			x := sheet()
			return r.World.AllGather([]*core.Tensor{op.Narrow(x, 1, 0, 3), op.Narrow(x, 1, 2, 4)}, op.Ones(4, 3))
		}},
		{"all_gather: outputs 0 and 1, float32[6] and float32[4 1], share memory", func(r *Rank) *Work {
			x := sheet()
			return r.World.AllGather([]*core.Tensor{op.Select(x, 0, 1), op.Narrow(x, 1, 2, 1)}, op.Ones(4))
		}},
		{"all_reduce: elements of output 0, of shape [3 2] with strides [1 0], share memory; clone it first", func(r *Rank) *Work {
			return r.World.AllReduce(op.Expand(op.Zeros(3, 1), 3, 2), Sum)
		}},
	} {
		require.ErrorContains(t, Spawn(2, nil, longTimeout, func(r *Rank) error { return c.start(r).Wait() }), c.want)
	}
	x := op.Zeros(4)
	err := Spawn(2, nil, longTimeout, func(r *Rank) error {
		return r.World.AllReduce(op.Narrow(x, 0, r.Rank, 3), Sum).Wait()
	})
	require.ErrorContains(t, err, "all_reduce #1: ")
	require.Regexp(t, `(in|out)put 0 of rank 0, float32\[3\], and (in|out)put 0 of rank 1, float32\[3\], share memory`, err.Error())
	err = Spawn(2, nil, longTimeout, func(r *Rank) error {
		if r.Rank == 0 {
			return r.World.Send(op.Narrow(x, 0, 0, 3), 1, 0).Wait()
		}
		return r.World.Recv(op.Narrow(x, 0, 1, 3), 0, 0).Wait()
	})
	require.ErrorContains(t, err, "input 0 of rank 0, float32[3], and output 0 of rank 1, float32[3], share memory")
	y := op.Zeros(4)
	require.ErrorContains(t, AllReduceSyncMany([][]*core.Tensor{{x, x}, {y, op.Zeros(4)}}, Sum), "device 0: all_reduce: tensors 0 and 1")
	require.ErrorContains(t, AllReduceSync([]*core.Tensor{op.Narrow(x, 0, 0, 3), op.Narrow(x, 0, 1, 3)}, Sum), "share memory")
	require.NoError(t, allEqual(x, 0))
}

// TestInterleavedOutputs uses columns of one matrix, which interleave but do not overlap.
func TestInterleavedOutputs(t *testing.T) {
	require.NoError(t, Spawn(2, nil, longTimeout, func(r *Rank) error {
		x := op.Zeros(3, 2)
		left, right := op.Select(x, 1, 0), op.Select(x, 1, 1)
		if err := r.World.AllGather([]*core.Tensor{left, right}, op.Full([]int{3}, core.Num(float64(r.Rank+1)), op.TensorOptions{})).Wait(); err != nil {
			return err
		}
		if err := r.World.AllReduceMany([]*core.Tensor{left, right}, Sum).Wait(); err != nil {
			return err
		}
		if v, err := core.Values[float32](x); err != nil || !slices.Equal(v, []float32{2, 4, 2, 4, 2, 4}) {
			return fmt.Errorf("got %v, %v", v, err)
		}
		return nil
	}))
}

// TestOneTensorForAllRanks passes the same tensor as input and output on all ranks.
func TestOneTensorForAllRanks(t *testing.T) {
	x := op.Ones(30000)
	require.NoError(t, Spawn(3, nil, longTimeout, func(r *Rank) error { return r.World.AllReduce(x, Sum).Wait() }))
	require.NoError(t, allEqual(x, 3))
}
