package collective

// A Backend carries out the operations of one group for one rank. Ranks that are threads of one process have "local";
// another one would talk to other processes.
type Backend interface {
	// Name returns the backend's name, such as "local".
	Name() string
	// Start begins an operation and returns at once. The calls of one rank in one channel come in the order of their sequence numbers; the
	// group has checked what one rank can check.
	Start(o *Operation) *Work
	// Split makes the backend of a group of some of the ranks, or of all. It is called by every one of those, who agree on
	// ranks; key is the same for all of them and not used before.
	Split(ranks []int, key uint64) Backend
	// Channel returns the number of the n-th channel that this rank makes from another; it is the same on every rank.
	Channel(parent, n uint64) uint64
	// Revoke fails what waits in a channel of the group, and what comes in it later, because of cause, on every rank. It returns the
	// error.
	Revoke(channel uint64, cause error) error
	// Abort fails everything that waits, and all later operations, of this rank and of all who need it.
	Abort(err error)
	// Close gives up the rank's part. Operations of others that need it fail.
	Close() error
}
