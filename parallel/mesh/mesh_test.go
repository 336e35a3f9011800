package mesh

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// ranks runs fn on n ranks that share a device.
func ranks(t *testing.T, n int, fn func(r *collective.Rank) error) {
	t.Helper()
	require.NoError(t, collective.Spawn(n, []string{"cpu:0"}, collective.Options{Timeout: 2 * time.Minute}, fn))
}

// sum returns the sum of the world ranks of a group's members, by an all-reduce.
func sum(g *collective.Group, rank int) (float64, error) {
	x := core.FromSlice([]float64{float64(rank)})
	defer x.Release()
	if err := g.AllReduce(x, collective.Sum).Wait(); err != nil {
		return 0, err
	}
	return x.Item()
}

func TestMeshGroupsAlongAxes(t *testing.T) {
	ranks(t, 6, func(r *collective.Rank) error {
		m, err := New(r.World, []int{2, 3}, Options{Names: []string{"dp", "tp"}})
		if err != nil {
			return err
		}
		assert.Equal(t, []int{2, 3}, m.Shape())
		assert.Equal(t, []int{3, 1}, m.Strides())
		assert.Equal(t, 6, m.Size())
		assert.Equal(t, []string{"dp", "tp"}, m.Names())
		assert.Equal(t, "(dp=2, tp=3)", m.String())
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5}, m.Ranks())
		row, column := r.Rank/3, r.Rank%3
		assert.Equal(t, []int{row, column}, m.Coordinate())
		assert.Equal(t, []int{column, column + 3}, m.Group(0).Ranks())
		assert.Equal(t, []int{3 * row, 3*row + 1, 3*row + 2}, m.Group(1).Ranks())
		assert.Equal(t, row, m.Group(0).Rank())
		assert.Equal(t, column, m.Group(1).Rank())

		got, err := sum(m.Group(0), r.Rank)
		assert.InDelta(t, 2*column+3, got, 0)
		if err != nil {
			return err
		}
		got, err = sum(m.Group(1), r.Rank)
		assert.InDelta(t, 9*row+3, got, 0)
		return err
	})
}

func TestMeshParts(t *testing.T) {
	ranks(t, 8, func(r *collective.Rank) error {
		m, err := New(r.World, []int{2, 2, 2}, Options{Names: []string{"pp", "dp", "tp"}})
		if err != nil {
			return err
		}
		pp, dp, tp := r.Rank/4, r.Rank/2%2, r.Rank%2
		part, err := m.Sub("pp", "tp")
		if err != nil {
			return err
		}
		base := 2 * dp
		assert.Equal(t, []int{base, base + 1, base + 4, base + 5}, part.Ranks())
		assert.Equal(t, []int{pp, tp}, part.Coordinate())
		assert.Same(t, m.Group(0), part.Group(0))
		assert.Same(t, m.Group(2), part.Group(1))
		one, err := part.Sub("tp")
		if err != nil {
			return err
		}
		assert.Equal(t, []int{r.Rank - tp, r.Rank - tp + 1}, one.Ranks())
		all, err := m.Sub("pp", "dp", "tp")
		assert.Same(t, m, all)
		if err != nil {
			return err
		}

		near, err := m.Sub("dp", "tp") // adjacent axes
		if err != nil {
			return err
		}
		assert.Equal(t, []int{4 * pp, 4*pp + 1, 4*pp + 2, 4*pp + 3}, near.Ranks())

		flat, err := part.Flatten("")
		if err != nil {
			return err
		}
		assert.Equal(t, []int{1}, flat.Strides())
		_, err = near.Flatten("pp_tp")
		assert.ErrorContains(t, err, `"pp_tp" stands for other axes`)
		assert.Equal(t, "(pp_tp=4)", flat.String())
		assert.Equal(t, part.Ranks(), flat.Ranks())
		assert.Equal(t, []int{2*pp + tp}, flat.Coordinate())
		assert.Equal(t, 2*pp+tp, flat.Group(0).Rank())
		got, err := sum(flat.Group(0), r.Rank)
		assert.InDelta(t, 4*base+10, got, 0)
		if err != nil {
			return err
		}
		again, err := part.Flatten("pp_tp")
		assert.Same(t, flat, again)
		if err != nil {
			return err
		}
		named, err := m.Sub("pp_tp")
		if err != nil {
			return err
		}
		assert.Same(t, flat.Group(0), named.Group(0))
		_, err = m.Sub("pp_tp", "tp")
		require.ErrorContains(t, err, "overlap")
		_, err = part.Flatten("dp")
		require.ErrorContains(t, err, "is an axis of (pp=2, dp=2, tp=2) already")

		world, err := m.Flatten("world")
		if err != nil {
			return err
		}
		assert.Same(t, r.World, world.Group(0), "an axis of all ranks in order needs no group of its own")
		return nil
	})
}

