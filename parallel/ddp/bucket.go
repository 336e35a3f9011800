package ddp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Bucket is a set of gradients of one dtype on one device that are reduced together.
type Bucket struct {
	reducer *Reducer
	group   *collective.Group // the reducer's group with the bucket's purpose
	purpose string            // names the bucket's collectives in error messages
	index   int               // in the order of reduction
	params  []int             // indices of the parameters in the reducer, by slot
	dtype   core.DType
	device  core.Device
	numel   int   // elements of the buffer
	offsets []int // of each slot in the buffer, in elements
	delayed bool  // holds parameters of Options.Delayed

	flat  *core.Tensor   // the buffer; nil if gradients are reduced in place, without a buffer
	views []*core.Tensor // views of flat with the parameters' shapes, by slot

	pending      int            // parameters whose gradients are not final
	placeholders []*core.Tensor // placeholders for missing gradients, by slot
}

// Index returns the bucket's index in the order of reduction.
func (b *Bucket) Index() int { return b.index }

// IsLast reports whether the bucket is the last to be reduced.
func (b *Bucket) IsLast() bool { return b.index == len(b.reducer.buckets)-1 }

// Buffer returns the flat tensor that holds all gradients one after the other. It belongs to the bucket.
func (b *Bucket) Buffer() *core.Tensor { return b.flat }

// Gradients returns views of the buffer, one for each parameter and of its shape.
func (b *Bucket) Gradients() []*core.Tensor { return b.views }

// Parameters returns the parameters whose gradients the bucket holds.
func (b *Bucket) Parameters() []*core.Tensor {
	list := make([]*core.Tensor, len(b.params))
	for i, n := range b.params {
		list[i] = b.reducer.params[n].Tensor
	}
	return list
}

// Names returns the names of the parameters.
func (b *Bucket) Names() []string {
	list := make([]string, len(b.params))
	for i, n := range b.params {
		list[i] = b.reducer.params[n].Name
	}
	return list
}

// Indices returns the indices of the parameters in the list that the reducer was created with, where shared parameters count once.
func (b *Bucket) Indices() []int { return slices.Clone(b.params) }

// Context returns the context for a hook of another language, on the bucket's communication stream.
func (b *Bucket) Context() *core.Context {
	return b.reducer.contexts[streamKey{b.device, b.index % streamsPerDevice}]
}

// Group returns the group that the bucket is reduced over.
func (b *Bucket) Group() *collective.Group { return b.group }

// Bytes returns the bytes of the gradients.
func (b *Bucket) Bytes() int { return b.numel * b.dtype.Size() }

// Buckets returns the buckets in the order in which they are reduced. A step may rebuild them.
func (r *Reducer) Buckets() []*Bucket { return slices.Clone(r.buckets) }

// requiresGradChanged reports whether parameters were frozen or unfrozen since buckets were assigned.
func (r *Reducer) requiresGradChanged() bool {
	return slices.ContainsFunc(r.params, func(p *parameter) bool { return p.active != p.Tensor.RequiresGrad() })
}

// assignBuckets puts the parameters that require a gradient into buckets, in the order of r.order.
func (r *Reducer) assignBuckets() error {
	type key struct {
		d       core.DType
		dev     core.Device
		delayed bool
	}
	old := r.buckets
	r.buckets = nil
	open, bytes := map[key]*Bucket{}, map[key]int{}
	started := map[key]bool{}
	last := map[*Bucket]int{} // position of the bucket's last parameter
	for at, i := range r.bucketOrder {
		p := r.params[i]
		p.active, p.bucket = p.Tensor.RequiresGrad(), nil
		if !p.active {
			continue
		}
		k := key{p.Tensor.DType(), p.Tensor.Device(), p.delayed}
		b := open[k]
		if b == nil {
			b = &Bucket{reducer: r, dtype: k.d, device: k.dev, delayed: k.delayed}
			open[k], bytes[k] = b, 0
			r.buckets = append(r.buckets, b)
		}
		p.bucket, p.slot = b, len(b.params)
		b.params = append(b.params, i)
		b.offsets = append(b.offsets, b.numel)
		b.numel += p.Tensor.Numel()
		if k.d.Size() < 4 {
			b.numel += b.numel % 2 // gradients start at 32-bit words, since a GPU thread writes whole words
		}
		last[b] = at
		if b.delayed {
			last[b] += len(r.bucketOrder) // after all others
		}
		bytes[k] += p.Tensor.Numel() * k.d.Size()
		limit := r.options.BucketBytes
		if !started[k] {
			limit = r.options.FirstBucketBytes
		}
		if bytes[k] >= limit {
			open[k], started[k] = nil, true
		}
	}
	slices.SortFunc(r.buckets, func(a, b *Bucket) int { return last[a] - last[b] })
	for i, b := range r.buckets {
		b.index = i
		b.purpose = fmt.Sprintf("bucket %d (%s) of %s", i, strings.Join(shorten(b.Names()), ", "), r.group.Purpose())
		b.group = r.group.For(b.purpose)
	}
	if err := r.allocateBucketBuffers(); err != nil {
		return err
	}
	for _, b := range old {
		b.freeBuffer()
	}
	return nil
}

