package shader

import "sync/atomic"

// A Device describes the GPU to kernels.
type Device struct {
	Label     string       // "gpu:0"
	Name      string       // the adapter's name
	Software  bool         // the adapter computes on the CPU, as lavapipe does
	Identity  string       // the kind of adapter: adapters of one identity and driver share measurements
	Driver    string       // the driver's version, if the system knows it
	Stored    bool         // measurements are stored in the user's cache
	Benchmark *atomic.Bool // whether kernels measure which algorithm is fastest; nil for never
	Library   bool         // a library computes matrix products: see [Runtime]
	Language  Language     // of the programs' text; nil for WGSL
	Compute   int          // the compute capability times ten, such as 90; 0 where the language is not CUDA
	Limits
	Tuning
}

// Limits are the limits of a GPU. Sizes are in bytes.
type Limits struct {
	Binding          int // the largest buffer that a program can bind
	Bindings         int // how many buffers a program can bind
	WorkgroupStorage int
	Invocations      int // in a workgroup
	Workgroups       int // along each dimension of a grid
}

// ExactDivision reports whether a quotient is the nearest float32. WGSL does not promise that.
func (d *Device) ExactDivision() bool {
	_, ok := d.Language.(CUDA)
	return ok
}

// String returns the label.
func (d *Device) String() string { return d.Label }
