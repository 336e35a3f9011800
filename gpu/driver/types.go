package driver

// An Adapter describes a GPU that can be opened.
type Adapter struct {
	Index    int
	Name     string
	Backend  string // "Vulkan", "Metal" or "CUDA"
	Software bool   // it computes on the CPU, as lavapipe does
	Discrete bool
	Vendor   uint32 // the numbers of vendor and device on the PCI bus
	Device   uint32
	UUID     [16]byte // names the GPU among all drivers; zero if it is not known
	// ComputeCapability is the compute capability of NVIDIA's GPUs times ten; 0 if the driver does not say.
	ComputeCapability int
	Memory            int // bytes of memory; 0 if the driver does not say
	Multiprocessors   int // 0 if the driver does not say
}

// Limits are the limits of a GPU. Sizes are in bytes.
type Limits struct {
	Buffer           int // the largest buffer
	Binding          int // the largest buffer that a program can bind
	Bindings         int // how many buffers a program can bind
	UniformAlignment int // alignment of the offset of parameters
	UniformBinding   int
	WorkgroupStorage int
	Invocations      int  // in a workgroup
	Workgroups       int  // along each dimension of a grid
	MappablePrimary  bool // the host can map a buffer for both reading and writing
	IdleBatch        int  // how many commands are worth a submission to a GPU that has nothing to do
	AheadBatches     int  // how many batches may be on the GPU when such a submission is made; 0 if it must be idle
}

// Usage is a set of uses of a buffer.
type Usage uint32

// The uses of a buffer, with the values of WebGPU.
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
