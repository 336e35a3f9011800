package gpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTurnsAreShortDuringCopies(t *testing.T) {
	var u pacing
	require.Equal(t, fullBatch, u.size())
	require.EqualValues(t, maxInFlight, u.maxBatches())
	u.measure(100, time.Now().Add(-100*turnTime), false) // each command takes a turn
	require.Equal(t, fullBatch, u.size(), "nobody copies")

	u.beginTurns()
	require.Equal(t, minTurnCommands, u.size())
	require.EqualValues(t, turnsInFlight, u.maxBatches())
	for range 100 {
		u.measure(fullBatch, time.Now(), false) // takes almost no time
	}
	require.Equal(t, fullBatch, u.size(), "short commands fill a batch")
	u.ended = time.Time{}
	u.measure(minTurnCommands-1, time.Now().Add(-time.Hour), false)
	require.Equal(t, fullBatch, u.size(), "few commands say nothing about others")
	u.ended = time.Time{}
	u.measure(100, time.Now().Add(-time.Hour), true)
	require.Equal(t, fullBatch, u.size(), "copies and what is launched beside them say nothing about commands")
	u.ended = time.Time{}
	u.measure(100, time.Now().Add(-50*turnTime), false)
	require.Less(t, u.size(), fullBatch)

	long := u.size()
	u.shortenTurns()
	require.Less(t, u.size(), long, "somebody waits soon")
	for range shortBatchCount {
		u.countBatch()
	}
	require.Equal(t, long, u.size())

	for range turnBatchCount {
		u.countBatch()
	}
	require.Equal(t, fullBatch, u.size())
	require.EqualValues(t, maxInFlight, u.maxBatches())
}

func TestPacingMeasuresFromThePreviousBatch(t *testing.T) {
	var u pacing
	u.measure(1, time.Now(), false) // ends now
	u.measure(1000, time.Now().Add(-time.Hour), false)
	u.beginTurns()
	require.Equal(t, fullBatch, u.size(), "the hour belongs to the batch before")
}
