package nn

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TransformerOptions are the options of the Transformer layers.
type TransformerOptions struct {
	FeedForward int     // the width of the hidden layer; 0 means 2048
	Dropout     float64 // after attention, activation and feed-forward
	// Activation is the hidden layer's; nil means ReLU.
	Activation func(*core.Tensor) *core.Tensor
	// NormFirst normalises before each part and not after it.
	NormFirst bool
	NoBias    bool
	Eps       float64 // of the norms; 0 means 1e-5
}

func (o TransformerOptions) feedForward() int {
	if o.FeedForward == 0 {
		return 2048
	}
	return o.FeedForward
}

func (o TransformerOptions) activation() func(*core.Tensor) *core.Tensor {
	if o.Activation == nil {
		return op.Relu
	}
	return o.Activation
}

func (o TransformerOptions) norm(dim int) *LayerNorm {
	return NewLayerNorm([]int{dim}, NormOptions{Eps: o.Eps, NoBias: o.NoBias})
}

// TransformerEncoderLayer is self-attention followed by a feed-forward network, each around a residual connection
// (Vaswani et al. 2017).
type TransformerEncoderLayer struct {
	Base
	SelfAttn         *MultiheadAttention
	Linear1, Linear2 *Linear
	Norm1, Norm2     *LayerNorm
	Dropout          *Dropout
	NormFirst        bool

	activation func(*core.Tensor) *core.Tensor
}

// NewTransformerEncoderLayer returns a layer for inputs [n, l, dim].
func NewTransformerEncoderLayer(dim, heads int, o TransformerOptions) *TransformerEncoderLayer {
	bias := LinearOptions{NoBias: o.NoBias}
	return &TransformerEncoderLayer{
		SelfAttn: NewMultiheadAttention(dim, heads, AttentionOptions{Dropout: o.Dropout, NoBias: o.NoBias}),
		Linear1:  NewLinear(dim, o.feedForward(), bias), Linear2: NewLinear(o.feedForward(), dim, bias),
		Norm1: o.norm(dim), Norm2: o.norm(dim), Dropout: NewDropout(o.Dropout),
		NormFirst: o.NormFirst, activation: o.activation(),
	}
}

// Encode maps x [n, l, dim] to the same shape.
func (t *TransformerEncoderLayer) Encode(x *core.Tensor, mask Mask) *core.Tensor {
	attend := func(x *core.Tensor) *core.Tensor { return Call(t.Dropout, t.SelfAttn.ForwardQKV(x, x, x, mask)) }
	x = residual(x, t.Norm1, t.NormFirst, attend)
	return residual(x, t.Norm2, t.NormFirst, t.feedForward)
}

func (t *TransformerEncoderLayer) feedForward(x *core.Tensor) *core.Tensor {
	h := Call(t.Dropout, t.activation(Call(t.Linear1, x)))
	return Call(t.Dropout, Call(t.Linear2, h))
}

// Forward is [TransformerEncoderLayer.Encode] without a mask.
func (t *TransformerEncoderLayer) Forward(x *core.Tensor) *core.Tensor { return t.Encode(x, Mask{}) }

// residual adds part to x, normalising before or after.
func residual(x *core.Tensor, norm *LayerNorm, first bool, part func(*core.Tensor) *core.Tensor) *core.Tensor {
	if first {
		return op.Add(x, part(Call(norm, x)))
	}
	return Call(norm, op.Add(x, part(x)))
}

// TransformerEncoder is a stack of encoder layers.
type TransformerEncoder struct {
	Base
	Layers []*TransformerEncoderLayer
	Norm   *LayerNorm // at the end, or nil
}

// NewTransformerEncoder returns a stack of num layers, with a norm at the end if they normalise first.
func NewTransformerEncoder(num, dim, heads int, o TransformerOptions) *TransformerEncoder {
	t := &TransformerEncoder{}
	for range num {
		t.Layers = append(t.Layers, NewTransformerEncoderLayer(dim, heads, o))
	}
	if o.NormFirst {
		t.Norm = o.norm(dim)
	}
	return t
}

// Encode maps x [n, l, dim] to the same shape.
func (t *TransformerEncoder) Encode(x *core.Tensor, mask Mask) *core.Tensor {
	for _, l := range t.Layers {
		x = l.Encode(x, mask)
	}
	if t.Norm != nil {
		x = Call(t.Norm, x)
	}
	return x
}

// Forward is [TransformerEncoder.Encode] without a mask.
func (t *TransformerEncoder) Forward(x *core.Tensor) *core.Tensor { return t.Encode(x, Mask{}) }

