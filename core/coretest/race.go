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

// Stride returns the step of a loop over the places at which one thing can fail: 1, and 5 under the race detector.
func Stride() int {
	if Race {
		return 5
	}
	return 1
}

// Drawn reports whether case i of a loop whose point is numbers runs: each of them, and one in eight under the race detector.
func Drawn(i int) bool { return !Race || i%8 == 0 }

// SkipUnderRace skips a test that shows the race detector nothing, such as one of numbers alone, or of programs that are built without it.
func SkipUnderRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("runs without the race detector")
	}
}
