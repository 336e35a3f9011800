package tests_go

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
)

// Models of the meta device get their values on GPUs, each rank its rows, with the bits of one that was made there.
func TestMetaOnGPUs(t *testing.T) {
	needGPU(t)
	none, err := core.OpenDevice("meta")
	require.NoError(t, err)
	for name, devices := range places {
		err := spawn(t, 3, devices, func(r *collective.Rank) error {
			var all [][]float32
			for _, made := range []core.Device{r.Device, none} {
				core.ManualSeed(4)
				var m *nn.Sequential
				core.WithDevice(made, func() {
					m = nn.NewSequential(nn.NewLinear(7, 10, nn.LinearOptions{}), nn.NewBatchNorm1d(10, nn.BatchNormOptions{}))
					nn.InitNormal(m.Layers[0].(*nn.Linear).Weight, 0, 0.02)
				})
				p, err := fsdp.New(m, r.World, nil, fsdp.Options{})
				if err != nil {
					return err
				}
				err = p.Summon(fsdp.SummonOptions{}, func() error {
					got, err := parameters(m)
					all = append(all, got)
					return err
				})
				if err != nil {
					return err
				}
			}
			if !slices.Equal(all[0], all[1]) {
				return fmt.Errorf("%s: got %v, want %v", r.Device, all[1], all[0])
			}
			return nil
		})
		require.NoError(t, err, name)
	}
}

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

// A gather that does not wait for what a pass has launched so far waits for a change of a shard among it.
func TestShardsThatChangeInAPass(t *testing.T) {
	needGPU(t)
	err := spawn(t, 2, []string{"gpu:0", "cpu:0"}, func(r *collective.Rank) error {
		m := nn.NewSequential(nn.NewLinear(4, 4, nn.LinearOptions{}), nn.NewLinear(4, 4, nn.LinearOptions{NoBias: true}))
		if err := nn.ToDevice(m, r.Device); err != nil {
			return err
		}
		p, err := fsdp.New(m, r.World, fsdp.ByType(&nn.Linear{}), fsdp.Options{NoForwardPrefetch: true})
		if err != nil {
			return err
		}
		weight := m.Layers[1].(*nn.Linear).Weight
		units := p.Tree().Units()
		u := units[slices.IndexFunc(units, func(u *fsdp.Unit) bool { return len(u.Tensors()) == 1 })]
		shard := weight.Parts().Local()
		for pass := range 3 {
			want := float32(pass + 1)
			var got []float32
			_, err := p.Run(func(in []*core.Tensor) []*core.Tensor {
				free := make(chan struct{})
				stay(r.Device, free) // the change comes late
				core.NoGrad(func() { err = op.FillInPlace(shard, core.Num(float64(want))).Err() })
				err = errors.Join(err, u.Unshard())
				time.AfterFunc(20*time.Millisecond, func() { close(free) })
				if err == nil {
					got, err = core.Values[float32](weight)
				}
				u.Reshard()
				return in
			}, op.ToDevice(op.Ones(1, 4), r.Device))
			if err != nil || len(got) != 16 || slices.Min(got) != want || slices.Max(got) != want {
				return errors.Join(fmt.Errorf("pass %d: gathered %v, %v", pass, got, err), p.Close())
			}
		}
		return errors.Join(err, p.Close())
	})
	require.NoError(t, err)
}
