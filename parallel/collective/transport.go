package collective

// A Transport moves bytes between the processes of a world. Its methods return at once and may be called from any goroutine.
//
// There are messages and data. Messages are small, are copied, and go to the listener of the other process. Data goes straight to memory
// that the other process names, so both sides must know its length. All memory of data is outside the Go heap, or pinned.
type Transport interface {
	// Name returns the transport's name, such as "mpi".
	Name() string
	// Process returns the number of this process, and Processes how many there are.
	Process() int
	Processes() int
	// Listen sets the function that gets the messages of Post, those of one process in their order. It runs on a goroutine of the transport or
	// in Progress, and must not block. It may keep message. Messages that arrive earlier are kept. Listen must be called once.
	Listen(f func(from int, message []byte))
	// Post sends a message of any length to another process's listener. It copies message. An error of it is reported through Lost.
	Post(to int, message []byte)
	// Send sends data to another process, which must call Recv with the same tag and length. Messages with one tag between two processes
	// arrive in order. done is called exactly once, when data may be reused, or with the error, on a goroutine that must not be blocked. It may
	// be called before Send returns.
	Send(to int, tag uint32, data []byte, done func(error))
	// Recv receives a message of exactly len(data) bytes. done is as of Send. If the error has a method Held() bool that returns true, the
	// transport may still use data, which must not be freed until the process ends.
	Recv(from int, tag uint32, data []byte, done func(error))
	// Progress moves messages along and calls listeners and done functions that are due, if no other goroutine is doing so. It reports whether
	// anything happened. Waiters that spin call it, and it lets other threads compute if nothing has happened for a while.
	Progress() bool
	// Lose marks a process as lost: pending and later operations with it end with err.
	Lose(process int, err error)
	// Lost sets the function that is called once for each process with which communication has failed.
	Lost(f func(process int, err error))
	// Close waits, at most for a short while, for messages under way, and ends the transport. Pending operations end with an error.
	Close() error
}
