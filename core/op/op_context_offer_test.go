package op_test

import (
	"runtime"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func TestOfferedMemoryIsTakenWhereTheResultFits(t *testing.T) {
	x := ramp(2, 3)
	out := op.ZerosLike(x, op.TensorOptions{})
	for _, c := range []struct {
		name  string
		run   func() *core.Tensor
		taken bool
	}{
		{"neg", func() *core.Tensor { return op.Neg(x) }, true},
		{"cumsum", func() *core.Tensor { return op.CumSum(x, 0) }, true},
		{"exp", func() *core.Tensor { return op.Neg(x) }, false},                             // offered to another
		{"neg", func() *core.Tensor { return op.Neg(op.Reshape(x, 3, 2)) }, false},           // the result has another shape
		{"cumsum", func() *core.Tensor { return op.CumSum(op.Mul(out, out), 0) }, false},     // of other inputs
		{"cumsum", func() *core.Tensor { return op.CumSum(out, 0) }, false},                  // which reads what it writes to
		{"neg", func() *core.Tensor { return op.Neg(out) }, true},                            // element by element
		{"neg", func() *core.Tensor { return op.Neg(core.FromSlice([]int64{1, 2})) }, false}, // the result has another dtype
	} {
		version := out.Storage().Version()
		id := op.OfferOut(c.name, out, x, out)
		require.Positive(t, id)
		r := c.run()
		require.NoError(t, r.Err())
		require.Equal(t, c.taken, op.OfferTaken(r), c.name)
		require.False(t, op.OfferTaken(r), c.name) // it has ended, or another took it
		op.EndOffer(id)
		require.Equal(t, c.taken, r.Storage() == out.Storage(), c.name)
		require.Equal(t, c.taken, out.Storage().Version() == version+1, c.name)
	}
}

func TestOffersOfOneThreadNest(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	x := ramp(2, 3)
	a, b := op.ZerosLike(x, op.TensorOptions{}), op.ZerosLike(x, op.TensorOptions{})
	outer := op.OfferOut("neg", a, x)
	inner := op.OfferOut("neg", b, x)
	require.NotEqual(t, outer, inner)
	require.True(t, op.OfferTaken(op.Neg(x)))
	require.Equal(t, []float64{0, -1, -2, -3, -4, -5}, values(t, b))
	require.Equal(t, []float64{0, 0, 0, 0, 0, 0}, values(t, a))
	require.True(t, op.OfferTaken(op.Neg(x)))
	op.EndOffer(inner) // has ended, and its number is not used again
	require.Equal(t, values(t, b), values(t, a))
	op.EndOffer(outer)
	require.NotSame(t, a.Storage(), op.Neg(x).Storage())
}

func TestMemoryIsNotOfferedWhereItCannotBeWrittenTo(t *testing.T) {
	x, leaf := op.Zeros(3), op.Zeros(3)
	leaf.SetRequiresGrad(true)
	require.Zero(t, op.OfferOut("neg", leaf))
	require.Zero(t, op.OfferOut("neg", x, leaf))
	require.Zero(t, op.OfferOut("neg", op.Expand(op.Zeros(1), 3)))
	require.Zero(t, op.OfferOut("neg", core.Num(1)))
	require.Zero(t, op.OfferOut("neg", nil))
	require.False(t, op.OfferTaken(x))
	op.EndOffer(0)
}
