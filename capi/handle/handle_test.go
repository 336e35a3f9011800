package handle

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	var table Table[string]
	a, b := "a", "b"
	ha, hb := table.Add(&a), table.Add(&b)
	require.NotEqual(t, ha, hb)
	require.Positive(t, ha)
	require.Positive(t, hb)
	require.Same(t, &a, table.Get(ha))
	require.Same(t, &b, table.Get(hb))
	require.EqualValues(t, 2, table.Len())

	require.Same(t, &a, table.Take(ha))
	require.Nil(t, table.Get(ha))
	require.Nil(t, table.Take(ha), "taken twice")
	require.EqualValues(t, 1, table.Len())

	c := "c"
	hc := table.Add(&c)
	require.Equal(t, ha&indexMask, hc&indexMask, "the slot is used again")
	require.NotEqual(t, ha, hc)
	require.Nil(t, table.Get(ha), "a handle from before finds the slot's new value")
	require.Nil(t, table.Take(ha))
	require.Same(t, &c, table.Get(hc))
}

func TestTableKnowsWhatIsNoHandle(t *testing.T) {
	v := "v"
	table := Table[string]{kind: kindObject}
	h := table.Add(&v)
	for _, wrong := range []int64{0, -1, -h, 1, h + 1, h + 1<<indexBits, h &^ (1 << kindShift), h | 1<<(kindShift+1), indexMask,
		1<<kindShift | indexMask, -1 << 63, 1<<63 - 1} {
		require.Nil(t, table.Get(wrong), "%#x", wrong)
		require.Nil(t, table.Take(wrong), "%#x", wrong)
	}
	require.Same(t, &v, table.Get(h))
}

func TestTableGrows(t *testing.T) {
	var table Table[int]
	values := make([]int, 2*chunkSize+1)
	handles := make([]int64, len(values))
	for i := range values {
		values[i] = i
		handles[i] = table.Add(&values[i])
	}
	for i, h := range handles {
		require.Same(t, &values[i], table.Get(h))
		require.Same(t, &values[i], table.Take(h))
	}
	require.Zero(t, table.Len())
}

// A generation that has reached its end starts again, and is never 0 nor marked as dead.
func TestTableGenerationsStartAgain(t *testing.T) {
	var table Table[int]
	v := 0
	h := table.Add(&v)
	table.slot(h).generation.Store(genMask)
	last := genMask<<indexBits | h&indexMask
	require.Same(t, &v, table.Take(last))
	again := table.Add(&v)
	require.Positive(t, again)
	require.Same(t, &v, table.Get(again))
	require.Nil(t, table.Get(last))
}

// Goroutines that add, get and take at once never see a value by the handle of another, and one of those that take the
// same handle gets its value.
func TestTableFromManyGoroutines(t *testing.T) {
	type value struct{ handle atomic.Int64 }
	var table Table[value]
	const workers, rounds = 8, 2000
	published := make([]atomic.Int64, workers)
	var taken, wrong atomic.Int64
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for range rounds {
				v := new(value)
				h := table.Add(v)
				v.handle.Store(h)
				published[w].Store(h)
				other := published[(w+1)%workers].Load()
				if got := table.Get(other); got != nil && got.handle.Load() != other {
					wrong.Add(1)
				}
				var both sync.WaitGroup
				both.Go(func() {
					if table.Take(h) == v {
						taken.Add(1)
					}
				})
				if table.Take(h) == v {
					taken.Add(1)
				}
				both.Wait()
				if table.Get(h) != nil {
					wrong.Add(1)
				}
			}
		})
	}
	group.Wait()
	require.Zero(t, wrong.Load())
	require.EqualValues(t, workers*rounds, taken.Load())
	require.Zero(t, table.Len())
}

func TestObjectsAndErrors(t *testing.T) {
	objects, errs := Objects.Len(), Errors()
	h := AddObject("text")
	s, ok := Object[string](h)
	require.True(t, ok)
	require.Equal(t, "text", s)
	_, ok = Object[int](h)
	require.False(t, ok, "an object of another type")
	require.Nil(t, Tensors.Get(h), "an object in the place of a tensor")
	require.NotNil(t, Objects.Take(h))
	_, ok = Object[string](h)
	require.False(t, ok)

	reason := core.Errorf(core.ValueError, "test", "reason")
	e := AddError(reason)
	require.Less(t, e, int64(-1), "-1 is the status busy")
	require.Same(t, reason, Error(e))
	TakeError(e)
	require.NoError(t, Error(e))
	require.NoError(t, Error(h))
	TakeError(e)
	require.Equal(t, objects, Objects.Len())
	require.Equal(t, errs, Errors())
}

func TestMemory(t *testing.T) {
	values := []int64{3, 1, 2}
	var pin runtime.Pinner
	pin.Pin(&values[0])
	defer pin.Unpin()
	a := addressOf(values)
	require.Equal(t, []int{3, 1, 2}, Ints(a, 3))
	require.Equal(t, values[:2], Slice[int64](a, 2))
	require.Nil(t, Slice[int64](0, 2))
	require.Nil(t, Slice[int64](a, -1))
	require.Equal(t, []int{}, Ints(a, -1))
}
