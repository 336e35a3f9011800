package core

// A Region is a range of bytes in a device's memory.
type Region struct {
	Memory Memory
	Offset int
	Size   int
}

// A Stager is a stream of a device whose memory the host cannot address. Other devices and the host exchange data with it through stages:
// host memory that the device can copy from and to.
type Stager interface {
	Stream
	// Fetch starts to copy regions to a stage, after everything launched so far and after the given events. If the copy is cancelled it calls
	// cancelled, which may be nil, before the copy's end.
	Fetch(regions []Region, cancelled func(err error), after ...Event) (Fetched, error)
	// ExpectWait tells the stream that somebody will soon wait for the next fetches and stores, so that they get priority over other
	// streams of the device.
	ExpectWait()
	// Stage returns a stage for bytes that will be copied to regions.
	Stage(regions []Region) (Stage, error)
}

// Fetched is a copy of regions in host memory.
type Fetched interface {
	// Wait blocks until the copy is complete, and returns its error.
	Wait() error
	// Bytes returns the bytes of region i, after Wait and until Release.
	Bytes(i int) []byte
	// Back returns the same memory as a Stage for the same regions. It holds the fetched bytes; the host may change them, and a stream of
	// the same device may store them. It is nil if the device has no memory for both directions. Otherwise the Stage must be released, not
	// this.
	Back(on Stager) Stage
	// Release frees the stage.
	Release()
}

// A Stage is host memory to write once: reading it is slow.
type Stage interface {
	// Bytes returns the memory for region i, until Store or Release.
	Bytes(i int) []byte
	// Store starts to copy all bytes to the regions, after everything launched so far and after the given events. It returns the event of
	// the copy's end. The stage is freed then. If the copy is cancelled it calls cancelled, which may be nil, before that event.
	Store(cancelled func(err error), after ...Event) Event
	// Release frees the stage without storing it.
	Release()
}
