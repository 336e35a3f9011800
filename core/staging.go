package core

// A Region is a run of bytes of a device's memory.
type Region struct {
	Memory Memory
	Offset int
	Size   int
}

// A Stager is a stream of a device whose memory the host cannot address. What other devices and the host have to do with
// that memory leads through stages: memory of the host that the device can copy from and to.
type Stager interface {
	Stream
	// Fetch starts to copy regions to a stage, after what was launched so far and after events.
	Fetch(regions []Region, after ...Event) (Fetched, error)
	// Hurry says that what is fetched and stored next is soon waited for: other streams of the device are to leave room for it.
	Hurry()
	// Stage returns a stage for bytes that are to be copied to regions.
	Stage(regions []Region) (Stage, error)
}

// Fetched is a copy of regions for the host to read.
type Fetched interface {
	// Wait waits until the bytes are there, and returns the error if they never will be.
	Wait() error
	// Bytes returns those of region i, after Wait and until Release.
	Bytes(i int) []byte
	// Back returns the stage as one for the same regions that holds the fetched bytes, for the host to change and for a stream of
	// the same device to store; nil if the device has none for both ways. It is then not released here.
	Back(on Stager) Stage
	// Release gives the stage back.
	Release()
}

// A Stage is memory for the host to write, in one go: reading it is slow.
type Stage interface {
	// Bytes returns the memory for region i, until Store or Release.
	Bytes(i int) []byte
	// Store starts to copy all bytes to the regions, after what was launched so far and after events, and returns the event of
	// its end. The stage is given back then.
	Store(after ...Event) Event
	// Release gives the stage back instead.
	Release()
}
