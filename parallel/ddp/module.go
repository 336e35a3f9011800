package ddp

import (
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/collective"
)

// Prefix is what the names of a parallel module's tensors begin with.
const Prefix = "module."

// A DistributedDataParallel is a module whose gradients are averaged over the ranks of a group. Its own module is its
// part "module", so that the names of its tensors begin with [Prefix].
type DistributedDataParallel struct {
	nn.Base
	Module nn.Module

	reducer *Reducer
}

// New makes m, of which every rank has a copy, parallel. The copies become equal to rank 0's. Every rank of g calls it. The
// buffers of o are those of m.
func New(m nn.Module, g *collective.Group, o Options) (*DistributedDataParallel, error) {
	if err := nn.Err(m); err != nil {
		return nil, err
	}
	var params []Named
	for _, n := range nn.NamedParameters(m) {
		params = append(params, Named{n.Name, n.Tensor})
	}
	o.Buffers = nil
	seen := map[*core.Tensor]bool{}
	for _, n := range nn.NamedTensors(m) {
		if n.Kind != nn.Parameter && !seen[n.Tensor] {
			seen[n.Tensor] = true
			o.Buffers = append(o.Buffers, Named{n.Name, n.Tensor})
		}
	}
	for _, part := range nn.Modules(m) {
		if l, ok := part.Module.(*SyncBatchNorm); ok {
			l.name = part.Name
		}
	}
	r, err := NewReducer(g, params, o)
	if err != nil {
		return nil, err
	}
	return &DistributedDataParallel{Module: m, reducer: r}, nil
}

// Reducer returns what averages the gradients.
func (d *DistributedDataParallel) Reducer() *Reducer { return d.reducer }

// Forward passes a batch, whose first dimension counts samples, through the module, which must be a layer.
func (d *DistributedDataParallel) Forward(x *core.Tensor) *core.Tensor {
	l, ok := d.Module.(nn.Layer)
	if !ok {
		return core.ErrorTensor(core.Errorf(core.TypeError, "ddp", "%T maps more than one tensor to another: call Begin and then what it has", d.Module))
	}
	if err := x.Usable("ddp"); err != nil {
		return core.ErrorTensor(err)
	}
	if err := d.Begin(x.Size(0)); err != nil {
		return core.ErrorTensor(err)
	}
	y := d.forward(l, x)
	if err := y.Err(); err != nil && core.CurrentMode().GradEnabled() {
		d.reducer.ForwardFailed(err)
	}
	return y
}

// forward runs the module's layer, with parameters in the dtype of mixed precision.
func (d *DistributedDataParallel) forward(l nn.Layer, x *core.Tensor) *core.Tensor {
	if d.reducer.options.Precision.Param == nil {
		return nn.Call(l, x)
	}
	lowered, err := d.reducer.Lowered()
	if err != nil {
		return core.ErrorTensor(err)
	}
	to := map[*core.Tensor]*core.Tensor{}
	for i, p := range d.reducer.params {
		to[p.Tensor] = lowered[i]
	}
	m := nn.Replicate(d.Module, func(n nn.Named) *core.Tensor {
		if t := to[n.Tensor]; t != nil {
			return t
		}
		return n.Tensor
	})
	return nn.Call(m.(nn.Layer), d.reducer.LoweredInput(x, false))
}

// Begin is to be called before each forward pass of a module that is not a layer, with the number of samples in the batch:
// see [Reducer.Forward].
func (d *DistributedDataParallel) Begin(samples int) error {
	if d.reducer.options.Weighted {
		for _, part := range nn.Modules(d.Module) {
			if l, ok := part.Module.(*SyncBatchNorm); ok {
				l.samples = float64(samples)
			}
		}
	}
	return d.reducer.Forward(samples)
}

// NoSync runs fn, in which backward only adds to this rank's gradients.
func (d *DistributedDataParallel) NoSync(fn func() error) error { return d.reducer.NoSync(fn) }

// Join runs body, in which ranks may have unequal numbers of batches: see [Reducer.Join].
func (d *DistributedDataParallel) Join(o JoinOptions, body func() error) error {
	return d.reducer.Join(o, body)
}

// Load copies a state dict into the module, whether its names begin with [Prefix] or not: see [nn.LoadStateDict].
func (d *DistributedDataParallel) Load(state map[string]*core.Tensor, strict bool) (nn.Report, error) {
	return nn.LoadStateDict(d.Module, WithoutPrefix(state), strict)
}

// Close takes the averaging off the module, which stays as it is.
func (d *DistributedDataParallel) Close() error { return d.reducer.Close() }

// WithoutPrefix returns a state dict of a parallel module as one of the module in it; one that has no prefix comes back as
// it is.
func WithoutPrefix(state map[string]*core.Tensor) map[string]*core.Tensor {
	for name := range state {
		if !strings.HasPrefix(name, Prefix) {
			return state
		}
	}
	bare := make(map[string]*core.Tensor, len(state))
	for name, t := range state {
		bare[strings.TrimPrefix(name, Prefix)] = t
	}
	return bare
}
