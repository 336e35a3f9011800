package tests_go

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
)

// 28. Ranks that share a GPU, or GPUs and CPUs in turn, train divided models as one device does on the joined batch, also
// where one rank is slow to enqueue.
func TestCase28OnGPUs(t *testing.T) {
	needGPU(t)
	const each = 5
	for _, world := range []int{2, 3} {
		want := oneDevice(t, world*each)
		for name, devices := range places {
			for variant, options := range map[string]fsdp.Options{
				"default": {}, "kept": {KeepAfterForward: true}, "no prefetch": {NoForwardPrefetch: true, BackwardPrefetch: fsdp.PrefetchNever},
			} {
				got := make([][]float32, world)
				err := spawn(t, world, devices, func(r *collective.Rank) error {
					m, err := network(r.Device)
					if err != nil {
						return err
					}
					p, err := fsdp.New(m, r.World, fsdp.ByType(&nn.Linear{}), options)
					if err != nil {
						return err
					}
					late := func(step int) {
						if r.Rank == step%world {
							time.Sleep(3 * time.Millisecond)
						}
					}
					if err := fit(nn.Parameters(m), p.Forward, r.Rank*each, (r.Rank+1)*each, r.Device, late); err != nil {
						return err
					}
					return p.Summon(fsdp.SummonOptions{}, func() error {
						got[r.Rank], err = parameters(m)
						return err
					})
				})
				what := fmt.Sprint(world, " ranks, ", name, ", ", variant)
				require.NoError(t, err, what)
				for r := range got {
					require.InDeltaSlice(t, want, got[r], 1e-4, "%s: rank %d", what, r)
				}
			}
		}
	}
}
