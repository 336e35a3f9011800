package collective

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// What ranks leave behind is collected: their streams, whose queues are large, and what those know. An object's cleanup that can
// reach the object keeps it for ever, by whatever way.
func TestRanksLeaveNothingBehind(t *testing.T) {
	spawn := func() {
		require.NoError(t, Spawn(3, nil, patient, func(r *Rank) error {
			x := ones(64, 1)
			for _, w := range []*Work{r.World.AllReduce(x, Sum), r.World.AllGatherInto(ones(192, 0), x)} {
				if err := w.Wait(); err != nil {
					return err
				}
			}
			all := make([]*core.Tensor, 7) // more than a call has room for
			for i := range all {
				all[i] = x
			}
			return op.Cat(all, 0).Err()
		}))
	}
	objects := func(spawns int) int {
		for range spawns {
			spawn()
		}
		for range 4 { // what one cycle's cleanups let go of is the next one's
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapObjects)
	}
	before := objects(10)
	assert.Less(t, objects(50)-before, 500, "50 spawns leave objects behind")
}
