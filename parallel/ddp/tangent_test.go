package ddp_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/ddp"
)

// TestCollectivesRefuseTangents has a differentiable collective get a tensor of forward mode before any rank is asked for.
func TestCollectivesRefuseTangents(t *testing.T) {
	runtime.LockOSThread() // levels are their thread's
	defer runtime.UnlockOSThread()
	l, err := core.EnterForward()
	require.NoError(t, err)
	x := op.Dual(op.Ones(2), op.Ones(2), l)
	require.ErrorContains(t, ddp.AllReduce(nil, x, 0).Err(), "all_reduce: has no forward-mode derivative")
	require.NoError(t, l.Exit())
}
