package driver

// An Adapter is a way to a GPU.
type Adapter struct {
	Index    int
	Name     string
	Backend  string // "Vulkan" or "Metal"
	Software bool   // a program that computes on the CPU, such as lavapipe
	Discrete bool
	Vendor   uint32 // its number and the device's, as on the bus
	Device   uint32
}

// Limits are what a GPU can do, sizes in bytes.
type Limits struct {
	Buffer           int // the largest buffer
	Binding          int // the largest piece that a program sees
	Bindings         int // buffers that a program sees
	UniformAlignment int // of parameters
	UniformBinding   int
	WorkgroupStorage int
	Invocations      int  // in a workgroup
	Workgroups       int  // along each dimension of a grid
	BothWays         bool // the host may have a buffer that is copied to and from
}

// Usage says what a buffer is for.
type Usage uint32

// What buffers are for.
const (
	MapRead Usage = 1 << iota
	MapWrite
	CopySource
	CopyTarget
	_
	_
	Uniform
	Storage
)
