package pipeline

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

// A foundLate is an error that a stream has before the action that it belongs to is known.
type foundLate struct{ error }

func (foundLate) FoundLate() {}

// A toldEvent is the end of an action: whoever waits for it learns what the action found.
type toldEvent struct {
	core.Event
	tell func()
}

func (e toldEvent) Wait() { e.tell() }

// The host may meet an error of execution in a later action, before the stream says which action it belongs to.
func TestErrorFoundLateNamesItsOwnAction(t *testing.T) {
	dev, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	forward, backward := Action{Stage: 0, Kind: Forward, Micro: 2}, Action{Stage: 0, Kind: Backward, Micro: 1}
	for name, c := range map[string]struct {
		met  error
		want string
	}{
		"found late":  {fmt.Errorf("backward: %w", foundLate{errors.New("an index out of range")}), "forward of micro-batch 2: an index out of range"},
		"by the host": {errors.New("a wrong shape"), "backward of micro-batch 1: a wrong shape"},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := NewExecutor([]core.Device{dev}, []int{0})
			require.NoError(t, err)
			r := newRecorder(x, []Action{forward, backward})
			r.done[0] = toldEvent{tell: func() { _ = r.attribute(forward, dev, errors.New("an index out of range")) }}
			s := &Step{x: x, recorder: r}
			require.ErrorContains(t, s.fail(backward, c.met), c.want)
		})
	}
}
