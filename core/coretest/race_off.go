//go:build !race

package coretest

// Race reports whether the race detector watches.
const Race = false
