package ddp

import (
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/collective"
)

// Prefix is the prefix of the names in a parallel module's state dict.
const Prefix = "module."

// A DistributedDataParallel wraps a module and averages its gradients over the ranks of a group. The wrapped module is its child "module", so
// the names of its tensors begin with [Prefix].
type DistributedDataParallel struct {
	nn.Base
	Module nn.Module

	reducer *Reducer
}

// New wraps m, of which every rank has a replica. Every rank of g calls it. Parameters and buffers are broadcast from rank 0. [Options].Buffers
// is ignored: the buffers are those of m.
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

// Reducer returns the reducer that averages the gradients.
func (d *DistributedDataParallel) Reducer() *Reducer { return d.reducer }

// Forward runs the module, which must be a layer, on a batch. The first dimension of x is the number of samples.
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

// forward runs the layer. With mixed precision it runs a replica whose parameters are cast.
func (d *DistributedDataParallel) forward(l nn.Layer, x *core.Tensor) *core.Tensor {
	if d.reducer.options.Precision.Param == nil {
		return nn.Call(l, x)
	}
	list, err := d.reducer.Lowered()
	if err != nil {
		return core.ErrorTensor(err)
	}
	cast := map[*core.Tensor]*core.Tensor{}
	for i, p := range d.reducer.params {
		cast[p.Tensor] = list[i]
	}
	m := nn.Replicate(d.Module, func(n nn.Named) *core.Tensor {
		if t := cast[n.Tensor]; t != nil {
			return t
		}
		return n.Tensor
	})
	return nn.Call(m.(nn.Layer), d.reducer.LoweredInput(x, false))
}

// Begin prepares a forward pass on a batch of the given number of samples, see [Reducer.Forward]. Call it before each forward pass of a module
// that is not a layer; [DistributedDataParallel.Forward] calls it for layers.
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

// NoSync runs fn without synchronisation, for gradient accumulation: see [Reducer.NoSync].
func (d *DistributedDataParallel) NoSync(fn func() error) error { return d.reducer.NoSync(fn) }

// Join runs body, in which ranks may have different numbers of batches: see [Reducer.Join].
func (d *DistributedDataParallel) Join(o JoinOptions, body func() error) error {
	return d.reducer.Join(o, body)
}

// Load loads a state dict, with or without [Prefix] in its names, into the module: see [nn.LoadStateDict].
func (d *DistributedDataParallel) Load(state map[string]*core.Tensor, strict bool) (nn.Report, error) {
	return nn.LoadStateDict(d.Module, WithoutPrefix(state), strict)
}

// Close removes the hooks from the module's parameters: see [Reducer.Close]. The module can be used without DDP afterwards.
func (d *DistributedDataParallel) Close() error { return d.reducer.Close() }

// WithoutPrefix returns a state dict without [Prefix] in its names. If a name has no prefix, it returns state itself.
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