// TransformerDecoderLayer is self-attention, attention over an encoder's output and a feed-forward network, each around a
// residual connection (Vaswani et al. 2017).
type TransformerDecoderLayer struct {
	Base
	SelfAttn, MultiheadAttn *MultiheadAttention
	Linear1, Linear2        *Linear
	Norm1, Norm2, Norm3     *LayerNorm
	Dropout                 *Dropout
	NormFirst               bool

	activation func(*core.Tensor) *core.Tensor
}

// NewTransformerDecoderLayer returns a layer for inputs [n, l, dim].
func NewTransformerDecoderLayer(dim, heads int, o TransformerOptions) *TransformerDecoderLayer {
	bias := LinearOptions{NoBias: o.NoBias}
	attention := AttentionOptions{Dropout: o.Dropout, NoBias: o.NoBias}
	return &TransformerDecoderLayer{
		SelfAttn: NewMultiheadAttention(dim, heads, attention), MultiheadAttn: NewMultiheadAttention(dim, heads, attention),
		Linear1: NewLinear(dim, o.feedForward(), bias), Linear2: NewLinear(o.feedForward(), dim, bias),
		Norm1: o.norm(dim), Norm2: o.norm(dim), Norm3: o.norm(dim), Dropout: NewDropout(o.Dropout),
		NormFirst: o.NormFirst, activation: o.activation(),
	}
}

// Decode maps x [n, l, dim] to the same shape, attending to memory [n, s, dim].
func (t *TransformerDecoderLayer) Decode(x, memory *core.Tensor, mask, memoryMask Mask) *core.Tensor {
	x = residual(x, t.Norm1, t.NormFirst, func(x *core.Tensor) *core.Tensor {
		return Call(t.Dropout, t.SelfAttn.ForwardQKV(x, x, x, mask))
	})
	x = residual(x, t.Norm2, t.NormFirst, func(x *core.Tensor) *core.Tensor {
		return Call(t.Dropout, t.MultiheadAttn.ForwardQKV(x, memory, memory, memoryMask))
	})
	return residual(x, t.Norm3, t.NormFirst, func(x *core.Tensor) *core.Tensor {
		h := Call(t.Dropout, t.activation(Call(t.Linear1, x)))
		return Call(t.Dropout, Call(t.Linear2, h))
	})
}

// TransformerDecoder is a stack of decoder layers.
type TransformerDecoder struct {
	Base
	Layers []*TransformerDecoderLayer
	Norm   *LayerNorm // at the end, or nil
}

// NewTransformerDecoder returns a stack of num layers, with a norm at the end if they normalise first.
func NewTransformerDecoder(num, dim, heads int, o TransformerOptions) *TransformerDecoder {
	t := &TransformerDecoder{}
	for range num {
		t.Layers = append(t.Layers, NewTransformerDecoderLayer(dim, heads, o))
	}
	if o.NormFirst {
		t.Norm = o.norm(dim)
	}
	return t
}

// Decode maps x [n, l, dim] to the same shape, attending to memory [n, s, dim].
func (t *TransformerDecoder) Decode(x, memory *core.Tensor, mask, memoryMask Mask) *core.Tensor {
	for _, l := range t.Layers {
		x = l.Decode(x, memory, mask, memoryMask)
	}
	if t.Norm != nil {
		x = Call(t.Norm, x)
	}
	return x
}

// Transformer is an encoder and a decoder, each with a norm at the end (Vaswani et al. 2017).
type Transformer struct {
	Base
	Encoder *TransformerEncoder
	Decoder *TransformerDecoder
}

// NewTransformer returns a Transformer with so many encoder and decoder layers. PyTorch's defaults are 512 dimensions, 8
// heads, 6 and 6 layers and a dropout of 0.1. Matrices start as Xavier's uniform.
func NewTransformer(dim, heads, encoders, decoders int, o TransformerOptions) *Transformer {
	t := &Transformer{Encoder: NewTransformerEncoder(encoders, dim, heads, o), Decoder: NewTransformerDecoder(decoders, dim, heads, o)}
	t.Encoder.Norm, t.Decoder.Norm = o.norm(dim), o.norm(dim)
	for _, p := range Parameters(t) {
		if p.Err() == nil && p.Dim() > 1 {
			InitXavierUniform(p, 1)
		}
	}
	return t
}

// Run maps a source [n, s, dim] and a target [n, l, dim] to the target's shape. The decoder sees the encoder's output as
// memory allows.
func (t *Transformer) Run(source, target *core.Tensor, sourceMask, targetMask, memory Mask) *core.Tensor {
	if t.Encoder == nil || t.Decoder == nil {
		return core.ErrorTensor(core.Errorf(core.TypeError, "transformer", "the encoder or the decoder is nil"))
	}
	return t.Decoder.Decode(target, t.Encoder.Encode(source, sourceMask), targetMask, memory)
}
