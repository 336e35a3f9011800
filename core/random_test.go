package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGeneratorsHandOutPositions(t *testing.T) {
	g := NewGenerator(5)
	seed, at := g.Next(10)
	require.EqualValues(t, 5, seed)
	require.EqualValues(t, 0, at)
	_, at = g.Next(1)
	require.EqualValues(t, 10, at)
	a, b := g.Fork(0), g.Fork(1)
	sa, _ := a.State()
	sb, _ := b.State()
	require.NotEqual(t, sa, sb)
	again, _ := g.Fork(0).State()
	require.Equal(t, sa, again)
	g.Next(1)
	moved, _ := g.Fork(0).State()
	require.NotEqual(t, sa, moved)
}

// kindDevice is a fake device with a kind and an ordinal only.
type kindDevice struct {
	Device
	kind    string
	ordinal int
}

func (d kindDevice) Kind() string { return d.kind }
func (d kindDevice) Ordinal() int { return d.ordinal }

func TestSeedsOfKindsOfDevices(t *testing.T) {
	c := NewRankContext(0, nil)
	defer c.Free()
	seeds := func() []uint64 {
		var out []uint64
		for _, d := range []kindDevice{{kind: "a", ordinal: 100}, {kind: "b", ordinal: 101}} {
			seed, _ := c.Generator(d).State()
			out = append(out, seed)
		}
		return out
	}
	WithContext(c, func() {
		ManualSeedKind("b", 7)
		require.Equal(t, []uint64{DefaultSeed, 7}, seeds(), "a device that is not open yet has its kind's seed")
		ManualSeed(3)
		require.Equal(t, []uint64{3, 3}, seeds())
		require.Empty(t, c.random.kinds, "all kinds have the rank's seed again")
	})
}
