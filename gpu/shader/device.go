package shader

import "sync/atomic"

// A Device is what kernels know of the GPU that their programs run on.
type Device struct {
	Label     string       // "gpu:0"
	Name      string       // of the adapter
	Software  bool         // it computes on the CPU, such as lavapipe
	Identity  string       // the kind of adapter: what is measured on one holds for others with the same identity and driver
	Driver    string       // its version, where the system says it
	Stored    bool         // what was measured before is looked up in the user's cache
	Benchmark *atomic.Bool // kernels measure the fastest way of computing; nil for never
	Language  Language     // of programs; nil for WGSL
	Limits
	Tuning
}

// Limits are what a GPU can do, sizes in bytes.
type Limits struct {
	Binding          int // the largest buffer that a program sees
	Bindings         int // buffers that a program sees
	WorkgroupStorage int
	Invocations      int // in a workgroup
	Workgroups       int // along each dimension of a grid
}

// String returns the label.
func (d *Device) String() string { return d.Label }
