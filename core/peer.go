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
}

// Reaches reports whether calls on one device may use the memory of another, which the host cannot address.
func Reaches(from, to Device) bool {
	d, ok := from.(PeerDevice)
	return ok && d.Reaches(to)
}
