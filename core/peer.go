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

// Reaches reports whether calls on one device may use the memory of another, which the host cannot address.
func Reaches(from, to Device) bool {
	d, ok := from.(PeerDevice)
	return ok && d.Reaches(to)
}
