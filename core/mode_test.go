package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModesNestAndStayOnTheirThread(t *testing.T) {
	require.True(t, CurrentMode().GradEnabled())
	NoGrad(func() {
		require.False(t, CurrentMode().GradEnabled())
		EnableGrad(func() { require.True(t, CurrentMode().GradEnabled()) })
		other := make(chan bool)
		go func() { other <- CurrentMode().GradEnabled() }()
		require.True(t, <-other, "no_grad must not leak into another goroutine")
		require.Panics(t, func() { WithMode(func(m Mode) Mode { return m.WithGrad(true) }, func() { panic("x") }) })
		require.False(t, CurrentMode().GradEnabled())
	})
	require.True(t, CurrentMode().GradEnabled())
	m := Mode(0).WithInference(true)
	require.False(t, m.GradEnabled())
	require.True(t, m.Inference())
}

func TestContextsAreInherited(t *testing.T) {
	ctx := NewRankContext(3, nil)
	defer ctx.Free()
	require.NoError(t, ctx.SetDefaultDType(Float64))
	require.Error(t, ctx.SetDefaultDType(Int32))
	WithContext(ctx, func() {
		require.Equal(t, 3, CurrentContext().Rank())
		require.Equal(t, Float64, Num(1).DType())
		WithCategory(Parameter, func() {
			require.Equal(t, 3, CurrentContext().Rank())
			require.Equal(t, Parameter, CurrentContext().category)
		})
		require.Equal(t, Activation, CurrentContext().category)
	})
	require.Equal(t, 0, CurrentContext().Rank())
	WithTask("outer", func() {
		require.Equal(t, "outer", CurrentTask())
		WithTask("inner", func() { require.Equal(t, "inner", CurrentTask()) })
		require.Equal(t, "outer", CurrentTask())
	})
	require.Nil(t, CurrentTask())
}
