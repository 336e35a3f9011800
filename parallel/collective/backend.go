package collective

// A Backend executes the operations of one rank in one group. "local" is for ranks that are threads of one process. Other backends could
// communicate between processes.
type Backend interface {
	// Name returns the backend's name, such as "local".
	Name() string
	// Start begins an operation and returns at once. A rank's calls in one channel come in the order of their sequence numbers. The group
	// has already made the checks that need one rank only.
	Start(o *Operation) *Work
	// Split creates the backend of a subgroup. Each of its ranks calls it with the same ranks and the same key, which must be new.
	Split(ranks []int, key uint64) Backend
	// Channel returns the number of the n-th channel that this rank creates from parent. It is the same on every rank.
	Channel(parent, n uint64) uint64
	// Revoke fails all pending and future operations of a channel, on every rank, because of cause. It returns the error that they get.
	Revoke(channel uint64, cause error) error
	// Abort fails all pending and future operations of this rank, and those of other ranks that need it.
	Abort(err error)
	// Close removes this rank from the group. Operations of other ranks that need it fail.
	Close() error
}
