package core

// Parts says where the elements of a tensor without memory of its own are, and does for it what an ordinary tensor does by itself. Package
// parallel/tensor implements it for tensors that lie on several ranks, which the words below speak of. Package op implements it for sparse
// tensors, of which Local has the values, package vmap for batched ones, of which Local has the elements of all parts of a batch, and package graph for those that are recorded, of which Local
// has the elements.
type Parts interface {
	// Local returns this rank's part, which belongs to the distributed tensor.
	Local() *Tensor
	// With returns a distributed tensor of which local, a tensor like Local, is this rank's part. It takes over local.
	With(local *Tensor) *Tensor
	// Gradient is With for a gradient of Local.
	Gradient(local *Tensor) *Tensor
	// Seed returns this rank's part of grad, a gradient of the distributed tensor or nil, as a gradient of Local, for the operation of the
	// given name. It moves a gradient that lies otherwise.
	Seed(name string, grad *Tensor) (*Tensor, error)
	// Whole returns all elements of the distributed tensor as an ordinary tensor. All ranks call it.
	Whole() *Tensor
	// Like returns a distributed tensor of the given shape whose part on this rank fill makes, for the part's shape. It lies as the
	// distributed tensor does: sharded along dimensions that have the same size in both, elsewhere replicated.
	Like(shape []int, fill func(local []int) *Tensor) *Tensor
	// Take returns this rank's part of t, a tensor of the same shape, for the operation of the given name. Of an ordinary tensor every rank
	// has all elements. It moves a distributed one that lies otherwise, and then all ranks call it. It may return t, or t's own part.
	Take(name string, t *Tensor) (*Tensor, error)
	// First reports whether this rank is the first of those that have the same elements.
	First() bool
	// Beside reports whether q is on the same mesh.
	Beside(q Parts) bool
	// Combine returns the combination of all ranks' tensors, which are ordinary ones of one shape. All ranks call it. purpose is for errors of
	// ranks that disagree, such as "the norm of gradients".
	Combine(purpose string, t *Tensor, c Combination) *Tensor
	// Apply applies an operation some of whose arguments are distributed tensors.
	Apply(a Application) []*Tensor
	// Pending reports whether the elements are combined of those of all ranks, so that changing each rank's is not changing the whole.
	Pending() bool
	// Sparse reports whether the elements are those of a sparse tensor: Local has the values of its entries, not a part of its elements.
	Sparse() bool
	// Depth returns how many levels of vmap deep a batched tensor is; 0 for others. Of the tensors of an operation the deepest deals with it.
	Depth() int
	// Recorded reports whether operations are recorded as a graph, of which the tensor stands for a value.
	Recorded() bool
	// Release releases Local and what else it has.
	Release()
	// String returns the placements, such as "[Shard(0), Replicate()]".
	String() string
}

// An Application is the use of an operation.
type Application struct {
	Op   string // the name of its row, with "_" behind it for the variant in place
	Args []any  // of the Go function, tensors or lists of tensors among them
	// Each says that it works element by element on its arguments, which are all tensors and broadcast.
	Each bool
	// Attrs are the numbers, which are not among the arguments, of an operation that works so.
	Attrs []float64
	// Call is the function for ordinary tensors.
	Call func(args []any) []*Tensor
}

// NewDistributed returns a tensor of the given shape whose elements are where p says. Its local part leaves its scope.
//
// A distributed tensor has no storage. Its place in the graph is its part's. Operations that know how to work on it hand it to
// [Parts]; others fail.
func NewDistributed(m Mode, p Parts, d DType, shape []int) *Tensor {
	t := &Tensor{dtype: d, other: &noTensor{parts: p}}
	t.setShape(shape)
	ContiguousStrides(t.shape, t.strides)
	if p.Recorded() { // programs ask how it lies
		copy(t.strides, p.Local().strides)
		t.offset = p.Local().offset
	}
	p.Local().kept = true
	m.register(t)
	return t
}

// Parts returns where the elements of a distributed tensor are; nil for an ordinary tensor.
func (t *Tensor) Parts() Parts {
	if t == nil || t.other == nil {
		return nil
	}
	return t.other.parts
}

// IsSparse reports whether t is a sparse tensor.
func (t *Tensor) IsSparse() bool {
	p := t.Parts()
	return p != nil && p.Sparse()
}

// Present is [Tensor.Usable] for who asks about the tensor and not for its elements: it may be distributed.
func (t *Tensor) Present(op string) error {
	if t == nil {
		return t.Usable(op)
	}
	return t.here().Usable(op)
}

// here returns this rank's part of a distributed tensor, and an ordinary tensor as it is.
func (t *Tensor) here() *Tensor {
	for t.other != nil && t.other.parts != nil {
		t = t.other.parts.Local()
	}
	return t
}

// refuse returns the error of an operation that works on tensors with memory, or nil for a number.
func (n *noTensor) refuse(op string) error {
	if n.parts != nil && n.parts.Recorded() {
		return Errorf(NotImplemented, op, "the elements of a tensor are not known while a model is recorded as a graph, in which what is decided by them would be "+
			"missing: use operations on tensors alone, and plait.where for a choice")
	}
	if n.parts != nil && n.parts.Sparse() {
		return Errorf(TypeError, op, "got a sparse tensor (%v), want an ordinary one, which to_dense() makes", n.parts)
	}
	if n.parts != nil && n.parts.Depth() > 0 {
		return Errorf(NotImplemented, op, "not possible inside vmap, got %v, which stands for all parts of a batch: use operations on tensors alone, and plait.where for a choice", n.parts)
	}
	if n.parts != nil {
		return Errorf(StateError, op, "got a distributed tensor with placements %v, want an ordinary one: use its local part, or gather it", n.parts)
	}
	return n.err
}
