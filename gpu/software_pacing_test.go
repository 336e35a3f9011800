package gpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSoftwarePacingCost(t *testing.T) {
	var l softwarePacing
	require.Equal(t, initialCost*time.Second, l.time(1e9))
	l.measure(1e6, minMeasuredTime-1)
	require.Equal(t, initialCost*time.Second, l.time(1e9), "too little to learn from")
	for range 20 {
		l.measure(1e9, 20*time.Second)
	}
	require.InEpsilon(t, 20*time.Second, l.time(1e9), 0.01)
	l.measure(1e9, 60*time.Second)
	require.InEpsilon(t, 40*time.Second, l.time(1e9), 0.01, "half of a rise")
	l.measure(1e9, 8*time.Second)
	require.InEpsilon(t, 36*time.Second, l.time(1e9), 0.01, "an eighth of a fall")
	for range 50 {
		l.measure(1e9, 4*time.Second-time.Microsecond) // the driver thread notices two batches at the same time
		l.measure(1e9, time.Microsecond)
	}
	require.Greater(t, l.time(1e9), 2*time.Second)
	for range 100 {
		l.measure(1, time.Hour)
	}
	require.InEpsilon(t, maxCost*time.Second, l.time(1e9), 0.01)
	for range 100 {
		l.measure(1e12, time.Second)
	}
	require.InEpsilon(t, minCost*float64(time.Second), l.time(1e9), 0.01)
}
