package gpu

import (
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

// productWorkspace is the size of the scratch memory that a library's products share, which is what NVIDIA's asks for on its largest GPUs.
const productWorkspace = 32 << 20

// products is a device's use of a library for matrix products.
type products struct {
	missing error // why there is no library though the driver would use one
	mu      sync.Mutex
	memory  core.Memory // scratch memory
}

// open finds out whether the driver has a library.
func (p *products) open(gpu driver.GPU) (there bool) {
	g, ok := gpu.(driver.ProductGPU)
	if ok {
		p.missing = g.Products()
	}
	return ok && p.missing == nil
}

// workspace returns the scratch memory of products, which all streams share: a GPU runs batches in the order of submission.
func (p *products) workspace(d *Device) (core.Memory, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory.Handle != 0 {
		return p.memory, nil
	}
	m, err := d.memory.take(productWorkspace)
	if err != nil {
		if m, err = d.memory.takeAfterRelease(productWorkspace); err != nil {
			return m, core.Errorf(core.MemoryError, "matmul", "no room for the %d bytes that products on %v share: %v", productWorkspace, d, err)
		}
	}
	p.memory = m
	return m, nil
}

// MissingLibrary returns why the device computes matrix products by its own kernels though its driver would use a library; nil if there
// is no such reason.
func (d *Device) MissingLibrary() error { return d.products.missing }

// Product implements [shader.Runtime].
func (r *encoder) Product(p *shader.Product) (done bool, err error) {
	list, ok := r.batch.list.(driver.ProductList)
	if !ok || !r.device.target.Library {
		return false, nil
	}
	room, err := r.device.products.workspace(r.device)
	if err != nil {
		return false, err
	}
	product := driver.Product{
		M: p.M, N: p.N, K: p.K, Count: p.Count, A: r.matrix(p.A), B: r.matrix(p.B), C: r.matrix(p.Out), Alpha: p.Alpha, Beta: p.Beta,
		Factors: p.A.DType, Result: p.Out.DType, Reduced: p.Reduced, Workspace: r.place(room, 0), WorkspaceSize: productWorkspace,
	}
	if p.Bias != nil {
		product.Bias = r.place(p.Bias.Memory, p.Bias.Offset*p.Bias.DType.Size())
	}
	if done, err = list.Product(&product); done {
		r.device.dispatches.Add(1)
	}
	return done, err
}

// matrix returns a matrix as drivers take it.
func (r *encoder) matrix(m shader.Matrix) driver.Matrix {
	return driver.Matrix{Range: r.place(m.Memory, m.Offset*m.DType.Size()), Columns: m.Columns, Step: m.Step, Next: m.Next}
}

// place returns the place in a slab that is offset bytes behind the beginning of a piece of memory.
func (r *encoder) place(m core.Memory, offset int) driver.Range {
	slab, at := slabOf(m)
	return driver.Range{Buffer: slab.buffer, Offset: at + offset}
}
