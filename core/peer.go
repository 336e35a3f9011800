package core

// A PeerDevice is a device whose calls may have operands in the memory of other devices, as on GPUs that are linked.
type PeerDevice interface {
	Device
	// Reaches reports whether calls on the device may use the other device's memory; its own is always reached. Calls wait for the other
	// device's events as for those of their own device.
	Reaches(other Device) bool
	// NewPeerStream makes a stream for copies and sums among devices. It runs beside the device's other streams if the device can do that.
	NewPeerStream(rank int) Stream
	// Divides reports whether a sum can be divided by n with the bits that a CPU gives.
	Divides(n float64) bool
}

// A SharingDevice is a device whose memory other processes on the machine may be able to use, as GPUs of one driver.
type SharingDevice interface {
	PeerDevice
	// Shares reports whether the device can share memory at all.
	Shares() bool
	// Share lets other processes use the block of memory that holds m. It returns the block's handle and the place of m in it, in bytes. The
	// block stays the device's until the process ends; tensors are still made in it.
	Share(m Memory) (block []byte, at int, err error)
	// OpenShared makes a block of another process usable by calls of the device, until CloseShared. That it succeeds is the only proof that
	// the device reaches the block.
	OpenShared(block []byte) (Memory, error)
	CloseShared(m Memory)
	// Lost returns why the device is lost; nil if it is not.
	Lost() error

	// Signals reports whether the device's peer streams are SignalStreams.
	Signals() bool
	// NewSignals returns n words for signals, which are 0. Other processes can use them like other memory of the device.
	NewSignals(n int) (Memory, error)
	// FreeSignals frees the words. Nothing in flight may use them.
	FreeSignals(m Memory)
	// RaiseSignals sets words of the device beside all streams: it releases a stream that waits for a process which will not set them.
	RaiseSignals(words ...Signal)
}

// A Signal is the number that a 32-bit word gets, or has to reach. Numbers grow, and go on with 0 after the largest.
type Signal struct {
	Memory Memory
	Word   int
	Number uint32
}

// Signals are what a call of a SignalStream does: it sets words, then waits until others have reached their numbers, which holds back the calls
// behind it. Valid, if not nil, tells whether what other processes have written until then is valid. The call's outputs are what they have written.
type Signals struct {
	Set, Await []Signal
	Valid      Validity
}

// A Validity tells later whether data of other processes is valid. No call behind that of its Signals is done before.
type Validity interface {
	// Known reports whether Err is final.
	Known() bool
	// Err returns why the data is not valid. The call's outputs fail with it, and what later calls have computed from them.
	Err() error
}

// A SignalStream is a peer stream that waits for devices of other processes without the host.
type SignalStream interface {
	Stream
	// LaunchSignals launches a call without a kernel.
	LaunchSignals(c *Call, x Signals)
}

// Reaches reports whether calls on one device may use the memory of another, which the host cannot address.
func Reaches(from, to Device) bool {
	d, ok := from.(PeerDevice)
	return ok && d.Reaches(to)
}
