package sharing

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/op"
)

func values(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

func move(t *testing.T, x *core.Tensor) File {
	t.Helper()
	f, err := Move(x)
	require.NoError(t, err)
	return *f
}

// opened returns a tensor over the memory of f.
func opened(t *testing.T, like *core.Tensor, f File) *core.Tensor {
	t.Helper()
	st, err := Open(like.Storage().Stream(), f)
	require.NoError(t, err)
	defer st.Release()
	return core.WrapTensor(core.CurrentMode(), st, like.DType(), []int{st.Size() / like.DType().Size()}, []int{1}, 0)
}

// elsewhere is opened with a mapping of its own, as in another process.
func elsewhere(t *testing.T, like *core.Tensor, f File) *core.Tensor {
	f.Key = newKey()
	return opened(t, like, f)
}

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system does not list the descriptors of a process")
	}
	return len(list)
}

func TestViewsMoveWithTheirStorage(t *testing.T) {
	x := op.Ones(2, 3)
	part := op.Narrow(x, 1, 1, 2)
	twice := op.Add(x, x) // launched before
	f := move(t, part)
	assert.Equal(t, f, *Of(x))
	assert.Equal(t, 24, f.Size)
	assert.Nil(t, Of(twice))
	there := elsewhere(t, x, f)
	require.NoError(t, op.AddInPlace(part, core.Num(1)).Err())
	assert.Equal(t, []float64{1, 2, 2, 1, 2, 2}, values(t, there), "calls are done when they are launched")
	op.MulInPlace(there, core.Num(3))
	assert.Equal(t, []float64{3, 6, 6, 3, 6, 6}, values(t, x))
	assert.Equal(t, []float64{2, 2, 2, 2, 2, 2}, values(t, twice))
	assert.Equal(t, f, move(t, x), "it moves once")
}

func TestWhatIsQueuedIsMoved(t *testing.T) {
	x := op.Ones(300, 300)
	for range 20 {
		x = op.Mul(op.MatMul(x, x), core.Num(1.0/300))
	}
	f, err := Start(x)
	require.NoError(t, err)
	require.NoError(t, x.Storage().Wait())
	got := values(t, elsewhere(t, x, *f))
	assert.Equal(t, values(t, x), got)
	assert.InDelta(t, 1, got[0], 1e-4)
}

// A process has one storage per memory, however often it gets it.
func TestMemoryIsFoundAgain(t *testing.T) {
	x := op.Ones(4)
	f := move(t, x)
	assert.Same(t, x.Storage(), opened(t, x, f).Storage())
	far := elsewhere(t, x, f)
	own := *Of(far)
	assert.NotSame(t, x.Storage(), far.Storage())
	assert.Same(t, far.Storage(), opened(t, x, own).Storage())
}

func TestMemoryAndDescriptorsGoBack(t *testing.T) {
	dev, err := core.CurrentContext().DefaultDevice()
	require.NoError(t, err)
	bytes := coretest.Settle(t, dev)
	before := descriptors(t)
	core.Tidy(func() {
		for range 50 {
			x := op.Ones(1000)
			f := move(t, x)
			there := elsewhere(t, x, f)
			x.Release()
			assert.Equal(t, 1.0, values(t, there)[999], "one of them keeps the memory")
			op.Ones(3).Release()
		}
	})
	assert.Equal(t, bytes, coretest.Settle(t, dev))
	assert.Eventually(t, func() bool { return descriptors(t) == before }, 10*time.Second, time.Millisecond)
	assert.Eventually(t, func() bool {
		files.Lock()
		defer files.Unlock()
		for _, s := range files.storages {
			if s.Value() == nil {
				return false
			}
		}
		return true
	}, 10*time.Second, time.Millisecond)
}

// What code outside the engine has the address of stays where it is.
func TestLentMemoryStays(t *testing.T) {
	x := op.Ones(5)
	st := x.Storage()
	st.Retain()
	st.Lend(1)
	require.NoError(t, st.Wait())
	old := st.Memory()
	move(t, x)
	op.AddInPlace(x, core.Num(1))
	for range 100 { // which would get the memory
		op.FullLike(x, core.Num(7), op.TensorOptions{}).Release()
	}
	assert.Equal(t, float32(1), *(*float32)(old.Ptr))
	assert.NotEqual(t, old.Ptr, st.Memory().Ptr)
	st.Lend(-1)
	st.Release()
	assert.Equal(t, []float64{2, 2, 2, 2, 2}, values(t, x))
}

func TestSeveralThreadsOpenAndRelease(t *testing.T) {
	x := op.Ones(100)
	f := move(t, x)
	far := f
	far.Key = newKey()
	stream := x.Storage().Stream()
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range coretest.Rounds(300) {
				st, err := Open(stream, far)
				if !assert.NoError(t, err) {
					return
				}
				runtime.Gosched()
				st.Release()
			}
		})
	}
	wait.Wait()
	op.AddInPlace(x, core.Num(1))
	assert.Equal(t, 2.0, values(t, elsewhere(t, x, f))[99])
}

func TestNewMemory(t *testing.T) {
	stream := op.Ones(1).Storage().Stream()
	st, err := New(stream, 3)
	require.NoError(t, err)
	x := core.WrapTensor(core.CurrentMode(), st, core.Uint8, []int{3}, []int{1}, 0)
	st.Release()
	there := elsewhere(t, x, *Of(x))
	require.NoError(t, op.FillInPlace(x, core.Num(2)).Err())
	assert.Equal(t, []float64{2, 2, 2}, values(t, there))
	for _, size := range []int{0, -1} {
		_, err := New(stream, size)
		assert.ErrorContains(t, err, "want a size above 0")
	}
}

func TestWhatCannotBeShared(t *testing.T) {
	empty, err := Move(op.Ones(0, 3))
	assert.NoError(t, err)
	assert.Nil(t, empty)
	for _, x := range []*core.Tensor{nil, core.Num(1)} {
		_, err := Move(x)
		assert.Error(t, err)
		assert.Nil(t, Of(core.Num(1)))
	}
	x := op.Ones(3)
	f := move(t, x)
	for name, wrong := range map[string]File{
		"want a file of 4000 bytes of shared memory, got one of 12": {f.FD, 4000, newKey()},
		"want a file of -1 bytes":                                   {f.FD, -1, newKey()},
		"bad file descriptor":                                       {-1, 12, newKey()},
	} {
		_, err := Open(x.Storage().Stream(), wrong)
		assert.ErrorContains(t, err, name)
	}
	bad := op.Ones(3)
	bad.Storage().Stream().Synchronize()
	failure := errors.New("broken")
	c := bad.Storage().Stream().Begin(-1, "test")
	c.InPlace = true
	c.Fn = func() error { return failure }
	require.NoError(t, core.Launch(bad.Storage().Stream(), c.Out(bad)))
	_, err = Move(bad)
	assert.ErrorIs(t, err, failure)
	assert.Nil(t, Of(bad))
}
