package nn_test

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// The uses of layers with options and states of their own.
func init() {
	affine := nn.BatchNormOptions{NormOptions: nn.NormOptions{Eps: 1e-3}}
	instance := nn.InstanceNormOptions{Affine: true, RunningStats: true}
	transformer := nn.TransformerOptions{FeedForward: 5, Dropout: 0.2, Activation: op.Tanh}
	first := transformer
	first.NormFirst = true
	padding := 2
	for name, fn := range map[string]func() []use{
		"NewBatchNorm1d": func() []use {
			l := nn.NewBatchNorm1d(3, affine)
			return []use{of(l, 4, 3), of(l, 2, 3, 2), evaluating(of(nn.NewBatchNorm1d(3, affine), 4, 3))}
		},
		"NewBatchNorm2d": func() []use { return []use{of(nn.NewBatchNorm2d(2, affine), 2, 2, 2, 2)} },
		"NewBatchNorm3d": func() []use { return []use{of(nn.NewBatchNorm3d(2, affine), 2, 2, 2, 1, 2)} },
		"NewInstanceNorm1d": func() []use {
			return []use{of(nn.NewInstanceNorm1d(3, instance), 2, 3, 4), evaluating(of(nn.NewInstanceNorm1d(3, instance), 2, 3, 4))}
		},
		"NewInstanceNorm2d": func() []use { return []use{of(nn.NewInstanceNorm2d(2, instance), 2, 2, 2, 2)} },
		"NewInstanceNorm3d": func() []use { return []use{of(nn.NewInstanceNorm3d(2, instance), 1, 2, 2, 2, 2)} },
		"NewLayerNorm":      func() []use { return []use{of(nn.NewLayerNorm([]int{2, 3}, nn.NormOptions{}), 2, 2, 3)} },
		"NewRMSNorm":        func() []use { return []use{of(nn.NewRMSNorm([]int{3}, nn.NormOptions{}), 2, 3)} },
		"NewGroupNorm":      func() []use { return []use{of(nn.NewGroupNorm(2, 4, nn.NormOptions{}), 2, 4, 3)} },
		"NewConv1d": func() []use {
			return []use{of(nn.NewConv1d(2, 4, 3, nn.ConvOptions{ConvOptions: op.ConvOptions{Stride: []int{2}, Groups: 2}}), 2, 2, 7),
				of(nn.NewConv1d(2, 1, 3, nn.ConvOptions{ConvOptions: op.ConvOptions{Padding: []int{1}}, PaddingMode: "circular"}), 1, 2, 4)}
		},
		"NewConv2d": func() []use {
			return []use{of(nn.NewConv2d(2, 3, 2, nn.ConvOptions{ConvOptions: op.ConvOptions{Padding: []int{1, 0}, Dilation: []int{1, 2}}}), 1, 2, 3, 4)}
		},
		"NewConv3d": func() []use { return []use{of(nn.NewConv3d(1, 2, 2, nn.ConvOptions{NoBias: true}), 1, 1, 3, 2, 3)} },
		"NewConv":   func() []use { return []use{of(nn.NewConv(1, 2, []int{2, 1}, nn.ConvOptions{}), 2, 1, 3, 2)} },
		"NewConvTranspose1d": func() []use {
			return []use{of(nn.NewConvTranspose1d(2, 3, 3, nn.ConvTransposeOptions{ConvTransposeOptions: op.ConvTransposeOptions{Stride: []int{2}, OutputPadding: []int{1}}}), 1, 2, 3)}
		},
		"NewConvTranspose2d": func() []use { return []use{of(nn.NewConvTranspose2d(2, 2, 2, nn.ConvTransposeOptions{}), 1, 2, 2, 3)} },
		"NewConvTranspose3d": func() []use {
			return []use{of(nn.NewConvTranspose3d(1, 2, 2, nn.ConvTransposeOptions{}), 1, 1, 2, 1, 2)}
		},
		"NewConvTranspose": func() []use {
			return []use{of(nn.NewConvTranspose(1, 2, []int{1, 2}, nn.ConvTransposeOptions{}), 1, 1, 2, 2)}
		},
		"NewEmbedding": func() []use {
			return []use{on(nn.NewEmbedding(4, 3, nn.EmbeddingOptions{}), whole(3, 0, 3))}
		},
		"NewEmbeddingBag": func() []use {
			bag := nn.NewEmbeddingBag(4, 3, "sum", nn.EmbeddingOptions{})
			padded := nn.NewEmbeddingBag(4, 3, "mean", nn.EmbeddingOptions{PaddingIdx: &padding})
			return []use{
				several(bag, func(in []*core.Tensor) []*core.Tensor {
					return []*core.Tensor{bag.Bags(in[0], whole(0, 2), in[1])}
				}, whole(3, 0, 3), op.Randn(3)),
				on(nn.NewEmbeddingBag(4, 3, "max", nn.EmbeddingOptions{}), op.Reshape(whole(1, 0, 3, 2), 2, 2)),
				several(padded, func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{padded.Forward(in[0])} }, op.Reshape(whole(1, 0, 3, 0), 2, 2)),
			}
		},
		"NewBilinear": func() []use {
			l := nn.NewBilinear(3, 2, 2, nn.LinearOptions{})
			return []use{several(l, func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{l.Forward(in[0], in[1])} }, op.Randn(2, 3), op.Randn(2, 2))}
		},
		"NewRNN": func() []use {
			l := nn.NewRNN(2, 3, nn.RNNOptions{Layers: 2, Bidirectional: true, Dropout: 0.3})
			return []use{several(l, func(in []*core.Tensor) []*core.Tensor {
				y, h := l.Run(in[0], in[1])
				return []*core.Tensor{y, h}
			}, op.Randn(3, 2, 2), op.Randn(4, 2, 3)), of(nn.NewRNN(2, 3, nn.RNNOptions{ReLU: true, BatchFirst: true}), 2, 3, 2)}
		},
		"NewLSTM": func() []use {
			l := nn.NewLSTM(2, 3, nn.RNNOptions{Bidirectional: true})
			return []use{several(l, func(in []*core.Tensor) []*core.Tensor {
				y, h, c := l.Run(in[0], in[1], in[2])
				return []*core.Tensor{y, h, c}
			}, op.Randn(3, 2, 2), op.Randn(2, 2, 3), op.Randn(2, 2, 3)), of(nn.NewLSTM(2, 3, nn.RNNOptions{Layers: 2, ProjSize: 2, NoBias: true}), 3, 2, 2)}
		},
		"NewGRU": func() []use {
			l := nn.NewGRU(2, 3, nn.RNNOptions{Layers: 2})
			return []use{several(l, func(in []*core.Tensor) []*core.Tensor {
				y, h := l.Run(in[0], in[1])
				return []*core.Tensor{y, h}
			}, op.Randn(3, 2, 2), op.Randn(2, 2, 3))}
		},
		"NewRNNCell": func() []use {
			l := nn.NewRNNCell(2, 3, nn.LinearOptions{})
			return []use{several(l, func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{l.Step(in[0], in[1])} }, op.Randn(2, 2), op.Randn(2, 3))}
		},
		"NewLSTMCell": func() []use {
			l := nn.NewLSTMCell(2, 3, nn.LinearOptions{})
			return []use{several(l, func(in []*core.Tensor) []*core.Tensor {
				h, c := l.Step(in[0], in[1], in[2])
				return []*core.Tensor{h, c}
			}, op.Randn(2, 2), op.Randn(2, 3), op.Randn(2, 3))}
		},
		"NewGRUCell": func() []use {
			l := nn.NewGRUCell(2, 3, nn.LinearOptions{})
			return []use{several(l, func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{l.Step(in[0], in[1])} }, op.Randn(2, 2), op.Randn(2, 3))}
		},
		"NewMultiheadAttention": func() []use {
			l := nn.NewMultiheadAttention(4, 2, nn.AttentionOptions{})
			o := nn.NewMultiheadAttention(4, 2, nn.AttentionOptions{KDim: 3, VDim: 2, AddBiasKV: true, AddZeroAttn: true, Dropout: 0.2})
			return []use{of(l, 2, 3, 4), several(o, func(in []*core.Tensor) []*core.Tensor {
				return []*core.Tensor{o.ForwardQKV(in[0], in[1], in[2], nn.Mask{})}
			}, op.Randn(1, 2, 4), op.Randn(1, 3, 3), op.Randn(1, 3, 2)), several(l, func(in []*core.Tensor) []*core.Tensor {
				y, w := l.ForwardQKVWithWeights(in[0], in[0], in[0], nn.Mask{Causal: true})
				return []*core.Tensor{y, w}
			}, op.Randn(1, 2, 4))}
		},
		"NewTransformerEncoderLayer": func() []use {
			return []use{of(nn.NewTransformerEncoderLayer(4, 2, transformer), 1, 2, 4), of(nn.NewTransformerEncoderLayer(4, 2, first), 1, 2, 4)}
		},
		"NewTransformerEncoder": func() []use { return []use{of(nn.NewTransformerEncoder(2, 4, 2, transformer), 1, 2, 4)} },
		"NewTransformerDecoderLayer": func() []use {
			l := nn.NewTransformerDecoderLayer(4, 2, first)
			return []use{several(l, func(in []*core.Tensor) []*core.Tensor {
				return []*core.Tensor{l.Decode(in[0], in[1], nn.Mask{Causal: true}, nn.Mask{})}
			}, op.Randn(1, 2, 4), op.Randn(1, 3, 4))}
		},
		"NewTransformerDecoder": func() []use {
			l := nn.NewTransformerDecoder(1, 4, 2, transformer)
			return []use{several(l, func(in []*core.Tensor) []*core.Tensor {
				return []*core.Tensor{l.Decode(in[0], in[1], nn.Mask{}, nn.Mask{})}
			}, op.Randn(1, 2, 4), op.Randn(1, 3, 4))}
		},
		"NewTransformer": func() []use {
			l := nn.NewTransformer(4, 2, 1, 1, transformer)
			return []use{several(l, func(in []*core.Tensor) []*core.Tensor {
				return []*core.Tensor{l.Run(in[0], in[1], nn.Mask{}, nn.Mask{Causal: true}, nn.Mask{})}
			}, op.Randn(1, 3, 4), op.Randn(1, 2, 4))}
		},
	} {
		uses[name] = fn
	}
}