// shorten leaves out the middle of a long list of names.
func shorten(names []string) []string {
	if n := len(names); n > 6 {
		return []string{names[0], names[1], fmt.Sprintf("... %d more", n-4), names[n-2], names[n-1]}
	}
	return names
}

// allocateBucketBuffers allocates missing buffers of all buckets, if gradient views or hooks need buffers.
func (r *Reducer) allocateBucketBuffers() error {
	if !r.options.BucketView && r.hook == nil && r.foreignHook == 0 {
		return nil
	}
	for _, b := range r.buckets {
		if err := b.allocateBuffer(); err != nil {
			return err
		}
	}
	return nil
}

// allocateBuffer allocates the bucket's buffer. With [Options.BucketView], it also moves the gradients there.
func (b *Bucket) allocateBuffer() error {
	r := b.reducer
	if b.flat != nil {
		return nil
	}
	category := core.Communication
	if r.options.BucketView {
		category = core.Gradient
	}
	var err error
	core.NoGrad(func() {
		core.WithCategory(category, func() {
			b.flat = op.ZerosWith([]int{b.numel}, op.TensorOptions{DType: &b.dtype, Device: b.device}).Keep()
		})
		if err = b.flat.Err(); err != nil {
			b.flat = nil
			return
		}
		for i, n := range b.params {
			shape := r.params[n].Tensor.Shape()
			strides := make([]int, len(shape))
			core.ContiguousStrides(shape, strides)
			v := core.WrapTensor(core.CurrentMode(), b.flat.Storage(), b.dtype, shape, strides, b.offsets[i]).Keep()
			b.views = append(b.views, v)
		}
		if r.options.BucketView {
			for i, n := range b.params {
				if err == nil && r.params[n].Tensor.Grad() != nil {
					err = b.viewGradient(i)
				}
			}
		}
	})
	return err
}

// viewGradient copies the gradient of a slot to the buffer and replaces it by a view of the buffer.
func (b *Bucket) viewGradient(slot int) (err error) {
	t, v := b.reducer.params[b.params[slot]].Tensor, b.views[slot]
	g := t.Grad()
	if sameMemory(g, v) {
		return nil
	}
	core.NoGrad(func() {
		if err = op.CopyInPlace(v, g).Err(); err == nil {
			t.SetGrad(v.Alias(false))
		}
	})
	return err
}

func sameMemory(a, b *core.Tensor) bool {
	return a.Storage() == b.Storage() && a.Offset() == b.Offset() && a.SameLayout(b)
}

// freeBuffer releases the buffer. Its memory stays alive while gradients are views of it.
func (b *Bucket) freeBuffer() {
	for _, v := range b.views {
		v.Release()
	}
	if b.flat != nil {
		b.flat.Release()
	}
	b.flat, b.views = nil, nil
}

func (r *Reducer) freeBuckets() {
	for _, b := range r.buckets {
		b.freeBuffer()
	}
	r.buckets = nil
}

// rebuild assigns buckets again, in the order in which gradients became final on rank 0.
func (r *Reducer) rebuild() error {
	r.rebuilt = true
	var order []int
	known := make([]bool, len(r.params))
	for b := r.arrivalOrder; len(b) >= 4; b = b[4:] {
		if i := int(binary.LittleEndian.Uint32(b)); i < len(known) && !known[i] {
			known[i] = true
			order = append(order, i)
		}
	}
	for _, i := range r.bucketOrder {
		if !known[i] {
			order = append(order, i)
		}
	}
	r.bucketOrder = order
	r.stats.Rebuilds++
	return r.assignBuckets()
}
