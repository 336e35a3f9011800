package op_test

import (
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// Memory that one stream still reads goes round to another: the new contents must not be written before the old ones were
// read, also where the stream that the memory belongs to has nothing to do with either.
func TestMemoryWaitsForOtherStreams(t *testing.T) {
	dev, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	ctx := core.NewRankContext(0, dev)
	defer ctx.Free()
	reader, writer := dev.NewStream(0), dev.NewStream(0)
	defer reader.Close()
	defer writer.Close()
	core.WithContext(ctx, func() {
		for _, emptied := range []bool{false, true} {
			const n = 1003
			x := op.Full([]int{n}, core.Num(1.0), op.TensorOptions{})
			require.NoError(t, x.Wait())
			memory := x.Storage().Memory().Ptr
			open := make(chan struct{})
			var seen *core.Tensor
			core.WithStream(reader, func() {
				c := reader.Begin(-1, "gate")
				c.Fn = func() error { <-open; return nil }
				c.Work = math.MaxInt32
				reader.Launch(c)
				seen = op.Clone(x)
			})
			if emptied {
				x.Storage().Empty()
			} else {
				x.Release()
			}
			y := op.Empty(n)
			require.Equal(t, memory, y.Storage().Memory().Ptr, "the memory went elsewhere")
			core.WithStream(writer, func() { require.NoError(t, op.FillInPlace(y, core.Num(2.0)).Err()) })
			close(open)
			for _, c := range []struct {
				t    *core.Tensor
				want float64
			}{{seen, 1}, {y, 2}} {
				v, err := core.Values[float64](c.t)
				require.NoError(t, err)
				require.Equal(t, c.want, v[0])
				require.Equal(t, c.want, v[n-1])
			}
		}
	})
}
