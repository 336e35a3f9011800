package coretest

// Rounds returns how often a loop runs whose point is numbers: n times, and once under the race detector, which makes it several
// times slower and learns nothing from the second round. `make test` runs every test without the detector too.
func Rounds(n int) int {
	if Race {
		return min(n, 1)
	}
	return n
}
