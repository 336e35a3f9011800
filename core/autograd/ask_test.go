package autograd_test

import (
	"errors"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// Requests of hooks and callbacks are sent in order, before the pass goes on, and each answer reaches its request.
func TestAsk(t *testing.T) {
	x, z := op.Ones(2).SetRequiresGrad(true), op.Ones(2).SetRequiresGrad(true)
	var log []string
	ask := func(id uint64, what string) error {
		return autograd.Ask(&autograd.Request{ID: id, Payload: what}, func(answer []*core.Tensor) error {
			log = append(log, what+" answered")
			require.Len(t, answer, 1)
			return answer[0].Err()
		})
	}
	remove := x.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
		require.True(t, autograd.CurrentRun().Reaches(x))
		require.False(t, autograd.CurrentRun().Reaches(z))
		require.NoError(t, ask(1, "hook"))
		require.NoError(t, ask(2, "hook again"))
		require.NoError(t, autograd.QueueCallback(func() error { return ask(3, "callback") }))
		return nil
	}})
	run, err := autograd.NewRun([]*core.Tensor{op.Sum(op.Mul(x, x), nil, false)}, nil, autograd.Options{})
	require.NoError(t, err)
	defer run.Close()
	for id, what := range []string{"hook", "hook again", "callback"} {
		q, err := run.Step()
		require.NoError(t, err)
		require.Equal(t, autograd.WantAsked, q.What)
		require.Equal(t, uint64(id+1), q.ID)
		require.Equal(t, what, q.Payload)
		log = append(log, what)
		require.NoError(t, run.Resume([]*core.Tensor{core.Scalar(1.0)}))
	}
	q, err := run.Step()
	require.NoError(t, err)
	require.Nil(t, q)
	require.Equal(t, []string{"hook", "hook answered", "hook again", "hook again answered", "callback", "callback answered"}, log)

	remove()
	x.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor { return core.ErrorTensor(errors.New("no luck")) }})
	require.ErrorContains(t, autograd.Backward(op.Sum(x, nil, false)), "no luck")
	require.Nil(t, autograd.CurrentRun())
	require.ErrorContains(t, autograd.Ask(&autograd.Request{}, nil), "no backward pass")
}
