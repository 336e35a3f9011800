package collective

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/coretest/wiretest"
	"github.com/plait-ml/plait/core/op"
)

// everyKind runs every collective on tensors of a dtype with about n elements, and returns the contents of all tensors after each.
func everyKind(r *Rank, d core.DType, n int) (all [][]byte, err error) {
	g, size := r.World, r.World.Size()
	random := func(salt, n int) *core.Tensor {
		rng := rand.New(rand.NewPCG(uint64(r.Rank), uint64(salt)))
		v := make([]float64, n)
		for i := range v {
			if v[i] = float64(rng.IntN(100)); d.IsFloat() {
				v[i] = rng.NormFloat64()
			}
		}
		return tensorOf(v, d)
	}
	keep := func(w *Work, tensors ...*core.Tensor) {
		err = errors.Join(err, w.Wait())
		for _, t := range tensors {
			b, e := t.Bytes()
			all, err = append(all, b), errors.Join(err, e)
		}
	}
	for o := Sum; o <= BitXor; o++ {
		if o.check("", d) == nil {
			x, y, z := random(1, n), random(2, n), random(3, n*size)
			keep(g.AllReduce(x, o), x)
			keep(g.Reduce(x, size-1, o), x)
			keep(g.ReduceScatterInto(y, z, o), y)
		}
	}
	x, y := random(4, n), random(5, 3)
	keep(g.BroadcastMany([]*core.Tensor{x, y}, 1%size), x, y)
	ins, outs := make([]*core.Tensor, size), make([]*core.Tensor, size)
	for q := range size {
		ins[q], outs[q] = random(10+q, n+q), random(20+q, n+q)
	}
	keep(g.AllGather(outs, random(6, n+r.Rank)), outs...)
	own := random(7, n*size)
	keep(g.AllGatherInto(own, op.Narrow(own, 0, r.Rank*n, n)), own)
	parts := make([]*core.Tensor, size)
	for q := range size {
		parts[q] = random(30+q, n+r.Rank+q)
	}
	for q := range size {
		ins[q] = random(40+q, n+r.Rank+q)
	}
	keep(g.AllToAll(parts, ins), parts...)
	keep(g.AllToAllInto(own, random(8, n*size), nil, nil), own)
	keep(g.Gather(outs, random(9, n+r.Rank), 0), outs...)
	out := random(50, n+r.Rank)
	for q := range size {
		ins[q] = random(60+q, n+q)
	}
	keep(g.Scatter(out, ins, size-1), out)
	m := random(70, 3*n)
	if n > 0 {
		column := op.Select(op.Reshape(m, n, 3), 1, 1)
		keep(g.AllReduce(column, Max), m)
	}
	if size > 1 {
		got := random(80, n)
		s := g.Send(random(81, n), (r.Rank+1)%size, 5)
		keep(g.Recv(got, (r.Rank+size-1)%size, 5), got)
		keep(s)
	}
	return all, err
}

