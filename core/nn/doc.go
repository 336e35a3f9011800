// Package nn holds modules: layers with named parameters, and what models are built of.
//
// A module is a pointer to a struct that embeds [Base]. Its fields say the rest: exported tensors are its parameters, and
// modules, slices and maps of modules, exported or not, are its parts. Names follow PyTorch: the field InProjWeight of the
// part SelfAttn is "self_attn.in_proj_weight", so that state dicts are exchanged with it. A tag changes what a field means:
// `plait:"buffer"` for a tensor that is saved but not trained, "transient" for one that is neither, "name=x" for another
// name, "inline" for elements without a name of their own before their number, and "-" for a field that is left out.
//
//	type Block struct {
//		nn.Base
//		Norm *nn.LayerNorm
//		Up   *nn.Linear
//		Down *nn.Linear
//	}
//
//	func (b *Block) Forward(x *core.Tensor) *core.Tensor {
//		return op.Add(x, b.Down.Forward(op.Gelu(b.Up.Forward(b.Norm.Forward(x)), "none")))
//	}
//
// [Call] runs a layer between the hooks that were registered on it; the modules here run their parts so.
//
// Constructors put parameters on the default device with the default dtype of the current context, initialised as
// PyTorch does. A module whose making failed carries the error in its parameters, and so do its results.
package nn

//go:generate go run github.com/plait-ml/plait/internal/gen/exported
