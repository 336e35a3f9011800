package fusion

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/gpu/shader"
)

func TestRepeatedFusionsAreCompiled(t *testing.T) {
	var f Cache
	f.Open(false)
	made := 0
	get := func(n, weight int) shader.Program {
		return f.get(binary.LittleEndian.AppendUint32(nil, uint32(n)), weight, func() shader.Program {
			if made++; n == 7 {
				return nil // the device rejects it
			}
			return &made
		})
	}
	require.Nil(t, get(0, wholeWeight))
	require.NotNil(t, get(0, wholeWeight))
	require.Same(t, get(0, wholeWeight), get(0, 0))
	require.Equal(t, 1, made)

	for range compileAt - 1 {
		require.Nil(t, get(1, 1))
	}
	require.NotNil(t, get(1, 1))

	for range compileAt {
		require.Nil(t, get(2, 0))
	}
	require.NotContains(t, f.byKey, string([]byte{2, 0, 0, 0}), "what came up by chance is not kept")

	for range 5 {
		require.Nil(t, get(7, wholeWeight))
	}
	require.Equal(t, 3, made, "refused once")

	for i := range maxFused + 10 {
		get(100+i, wholeWeight)
		get(100+i, wholeWeight)
	}
	require.Equal(t, maxFused, f.compiled)
	for i := range 2 * maxCandidates {
		require.Nil(t, get(10_000+i, wholeWeight))
	}
	require.LessOrEqual(t, len(f.byKey), maxFused+maxCandidates)
	require.NotNil(t, get(0, wholeWeight))
}
