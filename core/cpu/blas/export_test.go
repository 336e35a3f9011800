package blas

// Candidates lists what the search tries, for tests that need a library to be there.
func Candidates() []string { return candidates("") }
