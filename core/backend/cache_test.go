package backend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

const waitLong, waitShort = 20 * time.Second, time.Millisecond

func TestTheCacheGivesThePieceThatCameLast(t *testing.T) {
	m := newMachine()
	var c Cache
	c.Open(m)
	other := newMachine().NewStream(0).(*counter)
	launch(other, nothing)
	for i := range 3 {
		c.Put(core.Memory{Size: 128, Handle: uint64(i)}, uint64(i), nil)
	}
	c.Put(core.Memory{Size: 4096, Handle: 3}, 0, []core.Event{other.Record()})

	_, _, ok := c.Take(64)
	require.False(t, ok)
	got, _, ok := c.Take(128)
	require.True(t, ok)
	require.EqualValues(t, 2, got.Handle)

	c.Empty(0)
	require.Equal(t, []core.Memory{{Size: 128}}, m.freed(), "the rest may be in use, by this stream or another")
	_, after, ok := c.Take(4096)
	require.True(t, ok)
	require.Len(t, after, 1)

	c.Close()
	require.Len(t, m.freed(), 2)
	c.Put(core.Memory{Size: 64, Handle: 9}, 0, after)
	require.Len(t, m.freed(), 2, "it goes back only when nothing uses it, and nobody waits for that")
	other.let(1)
	require.Eventually(t, func() bool { return len(m.freed()) == 3 }, waitLong, waitShort)
	require.True(t, after[0].Done())
	require.NoError(t, other.Close())
}
