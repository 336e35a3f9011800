package ddp

import "fmt"

// A SyncKind is a way in which ranks wait for each other.
type SyncKind uint8

// The ways in which ranks wait for each other.
const (
	// Synchronous averages all ranks' gradients in every step.
	Synchronous SyncKind = iota
	// BoundedStaleness lets a rank be ahead of the slowest by a number of steps (Ho et al. 2013, "More Effective Distributed
	// ML via a Stale Synchronous Parallel Parameter Server").
	BoundedStaleness
	// Asynchronous lets it be ahead by any number.
	Asynchronous
)

var syncKinds = [...]string{"synchronous", "bounded_staleness", "asynchronous"}

func (k SyncKind) String() string { return syncKinds[k] }

// A SyncMode says how ranks wait for each other.
type SyncMode struct {
	Kind SyncKind
	Max  int // of [BoundedStaleness]: the steps that a rank may be ahead of the slowest
}

func (m SyncMode) String() string {
	if m.Kind == BoundedStaleness {
		return fmt.Sprintf("%v(%d)", m.Kind, m.Max)
	}
	return m.Kind.String()
}
