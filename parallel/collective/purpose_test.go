package collective

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPurposesDiffer checks that calls with equal shapes but different purposes do not match. The error names both purposes on
// every rank.
func TestPurposesDiffer(t *testing.T) {
	for name, call := range map[string]func(g *Group) *Work{
		"all_reduce":     func(g *Group) *Work { return g.AllReduce(filled(2, 1), Sum) },
		"broadcast":      func(g *Group) *Work { return g.Broadcast(filled(2, 1), 0) },
		"reduce_scatter": func(g *Group) *Work { return g.ReduceScatterInto(filled(2, 1), filled(6, 1), Sum) },
		"exchange":       func(g *Group) *Work { return g.StartExchange("", []byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			errs := make([]error, 3)
			require.NoError(t, spawn(3, nil, longTimeout, func(r *Rank) error {
				same := r.World.For("unit 1").WithTimeout(longTimeout.Timeout)
				if err := call(same).Wait(); err != nil {
					return err
				}
				errs[r.Rank] = call(r.World.For(fmt.Sprint("unit ", min(r.Rank, 1)))).Wait()
				return r.World.Barrier()
			}))
			for _, err := range errs {
				require.ErrorContains(t, err, "the ranks disagree")
				assert.Regexp(t, name+" #2: .*rank 0 calls "+name+".* for unit 0.*; (rank 1 calls|rank 2 calls|ranks 1 and 2 call) "+name+".* for unit 1", err.Error())
			}
		})
	}
}

func TestPurposesOfSendsDiffer(t *testing.T) {
	err := spawn(2, nil, longTimeout, func(r *Rank) error {
		g := r.World.For(fmt.Sprint("micro-batch ", r.Rank))
		if r.Rank == 0 {
			return g.Send(filled(2, 1), 1, 7).Wait()
		}
		return g.Recv(filled(2, 1), 0, 7).Wait()
	})
	require.ErrorContains(t, err, "rank 0 sends float64[2] for micro-batch 0, rank 1 wants float64[2] for micro-batch 1")
	require.Equal(t, 2, strings.Count(err.Error(), "rank 0 sends"))
}
