package collective

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

// TestParts gathers and reduces several tensors in one collective, with unequal and empty parts.
func TestParts(t *testing.T) {
	sizes := [][]int{{2, 1, 0}, {1, 1, 1}, {0, 0, 4}}
	err := spawn(3, []string{"cpu:0"}, Options{}, func(r *Rank) error {
		var parts, wholes []*core.Tensor
		for i, s := range sizes {
			mine := make([]float64, s[r.Rank])
			for k := range mine {
				mine[k] = float64(100*i + 10*r.Rank + k)
			}
			parts = append(parts, core.FromSlice(mine))
			wholes = append(wholes, core.FromSlice(make([]float64, s[0]+s[1]+s[2])))
		}
		if err := r.World.AllGatherParts(wholes, parts, sizes).Wait(); err != nil {
			return err
		}
		for i, want := range [][]float64{{0, 1, 10}, {100, 110, 120}, {220, 221, 222, 223}} {
			if got, err := core.Values[float64](wholes[i]); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("gathered %v, %v, want %v", got, err, want)
			}
		}
		if err := r.World.ReduceScatterParts(parts, wholes, sizes, Sum).Wait(); err != nil {
			return err
		}
		for i, s := range sizes {
			got, err := core.Values[float64](parts[i])
			for k := range got {
				if got[k] != 3*float64(100*i+10*r.Rank+k) {
					return fmt.Errorf("reduced %v, of sizes %v", got, s)
				}
			}
			if err != nil {
				return err
			}
		}
		bytes := r.World.Stats().Bytes
		others := 8 * (10 - sizes[0][r.Rank] - sizes[1][r.Rank] - sizes[2][r.Rank])
		if bytes["all_gather"] != others || bytes["reduce_scatter"] != others {
			return fmt.Errorf("moved %v, want %d each", bytes, others)
		}
		if err := r.World.AllGatherParts(wholes, parts, sizes[:2]).Wait(); err == nil {
			return errors.New("the sizes of two tensors were taken for those of three")
		}
		// Ranks that pass different numbers of tensors all get an error.
		n := 3
		if r.Rank == 1 {
			n = 2
		}
		if err := r.World.AllGatherParts(wholes[:n], parts[:n], sizes[:n]).Wait(); err == nil {
			return errors.New("ranks that disagree were not told")
		}
		return nil
	})
	require.NoError(t, err)
}

// TestPartsWithDifferentTensorCounts passes different numbers of tensors. All ranks must get an error, even if the pieces of some
// ranks match.
func TestPartsWithDifferentTensorCounts(t *testing.T) {
	for fewer := range 2 {
		for name, call := range map[string]func(g *Group, wholes, parts []*core.Tensor, sizes [][]int) *Work{
			"all_gather": func(g *Group, w, p []*core.Tensor, sizes [][]int) *Work { return g.AllGatherParts(w, p, sizes) },
			"reduce_scatter": func(g *Group, w, p []*core.Tensor, sizes [][]int) *Work {
				return g.ReduceScatterParts(p, w, sizes, Sum)
			},
		} {
			err := spawn(2, []string{"cpu:0"}, longTimeout, func(r *Rank) error {
				var parts, wholes []*core.Tensor
				var sizes [][]int
				for range 2 {
					parts, wholes, sizes = append(parts, filled(1, 1)), append(wholes, filled(2, 1)), append(sizes, []int{1, 1})
				}
				n := 2
				if r.Rank == fewer {
					n = 1
				}
				return call(r.World, wholes[:n], parts[:n], sizes[:n]).Wait()
			})
			require.ErrorContains(t, err, "rank 0: "+name)
			require.ErrorContains(t, err, "rank 1: "+name)
			require.ErrorContains(t, err, "the ranks disagree")
		}
	}
}