func TestMeshOfSomeRanks(t *testing.T) {
	ranks(t, 5, func(r *collective.Rank) error {
		m, err := New(r.World, []int{2, 2}, Options{Names: []string{"a", "b"}, Ranks: []int{4, 2, 3, 0}})
		if err != nil {
			return err
		}
		if _, err := m.Flatten("ab"); err != nil {
			return err
		}
		part, err := m.Sub("b")
		if err != nil {
			return err
		}
		assert.Equal(t, []int{4, 2, 3, 0}, m.Ranks())
		if r.Rank == 1 {
			assert.Nil(t, m.Coordinate())
			assert.Nil(t, m.Group(0))
			assert.Empty(t, m.Groups())
			assert.Empty(t, part.Ranks())
			return nil
		}
		assert.Len(t, m.Groups(), 2)
		if r.Rank == 2 {
			assert.Equal(t, []int{0, 1}, m.Coordinate())
			assert.Equal(t, []int{4, 2}, part.Ranks())
			assert.Equal(t, []int{4, 2}, m.Group(1).Ranks())
		}
		return nil
	})
	ranks(t, 2, func(r *collective.Rank) error {
		for _, sorted := range []bool{false, true} {
			m, err := New(r.World, []int{2}, Options{Ranks: []int{1, 0}, Sorted: sorted})
			if err != nil {
				return err
			}
			assert.Equal(t, []int{1 - r.Rank}, m.Coordinate())
			if sorted {
				assert.Same(t, r.World, m.Group(0))
			} else {
				assert.Equal(t, 1-r.Rank, m.Group(0).Rank())
			}
		}
		return nil
	})
}

func TestMeshOfGivenGroups(t *testing.T) {
	ranks(t, 4, func(r *collective.Rank) error {
		made, err := New(r.World, []int{2, 2}, Options{})
		if err != nil {
			return err
		}
		m, err := New(r.World, []int{2, 2}, Options{Names: []string{"replicate", "shard"}, Groups: made.Groups()})
		if err != nil {
			return err
		}
		assert.Same(t, made.Group(0), m.Group(0))
		part, err := m.Sub("shard")
		if err != nil {
			return err
		}
		assert.Same(t, made.Group(1), part.Group(0))
		return nil
	})
}

