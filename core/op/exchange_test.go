package op_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// An exchange waits for whoever uses one of the two tensors.
func TestExchangeWaitsForUse(t *testing.T) {
	for i := range 2 {
		pair := []*core.Tensor{op.Ones(2), op.Zeros(3)}
		require.True(t, pair[i].Use())
		done := make(chan error, 1)
		go func() { done <- pair[0].Exchange(pair[1]) }()
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
		require.Equal(t, []int{2}, pair[0].Shape())
		pair[i].Unuse()
		require.NoError(t, <-done)
		require.Equal(t, []int{3}, pair[0].Shape())
	}
}

// What adds to one leaf's gradient may wait for another rank, which adds to those of its own leaves.
func TestLeavesAreAddedToApartFromEachOther(t *testing.T) {
	leaves := make([]*core.Tensor, 200)
	for i := range leaves {
		leaves[i] = op.Ones(1).SetRequiresGrad(true)
	}
	var within func(i int) error
	within = func(i int) error {
		if i == len(leaves) {
			return nil
		}
		return leaves[i].AutogradMeta().Accumulating(func() error { return within(i + 1) })
	}
	done := make(chan error, 1)
	go func() { done <- within(0) }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("a leaf waits for another")
	}
}
