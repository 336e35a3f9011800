// Package nn holds modules: layers with named parameters, and what models are built of.
//
// A module is a pointer to a struct that embeds [Base]. Its exported fields say the rest: tensors are its parameters
// (or, tagged `plait:"buffer"`, its buffers), and modules, slices and maps of modules are its parts. Names follow PyTorch:
// the field InProjWeight of the part SelfAttn is "self_attn.in_proj_weight", so that state dicts are exchanged with it.
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
// Constructors put parameters on the default device with the default dtype of the current context, initialised as
// PyTorch does. A module whose making failed carries the error in its parameters, and so do its results.
package nn