// TestBitsAcrossProcesses compares the bits of ranks in several processes with those of threads of one.
func TestBitsAcrossProcesses(t *testing.T) {
	const ranks = 4
	for _, c := range []struct {
		n      int
		dtypes []core.DType
		delay  time.Duration
	}{
		{0, []core.DType{core.Float32}, 0}, {7, core.RealDTypes(), 0}, {1000, []core.DType{core.BFloat16}, 200 * time.Microsecond},
		{9001, []core.DType{core.Bool, core.Int32, core.Float16, core.Float32}, 0},
	} {
		for _, d := range c.dtypes[:coretest.Rounds(len(c.dtypes))] {
			want := make([][][]byte, ranks)
			require.NoError(t, Spawn(ranks, nil, longTimeout, func(r *Rank) (err error) {
				want[r.Rank], err = everyKind(r, d, c.n)
				return err
			}))
			for name, counts := range map[string][]int{"four": {1, 1, 1, 1}, "two pairs": {2, 2}, "three and one": {3, 1}} {
				t.Run(fmt.Sprintf("%d of %v on %s", c.n, d, name), func(t *testing.T) {
					net := wiretest.New(len(counts), c.delay, uint64(c.n))
					require.NoError(t, spawnIn(net, counts, nil, longTimeout, func(r *Rank) error {
						got, err := everyKind(r, d, c.n)
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
	}
}

// TestChunks moves tensors of several chunks, and compares the bits with those of threads.
func TestChunks(t *testing.T) {
	const n = 1300003
	data := make([][]float32, 3)
	for r := range data {
		rng := rand.New(rand.NewPCG(4, uint64(r)))
		data[r] = make([]float32, n)
		for i := range data[r] {
			data[r][i] = rng.Float32() - 0.5
		}
	}
	run := func(spawn func(fn func(r *Rank) error) error) (all [3][2][]byte) {
		require.NoError(t, spawn(func(r *Rank) (err error) {
			x, y := core.FromSlice(data[r.Rank]), core.FromSlice(data[r.Rank])
			if err := (Works{r.World.AllReduce(x, Avg), r.World.Broadcast(y, 2)}).Wait(); err != nil {
				return err
			}
			all[r.Rank][0], err = x.Bytes()
			if err == nil {
				all[r.Rank][1], err = y.Bytes()
			}
			return err
		}))
		return all
	}
	want := run(func(fn func(r *Rank) error) error { return Spawn(3, nil, longTimeout, fn) })
	for _, counts := range [][]int{{1, 1, 1}, {2, 1}, {1, 2}} {
		got := run(func(fn func(r *Rank) error) error {
			return spawnIn(wiretest.New(len(counts), 0, 1), counts, nil, longTimeout, fn)
		})
		for r := range got {
			for i := range got[r] {
				require.True(t, bytes.Equal(got[r][i], want[r][i]), "tensor %d of rank %d", i, r)
			}
		}
	}
}

// TestTraffic checks that an all-reduce sends no more than it must, and that ranks of one process do not use the transport.
func TestTraffic(t *testing.T) {
	const n = 1 << 20
	for _, processes := range []int{2, 4} {
		counts := layouts["one rank each"](processes)
		net := wiretest.New(processes, 0, 1)
		require.NoError(t, spawnIn(net, counts, nil, longTimeout, func(r *Rank) error {
			x := op.Ones(n)
			before := net.Transport(r.Rank).Bytes()
			if err := r.World.AllReduce(x, Sum).Wait(); err != nil {
				return err
			}
			if got, want := net.Transport(r.Rank).Bytes()-before, 2*4*n*(processes-1)/processes; got != want {
				return fmt.Errorf("sent %d bytes, want %d", got, want)
			}
			return nil
		}))
	}
	net := wiretest.New(2, 0, 1)
	require.NoError(t, eachProcess(net, []int{2, 2}, longTimeout, func(w *World, first int) error {
		return w.Spawn(nil, func(r *Rank) error {
			var pair *Group
			for i := range 2 {
				g, err := r.World.New([]int{2 * i, 2*i + 1}, Options{})
				if err != nil {
					return err
				}
				if g != nil {
					pair = g
				}
			}
			if err := r.World.Barrier(); err != nil {
				return err
			}
			if w.ProcessOf(r.Rank) != w.Process() || r.World.Backend() != "memory" || pair.Backend() != "local" {
				return fmt.Errorf("rank %d is said to live in process %d, with %s and %s", r.Rank, w.ProcessOf(r.Rank), r.World.Backend(), pair.Backend())
			}
			before := net.Transport(w.Process()).Bytes()
			for _, size := range []int{1, n} {
				if err := pair.AllReduce(op.Ones(size), Sum).Wait(); err != nil {
					return err
				}
			}
			if got := net.Transport(w.Process()).Bytes(); got != before {
				return fmt.Errorf("ranks of one process sent %d bytes to others", got-before)
			}
			return r.World.Barrier()
		})
	}))
}

func TestJoinWorldErrors(t *testing.T) {
	// A process that brings no ranks.
	errs := make([]error, 2)
	net := wiretest.New(2, 0, 1)
	var wg sync.WaitGroup
	for p := range errs {
		wg.Go(func() { _, errs[p] = JoinWorld(net.Transport(p), p, longTimeout) })
	}
	wg.Wait()
	require.ErrorContains(t, errs[0], "got 0 ranks, want at least one in each process")
	require.ErrorContains(t, errs[1], "process 0 does not join: world: got 0 ranks")

	// A process that never comes.
	_, err := JoinWorld(wiretest.New(3, 0, 1).Transport(1), 1, Options{Timeout: 20 * time.Millisecond})
	require.ErrorContains(t, err, "processes [0 2] of 3 have not joined within 20ms")

	// A process of another version.
	net = wiretest.New(2, 0, 1)
	other := net.Transport(1)
	other.Listen(func(int, []byte) {})
	w := writer{byte(hello)}
	w.int(wireFormat + 1)
	other.Post(0, w)
	_, err = JoinWorld(net.Transport(0), 1, longTimeout)
	require.ErrorContains(t, err, fmt.Sprintf("process 1 has another version of the engine: its messages have format %d, those of process 0 format %d",
		wireFormat+1, wireFormat))

	// A process that is lost meanwhile.
	net = wiretest.New(2, 0, 1)
	time.AfterFunc(10*time.Millisecond, func() { net.Lose(1, false) })
	_, err = JoinWorld(net.Transport(0), 1, longTimeout)
	require.ErrorContains(t, err, "process 1 is gone: the connection to process 1 is lost")
}

// TestDamagedMessage sends what no process would. The others must lose the sender, not crash.
func TestDamagedMessage(t *testing.T) {
	net := wiretest.New(2, 0, 1)
	require.NoError(t, eachProcess(net, []int{1, 1}, longTimeout, func(w *World, _ int) error {
		return w.Spawn(nil, func(r *Rank) error {
			if err := r.World.Barrier(); err != nil {
				return err
			}
			if r.Rank == 1 {
				bad := r.World.local.rendezvous.message(announcement)
				bad = append(bad, 200, 201, 202)
				net.Transport(1).Post(0, bad)
			}
			for r.World.Barrier() == nil {
			}
			err := r.World.Barrier()
			if err == nil || !strings.Contains(err.Error(), "cannot be read") {
				return fmt.Errorf("rank %d: got %v", r.Rank, err)
			}
			return nil
		})
	}))
}

// TestLostProcess loses a process at random moments. Every rank must get an error that names one of its ranks, and no result may be wrong.
func TestLostProcess(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 9))
		counts := [][]int{{1, 1, 1}, {2, 1, 1}, {1, 2}}[seed%3]
		delay := time.Duration(seed%2) * 300 * time.Microsecond
		size := []int{5, 4000, 400000}[rng.IntN(3)]
		victim := rng.IntN(len(counts))
		net := wiretest.New(len(counts), delay, uint64(seed))
		silent := seed%4 == 3
		worlds := make(chan *World, len(counts))
		pause := time.Duration(rng.IntN(20000)) * time.Microsecond
		go func() {
			var all []*World
			for range counts {
				all = append(all, <-worlds)
			}
			time.Sleep(pause)
			net.Lose(victim, silent)
			for _, w := range all { // as a control channel does
				for p := range counts {
					if silent && p != w.Process() && (p == victim || w.Process() == victim) {
						w.Lose(p, fmt.Errorf("process %d sends no heartbeats", p))
					}
				}
			}
		}()
		n := 0
		for _, c := range counts {
			n += c
		}
		err := eachProcess(net, counts, longTimeout, func(w *World, _ int) error {
			worlds <- w
			return w.Spawn(nil, func(r *Rank) error {
				for i := 0; ; i++ {
					x, y := filled(size, float64(r.Rank+i)), filled(size, -1)
					a := r.World.AllReduce(x, Sum)
					s, v := r.World.Send(filled(size, float64(r.Rank)), (r.Rank+1)%n, 1), r.World.Recv(y, (r.Rank+n-1)%n, 1)
					if err := errors.Join(a.Wait(), v.Wait(), s.Wait()); err != nil {
						if !strings.Contains(err.Error(), "is gone") {
							return fmt.Errorf("unexpected: %w", err)
						}
						return nil
					}
					if err := errors.Join(allEqual(x, float64(n*(n-1)/2+n*i)), allEqual(y, float64((r.Rank+n-1)%n))); err != nil {
						return fmt.Errorf("wrong: %w", err)
					}
				}
			})
		})
		if err != nil {
			assert.NotContains(t, err.Error(), "wrong")
			assert.NotContains(t, err.Error(), "unexpected")
		}
	}
}

// TestLateTensors makes a rank's tensors wait for something that does not come in time. The other ranks must not hang.
func TestLateTensors(t *testing.T) {
	for _, n := range []int{3, 100000} {
		net := wiretest.New(2, 0, 1)
		over := make(chan struct{})
		require.NoError(t, eachProcess(net, []int{1, 1}, Options{Timeout: 100 * time.Millisecond, Log: func(string) {}}, func(w *World, _ int) error {
			return w.Spawn(nil, func(r *Rank) error {
				x := filled(n, 1)
				if r.Rank == 1 {
					s := core.CurrentContext().Stream(x.Device())
					c := s.Begin(-1, "hold")
					c.Work, c.Fn = math.MaxInt, func() error { <-over; return nil }
					s.Launch(c.Out(x))
					r.World.AllReduce(x, Sum)
					<-over
					return nil
				}
				defer close(over)
				err := r.World.AllReduce(x, Sum).Wait()
				if err == nil || !strings.Contains(err.Error(), "not ready within 100ms") {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
		}))
	}
}

// TestEmptySend sends tensors without elements, before and after their values are known.
func TestEmptySend(t *testing.T) {
	require.NoError(t, spawnIn(wiretest.New(2, 0, 1), []int{1, 1}, nil, longTimeout, func(r *Rank) error {
		for i := range 20 {
			x := filled(0, 1)
			if i%2 == 0 {
				s := core.CurrentContext().Stream(x.Device())
				c := s.Begin(-1, "slow")
				c.Work, c.Fn = math.MaxInt, func() error { time.Sleep(time.Millisecond); return nil }
				s.Launch(c.Out(x))
			}
			if r.Rank == 0 {
				if err := r.World.Send(x, 1, 0).Wait(); err != nil {
					return err
				}
			} else if err := r.World.Recv(x, -1, 0).Wait(); err != nil {
				return err
			}
		}
		return r.World.Barrier()
	}))
}

// TestSynchronizeWaitsForOtherProcesses checks that waiting for a device waits for the transfers of its tensors.
func TestSynchronizeWaitsForOtherProcesses(t *testing.T) {
	net := wiretest.New(2, 2*time.Millisecond, 1)
	err := spawnIn(net, []int{1, 1}, nil, Options{}, func(r *Rank) error {
		for range 20 {
			x := op.Full([]int{100_000}, core.Num(1), op.TensorOptions{})
			w := r.World.AllReduce(x, Sum)
			w.WaitForRanks()
			if err := core.Synchronize(); err != nil {
				return err
			}
			assert.True(t, w.Event().Done())
		}
		return nil
	})
	require.NoError(t, err)
}

// TestManyCollectivesOfEmptyTensors checks works that end with each other: looking at all ways between them would take forever.
func TestManyCollectivesOfEmptyTensors(t *testing.T) {
	require.NoError(t, spawn(2, nil, Options{}, func(r *Rank) error {
		x, y := op.Zeros(0), op.Zeros(0)
		stream := core.CurrentContext().Stream(r.Device)
		for _, t := range []*core.Tensor{x, y} {
			c := stream.Begin(-1, "slow").Out(t)
			c.Work = math.MaxInt
			c.Fn = func() error { time.Sleep(20 * time.Millisecond); return nil }
			if err := core.Launch(stream, c); err != nil {
				return err
			}
		}
		var works Works
		for range 60 {
			works = append(works, r.World.AllReduceMany([]*core.Tensor{x, y}, Sum), r.World.AllReduce(y, Sum), r.World.AllReduceMany([]*core.Tensor{y, x}, Sum))
		}
		assert.True(t, works[len(works)-1].Event().WaitFor(time.Minute))
		return works.Wait()
	}))
}
