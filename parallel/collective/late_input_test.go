package collective

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

// TestInputsAfterTheLastNeededOne has an input that no step of this process reads come when the job computes already, without the lock.
func TestInputsAfterTheLastNeededOne(t *testing.T) {
	late := &rankCall{rank: 1, op: &Operation{Ins: []Piece{{N: 1, dtype: core.Float32}}}, elsewhere: true}
	j := &wireJob{small: true, complete: true, calls: []*rankCall{{}, late}}
	var w writer
	w.error(nil)
	w.bytes(make([]byte, 4))
	r := &reader{rest: w}
	j.receiveSmall(1, r)
	require.NoError(t, r.err)
	require.Nil(t, late.data)

	r = &reader{rest: w[:len(w)-1]}
	j.receiveSmall(1, r)
	require.Error(t, r.err, "a damaged message is still found")
}
