package coretest

import "testing"

// Rounds returns how often a loop runs whose point is numbers: n times, and once under the race detector, which makes it several
// times slower and learns nothing from the second round. `make test` runs every test without the detector too.
func Rounds(n int) int {
	if Race {
		return min(n, 1)
	}
	return n
}

// SkipUnderRace skips a test that shows the race detector nothing, such as one of programs that are built without it.
func SkipUnderRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("runs without the race detector")
	}
}
