package nn

import "github.com/plait-ml/plait/core"

// Sequential applies layers one after another. Its parts are named by their number.
type Sequential struct {
	Base
	Layers []Layer `plait:"inline"`
}

// NewSequential returns the layers in sequence.
func NewSequential(layers ...Layer) *Sequential { return &Sequential{Layers: layers} }

// Forward passes x through every layer.
func (s *Sequential) Forward(x *core.Tensor) *core.Tensor {
	for i, l := range s.Layers {
		if l == nil {
			return core.ErrorTensor(core.Errorf(core.TypeError, "sequential", "layer %d is nil", i))
		}
		x = Call(l, x)
	}
	return x
}

// ModuleList holds modules that its owner uses as it likes, named by their number.
type ModuleList[M Module] struct {
	Base
	Items []M `plait:"inline"`
}

// NewModuleList returns a list of modules.
func NewModuleList[M Module](items ...M) *ModuleList[M] { return &ModuleList[M]{Items: items} }

// ModuleDict holds modules by name.
type ModuleDict[M Module] struct {
	Base
	Items map[string]M `plait:"inline"`
}

// NewModuleDict returns a dictionary of modules.
func NewModuleDict[M Module](items map[string]M) *ModuleDict[M] { return &ModuleDict[M]{Items: items} }

// Func is a layer without parameters.
type Func struct {
	Base
	Fn func(x *core.Tensor) *core.Tensor

	name, arguments string // for Describe
}

// named returns a layer that is described as PyTorch's of that name.
func named(name, arguments string, fn func(x *core.Tensor) *core.Tensor) *Func {
	return &Func{Fn: fn, name: name, arguments: arguments}
}

// NewFunc returns fn as a layer, such as an activation within a [Sequential]. What carries an error passes it by.
func NewFunc(fn func(x *core.Tensor) *core.Tensor) *Func { return &Func{Fn: fn} }

// Forward returns Fn(x), or x if it carries an error.
func (f *Func) Forward(x *core.Tensor) *core.Tensor {
	if x.Err() != nil {
		return x
	}
	if f.Fn == nil {
		return core.ErrorTensor(core.Errorf(core.TypeError, "func", "the layer has no function"))
	}
	return f.Fn(x)
}
