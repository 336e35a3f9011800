package core

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A failure that is reported late marks the same storages as one reported before later calls ran.
func TestALateFailureReachesWhatWasMadeOfIt(t *testing.T) {
	boom, later := errors.New("boom"), errors.New("later")
	life := func() Operand {
		return Operand{DType: Float32, Shape: []int{2}, Strides: []int{1}, storage: &Storage{alloc: &allocation{size: 8}}}
	}
	call := func(out Operand, ins ...Operand) *Call { return &Call{Outs: []Operand{out}, Ins: ins} }
	inPlace := func(c *Call) *Call { c.InPlace = true; return c }
	overwrites := func(c *Call) *Call { c.Overwrites = true; return inPlace(c) }
	part := func(o Operand) Operand { o.Shape = []int{1}; return o }

	var trace Trace
	trace.Add(call(life(), life())) // nothing is watched
	require.Empty(t, trace.uses)
	x, before, y, z, target, filled, partly, sound, again := life(), life(), life(), life(), life(), life(), life(), life(), life()
	outer := trace.Watch()
	trace.Add(call(before, y))
	faulty := inPlace(call(y, x))
	trace.Add(faulty)
	place := trace.Watch()
	suspect := trace.Suspect(faulty)
	for _, c := range []*Call{
		call(z, y, x), inPlace(call(target, z)), inPlace(call(filled, z)), overwrites(call(filled)), inPlace(call(partly, z)),
		overwrites(call(part(partly))), call(sound, x, filled), call(again, target),
	} {
		trace.Add(c)
	}
	again.storage.epoch++ // recycled by now, and failed again
	again.storage.fail(again.storage.epoch, later, false)
	trace.Fail(suspect, boom)
	for name, o := range map[string]*Operand{"y": &y, "z": &z, "target": &target, "partly": &partly} {
		require.ErrorIs(t, o.failed(), boom, name)
	}
	for name, o := range map[string]*Operand{"x": &x, "before": &before, "filled": &filled, "sound": &sound} {
		require.NoError(t, o.failed(), name)
	}
	require.ErrorIs(t, again.storage.Err(), later)
	require.True(t, target.storage.failure.Load().skipped, "nobody takes it for sound again")

	trace.Unwatch(outer)
	require.Equal(t, place, trace.dropped)
	trace.Unwatch(place)
	require.Empty(t, trace.uses)
}