func TestMeshRefuses(t *testing.T) {
	ranks(t, 4, func(r *collective.Rank) error {
		for _, bad := range []struct {
			shape []int
			o     Options
			want  string
		}{
			{nil, Options{}, "a shape without axes"},
			{[]int{2, 0}, Options{}, "want axes of at least one rank"},
			{[]int{3, 2}, Options{}, "takes 6 ranks, there are 4"},
			{[]int{2, 2}, Options{Names: []string{"dp"}}, `1 names ["dp"] for the 2 axes`},
			{[]int{2, 2}, Options{Names: []string{"dp", "dp"}}, "want different ones"},
			{[]int{2}, Options{Ranks: []int{0, 4}}, "want different ones from 0 to 3"},
			{[]int{2}, Options{Ranks: []int{1, 1}}, "want different ones from 0 to 3"},
			{[]int{2}, Options{Ranks: []int{1, 2, 3}}, "got 3 ranks for the shape [2] of 2"},
			{[]int{2, 2}, Options{Groups: []*collective.Group{r.World}}, "got 1 groups for the 2 axes"},
		} {
			_, err := New(r.World, bad.shape, bad.o)
			require.ErrorContains(t, err, bad.want)
		}
		m, err := New(r.World, []int{2, 2}, Options{})
		if err != nil {
			return err
		}
		_, err = m.Sub("dp")
		require.ErrorContains(t, err, "have no names to slice by")
		_, err = m.Flatten("")
		require.ErrorContains(t, err, "have no names")
		m, err = New(r.World, []int{2, 2}, Options{Names: []string{"dp", "tp"}})
		if err != nil {
			return err
		}
		_, err = m.Sub("pp")
		require.ErrorContains(t, err, `no axis "pp" in (dp=2, tp=2)`)
		_, err = m.Sub("tp", "dp")
		require.ErrorContains(t, err, "not in the order of the mesh")
		_, err = m.Axis("x")
		require.ErrorContains(t, err, `no axis "x"`)
		i, err := m.Axis("tp")
		assert.Equal(t, 1, i)
		return err
	})
}

func TestMeshRanksDisagree(t *testing.T) {
	ranks(t, 2, func(r *collective.Rank) error {
		shape := []int{2, 1}
		if r.Rank == 1 {
			shape = []int{1, 2}
		}
		_, err := New(r.World, shape, Options{})
		require.ErrorContains(t, err, fmt.Sprintf("rank %d wants", 1-r.Rank))
		require.ErrorContains(t, err, "(1, 2) of the ranks [0 1]")
		return nil
	})
}

// TestJoin joins slices in another order than the mesh has, with its groups, and refuses those that share an axis or a mesh.
func TestJoin(t *testing.T) {
	ranks(t, 12, func(r *collective.Rank) error {
		m, err := New(r.World, []int{2, 3, 2}, Options{Names: []string{"pp", "dp", "tp"}})
		if err != nil {
			return err
		}
		slice := func(names ...string) *Mesh {
			s, err := m.Sub(names...)
			assert.NoError(t, err)
			return s
		}
		dp, tp := slice("dp"), slice("tp")
		joined, err := Join(tp, dp)
		if err != nil {
			return err
		}
		assert.Equal(t, []string{"tp", "dp"}, joined.Names())
		assert.Equal(t, []int{2, 3}, joined.Shape())
		assert.Equal(t, []int{tp.Coordinate()[0], dp.Coordinate()[0]}, joined.Coordinate())
		assert.Equal(t, []*collective.Group{tp.Group(0), dp.Group(0)}, joined.Groups())
		base := r.Rank / 6 * 6
		assert.Equal(t, []int{base, base + 2, base + 4, base + 1, base + 3, base + 5}, joined.Ranks())
		flat, err := slice("dp", "tp").Flatten("")
		if err != nil {
			return err
		}
		for _, pair := range [][2]*Mesh{{dp, dp}, {slice("pp", "dp"), dp}, {tp, slice("dp", "tp")}, {flat, dp}, {tp, flat}} {
			_, err := Join(pair[0], pair[1])
			assert.ErrorContains(t, err, "have ranks along the same axis of (pp=2, dp=3, tp=2)")
		}
		if _, err := Join(slice("pp"), flat); err != nil {
			return err
		}
		other, err := New(r.World, []int{6, 2}, Options{Names: []string{"dp", "tp"}})
		if err != nil {
			return err
		}
		_, err = Join(tp, other)
		assert.ErrorContains(t, err, "(tp=2) and (dp=6, tp=2) are no slices of one mesh")
		return nil
	})
}
