package collective

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// TestDeadlockIsAnError makes ranks wait for each other in different calls. They must get an error long before the timeout.
func TestDeadlockIsAnError(t *testing.T) {
	for name, wait := range map[string]func(r *Rank, other *Group) error{
		"sends": func(r *Rank, _ *Group) error { return r.World.Recv(filled(2, 1), 1-r.Rank, 0).Wait() },
		"groups": func(r *Rank, other *Group) error {
			return []*Group{r.World, other}[r.Rank].Barrier()
		},
		"a send and a collective": func(r *Rank, _ *Group) error {
			if r.Rank == 0 {
				return r.World.Send(filled(2, 1), 1, 3).Wait()
			}
			return r.World.AllReduce(filled(2, 1), Sum).Wait()
		},
		"a value and a collective": func(r *Rank, other *Group) error {
			if r.Rank == 0 {
				return r.World.Barrier()
			}
			x := filled(2, 1)
			other.AllReduce(x, Sum)
			return op.Add(x, x).Wait()
		},
		"values": func(r *Rank, other *Group) error {
			x := filled(2, 1)
			[]*Group{r.World, other}[r.Rank].AllReduce(x, Sum)
			return op.Add(x, x).Wait()
		},
		"an end that waits for no other order": func(r *Rank, other *Group) error {
			if r.Rank == 0 {
				return r.World.Barrier()
			}
			w := other.StartExchange("end", nil)
			if over, crossed := w.WaitForRanksUnlessCrossed(-1); over || !crossed {
				return fmt.Errorf("got over %v, crossed %v", over, crossed)
			}
			return w.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs := make([]error, 2)
			require.Error(t, spawn(2, nil, Options{Timeout: 5 * time.Minute}, func(r *Rank) error {
				other, err := r.World.New([]int{0, 1}, Options{Name: "other"})
				if err != nil {
					return err
				}
				errs[r.Rank] = wait(r, other)
				return errs[r.Rank]
			}))
			for _, err := range errs {
				require.ErrorContains(t, err, "deadlock, the ranks wait for each other: rank 0 in ")
				require.ErrorContains(t, err, "; rank 1 in ")
			}
		})
	}
}

// TestDeadlockThroughResults makes ranks use the results of collectives in different orders. They get an error, however they wait.
func TestDeadlockThroughResults(t *testing.T) {
	// Each returns a result of rank 1 if later is set, and of the other ranks otherwise.
	orders := map[string]func(a, b *Group, later bool) *core.Tensor{
		"in place": func(a, b *Group, later bool) *core.Tensor {
			if later {
				a, b = b, a
			}
			x := filled(2, 1)
			a.AllReduce(x, Sum)
			b.AllReduce(x, Sum)
			return x
		},
		"computed": func(a, b *Group, later bool) *core.Tensor {
			if later {
				a, b = b, a
			}
			x := filled(2, 1)
			a.AllReduce(x, Sum)
			y := op.Add(x, x)
			b.AllReduce(y, Sum)
			return op.Add(y, y)
		},
		"pieces": func(a, b *Group, later bool) *core.Tensor {
			x, all := filled(2, 1), filled(6, 1)
			if later {
				b.ReduceScatterInto(x, all, Sum)
				y := op.Add(x, x)
				a.AllGatherInto(all, y)
				return op.Add(all, all)
			}
			a.AllGatherInto(all, x)
			y := op.Add(all, all)
			b.ReduceScatterInto(x, y, Sum)
			return op.Add(x, x)
		},
	}
	waits := map[string]func(x *core.Tensor) error{
		"value": func(x *core.Tensor) error { return x.Wait() },
		"stream": func(x *core.Tensor) error {
			if err := core.CurrentContext().Stream(x.Device()).Synchronize(); err != nil {
				return err
			}
			return x.Wait()
		},
	}
	for order, call := range orders {
		for how, wait := range waits {
			t.Run(order+", "+how, func(t *testing.T) {
				errs := make([]error, 3)
				require.Error(t, spawn(3, nil, Options{Timeout: 5 * time.Minute}, func(r *Rank) error {
					other, err := r.World.New([]int{0, 1, 2}, Options{Name: "other"})
					if err != nil {
						return err
					}
					errs[r.Rank] = wait(call(r.World, other, r.Rank == 1))
					return errs[r.Rank]
				}))
				for _, err := range errs {
					require.ErrorContains(t, err, "deadlock, collectives wait for each other's results: rank ")
					require.ErrorContains(t, err, `of the group "other"`)
				}
			})
		}
	}
}

// TestCancelledCollectiveFailsOnEveryRank makes a deadlock in which rank 0 only sends. Its tensors are valid, but its works have the error.
func TestCancelledCollectiveFailsOnEveryRank(t *testing.T) {
	for name, call := range map[string]func(g *Group, x *core.Tensor) *Work{
		"broadcast": func(g *Group, x *core.Tensor) *Work { return g.Broadcast(x, 0) },
		"send": func(g *Group, x *core.Tensor) *Work {
			if g.Rank() == 0 {
				return g.Send(x, 1, 0)
			}
			return g.Recv(x, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, spawn(2, nil, Options{Timeout: 5 * time.Minute}, func(r *Rank) error {
				other, err := r.World.New([]int{0, 1}, Options{Name: "other"})
				if err != nil {
					return err
				}
				x := filled(2, 1)
				var works Works
				if r.Rank == 0 {
					works = append(works, call(r.World, x))
					op.AddInPlace(x, core.Num(1)) // once the first has read it
					works = append(works, call(other, x))
					if err := allEqual(x, 2); err != nil {
						return err
					}
				} else {
					works = append(works, call(other, x), call(r.World, x))
				}
				for _, w := range works {
					if err := w.Wait(); err == nil || !strings.Contains(err.Error(), "deadlock, collectives wait for each other's results: rank ") {
						return fmt.Errorf("rank %d: %v of the group %q: got %v", r.Rank, w, w.Group(), err)
					}
				}
				y := filled(2, 1)
				return errors.Join(call(r.World, y).Wait(), call(other, y).Wait(), allEqual(y, 1))
			}))
		})
	}
}

// TestSlowValueIsNoDeadlock makes one rank wait for a value that another rank computes slowly.
func TestSlowValueIsNoDeadlock(t *testing.T) {
	require.NoError(t, spawn(2, nil, Options{Timeout: time.Minute}, func(r *Rank) error {
		x := filled(2, 1)
		if r.Rank == 1 {
			s := core.CurrentContext().Stream(x.Device())
			c := s.Begin(-1, "slow")
			c.Work, c.Fn = math.MaxInt, func() error { time.Sleep(2 * deadlockDelay); return nil }
			c.Out(x)
			core.Launch(s, c)
			if err := x.Wait(); err != nil {
				return err
			}
		}
		r.World.AllReduce(x, Sum)
		return op.Add(x, x).Wait()
	}))
}

// TestOtherThreadsPreventDeadlock checks that waiting ranks get no error while their other threads can still make the call.
func TestOtherThreadsPreventDeadlock(t *testing.T) {
	require.NoError(t, spawn(2, nil, Options{Timeout: time.Minute}, func(r *Rank) error {
		r.World.AddThreads(1)
		sent := make(chan error)
		go func() {
			defer r.World.AddThreads(-1)
			time.Sleep(3 * deadlockDelay / 2)
			sent <- r.World.Send(filled(2, 1), 1-r.Rank, 0).Wait()
		}()
		if err := r.World.Recv(filled(2, 1), 1-r.Rank, 0).Wait(); err != nil {
			return err
		}
		return <-sent
	}))
}
