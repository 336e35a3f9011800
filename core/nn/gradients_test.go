package nn_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// A use is what a constructor makes, inputs for it and how it is called.
type use struct {
	module nn.Module
	inputs []*core.Tensor
	call   func(in []*core.Tensor) []*core.Tensor
}

// of is the use of a layer on one input of random numbers.
func of(l nn.Layer, shape ...int) use { return on(l, op.Randn(shape...)) }

func on(l nn.Layer, x *core.Tensor) use {
	return use{l, []*core.Tensor{x}, func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{l.Forward(in[0])} }}
}

// several is the use of a module on any inputs.
func several(m nn.Module, call func(in []*core.Tensor) []*core.Tensor, inputs ...*core.Tensor) use {
	return use{m, inputs, call}
}

// against is the use of a loss.
func against(l *nn.Loss, x, target *core.Tensor) use {
	return use{l, []*core.Tensor{x, target}, func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{l.Forward(in[0], in[1])} }}
}

func among(l *nn.TripleLoss, a, b, c *core.Tensor) use {
	return use{l, []*core.Tensor{a, b, c}, func(in []*core.Tensor) []*core.Tensor {
		return []*core.Tensor{l.Forward(in[0], in[1], in[2])}
	}}
}

func whole(v ...int64) *core.Tensor { return core.FromSlice(v) }

func signs(v ...float64) *core.Tensor { return core.FromSlice(v) }

// positive returns random numbers from 0.1 to 0.9.
func positive(shape ...int) *core.Tensor {
	return op.Add(op.Mul(op.Rand(shape...), core.Num(0.8)), core.Num(0.1)).Detach()
}

// evaluating is the use in evaluation mode.
func evaluating(u use) use {
	nn.Eval(u.module)
	return u
}

// uses has one or more of every constructor of the package.
var uses = map[string]func() []use{
	"NewReLU":        func() []use { return []use{of(nn.NewReLU(), 2, 3)} },
	"NewReLU6":       func() []use { return []use{of(nn.NewReLU6(), 2, 3)} },
	"NewLeakyReLU":   func() []use { return []use{of(nn.NewLeakyReLU(0.1), 2, 3)} },
	"NewELU":         func() []use { return []use{of(nn.NewELU(0.7), 2, 3)} },
	"NewCELU":        func() []use { return []use{of(nn.NewCELU(0.7), 2, 3)} },
	"NewSELU":        func() []use { return []use{of(nn.NewSELU(), 2, 3)} },
	"NewGELU":        func() []use { return []use{of(nn.NewGELU("none"), 2, 3), of(nn.NewGELU("tanh"), 2, 3)} },
	"NewSiLU":        func() []use { return []use{of(nn.NewSiLU(), 2, 3)} },
	"NewMish":        func() []use { return []use{of(nn.NewMish(), 2, 3)} },
	"NewSigmoid":     func() []use { return []use{of(nn.NewSigmoid(), 2, 3)} },
	"NewLogSigmoid":  func() []use { return []use{of(nn.NewLogSigmoid(), 2, 3)} },
	"NewTanh":        func() []use { return []use{of(nn.NewTanh(), 2, 3)} },
	"NewHardtanh":    func() []use { return []use{of(nn.NewHardtanh(-0.5, 0.7), 2, 3)} },
	"NewHardsigmoid": func() []use { return []use{of(nn.NewHardsigmoid(), 2, 3)} },
	"NewHardswish":   func() []use { return []use{of(nn.NewHardswish(), 2, 3)} },
	"NewHardshrink":  func() []use { return []use{of(nn.NewHardshrink(0.3), 2, 3)} },
	"NewSoftshrink":  func() []use { return []use{of(nn.NewSoftshrink(0.3), 2, 3)} },
	"NewTanhshrink":  func() []use { return []use{of(nn.NewTanhshrink(), 2, 3)} },
	"NewSoftsign":    func() []use { return []use{of(nn.NewSoftsign(), 2, 3)} },
	"NewSoftplus":    func() []use { return []use{of(nn.NewSoftplus(2, 5), 2, 3)} },
	"NewThreshold":   func() []use { return []use{of(nn.NewThreshold(0.1, 2), 2, 3)} },
	"NewGLU":         func() []use { return []use{of(nn.NewGLU(-1), 2, 4)} },
	"NewSoftmax":     func() []use { return []use{of(nn.NewSoftmax(-1), 2, 3)} },
	"NewLogSoftmax":  func() []use { return []use{of(nn.NewLogSoftmax(0), 2, 3)} },
	"NewSoftmin":     func() []use { return []use{of(nn.NewSoftmin(-1), 2, 3)} },
	"NewPReLU":       func() []use { return []use{of(nn.NewPReLU(3, 0.2), 2, 3, 2), of(nn.NewPReLU(1, 0.2), 2, 3)} },
	"NewRReLU": func() []use {
		return []use{of(nn.NewRReLU(0.1, 0.3), 2, 3), evaluating(of(nn.NewRReLU(0.1, 0.3), 2, 3))}
	},
	"NewFunc":                func() []use { return []use{of(nn.NewFunc(op.Sin), 2, 3)} },
	"NewFlatten":             func() []use { return []use{of(nn.NewFlatten(), 2, 3, 2)} },
	"NewUnflatten":           func() []use { return []use{of(nn.NewUnflatten(1, 2, 3), 2, 6)} },
	"NewDropout":             func() []use { return []use{of(nn.NewDropout(0.4), 2, 3), evaluating(of(nn.NewDropout(0.4), 2, 3))} },
	"NewDropout1d":           func() []use { return []use{of(nn.NewDropout1d(0.4), 2, 3, 2)} },
	"NewDropout2d":           func() []use { return []use{of(nn.NewDropout2d(0.4), 2, 3, 2, 1)} },
	"NewDropout3d":           func() []use { return []use{of(nn.NewDropout3d(0.4), 2, 3, 2, 1, 1)} },
	"NewAlphaDropout":        func() []use { return []use{of(nn.NewAlphaDropout(0.4), 2, 3)} },
	"NewFeatureAlphaDropout": func() []use { return []use{of(nn.NewFeatureAlphaDropout(0.4), 2, 3, 2)} },
	"NewLinear": func() []use {
		return []use{of(nn.NewLinear(3, 2, nn.LinearOptions{}), 2, 2, 3), of(nn.NewLinear(3, 2, nn.LinearOptions{NoBias: true}), 3)}
	},
	"NewMaxPool1d":         func() []use { return []use{of(nn.NewMaxPool1d(2, op.MaxPoolOptions{}), 1, 2, 5)} },
	"NewMaxPool2d":         func() []use { return []use{of(nn.NewMaxPool2d(2, op.MaxPoolOptions{}), 1, 2, 4, 3)} },
	"NewMaxPool3d":         func() []use { return []use{of(nn.NewMaxPool3d(2, op.MaxPoolOptions{}), 1, 1, 2, 4, 3)} },
	"NewAvgPool1d":         func() []use { return []use{of(nn.NewAvgPool1d(2, op.AvgPoolOptions{}), 1, 2, 5)} },
	"NewAvgPool2d":         func() []use { return []use{of(nn.NewAvgPool2d(2, op.AvgPoolOptions{}), 1, 2, 4, 3)} },
	"NewAvgPool3d":         func() []use { return []use{of(nn.NewAvgPool3d(2, op.AvgPoolOptions{}), 1, 1, 2, 4, 3)} },
	"NewLPPool1d":          func() []use { return []use{on(nn.NewLPPool1d(2, 2, op.LPPoolOptions{}), positive(1, 2, 5))} },
	"NewLPPool2d":          func() []use { return []use{on(nn.NewLPPool2d(3, 2, op.LPPoolOptions{}), positive(1, 2, 4, 3))} },
	"NewLPPool3d":          func() []use { return []use{on(nn.NewLPPool3d(2, 2, op.LPPoolOptions{}), positive(1, 1, 2, 4, 3))} },
	"NewAdaptiveAvgPool1d": func() []use { return []use{of(nn.NewAdaptiveAvgPool1d(3), 1, 2, 5)} },
	"NewAdaptiveAvgPool2d": func() []use { return []use{of(nn.NewAdaptiveAvgPool2d(2, 3), 1, 2, 5, 4)} },
	"NewAdaptiveAvgPool3d": func() []use { return []use{of(nn.NewAdaptiveAvgPool3d(2), 1, 1, 2, 3, 4)} },
	"NewAdaptiveMaxPool1d": func() []use { return []use{of(nn.NewAdaptiveMaxPool1d(3), 1, 2, 5)} },
	"NewAdaptiveMaxPool2d": func() []use { return []use{of(nn.NewAdaptiveMaxPool2d(2, 3), 1, 2, 5, 4)} },
	"NewAdaptiveMaxPool3d": func() []use { return []use{of(nn.NewAdaptiveMaxPool3d(2), 1, 1, 2, 3, 4)} },
	"NewPad":               func() []use { return []use{of(nn.NewPad([]int{1, 2}, op.PadOptions{Mode: "reflect"}), 1, 2, 4)} },
	"NewUpsample": func() []use {
		return []use{of(nn.NewUpsample(op.InterpolateOptions{ScaleFactor: []float64{2, 2}, Mode: "bilinear"}), 1, 2, 2, 3)}
	},
	"NewPixelShuffle":      func() []use { return []use{of(nn.NewPixelShuffle(2), 1, 4, 2, 1)} },
	"NewPixelUnshuffle":    func() []use { return []use{of(nn.NewPixelUnshuffle(2), 1, 1, 2, 4)} },
	"NewChannelShuffle":    func() []use { return []use{of(nn.NewChannelShuffle(2), 1, 4, 2)} },
	"NewLocalResponseNorm": func() []use { return []use{of(nn.NewLocalResponseNorm(3, 0.1, 0.75, 1), 1, 4, 2)} },
	"NewCrossEntropyLoss": func() []use {
		return []use{against(nn.NewCrossEntropyLoss(op.CrossEntropyOptions{LabelSmoothing: 0.1}), op.Randn(3, 4), whole(1, 3, 0))}
	},
	"NewNLLLoss": func() []use {
		return []use{against(nn.NewNLLLoss(op.CrossEntropyOptions{Weight: positive(4)}), op.Randn(3, 4), whole(1, 3, 0))}
	},
	"NewBCELoss": func() []use { return []use{against(nn.NewBCELoss(op.BCEOptions{}), positive(2, 3), positive(2, 3))} },
	"NewBCEWithLogitsLoss": func() []use {
		return []use{against(nn.NewBCEWithLogitsLoss(op.BCEOptions{PosWeight: positive(3)}), op.Randn(2, 3), positive(2, 3))}
	},
	"NewMSELoss":        func() []use { return []use{against(nn.NewMSELoss("none"), op.Randn(2, 3), op.Randn(2, 3))} },
	"NewL1Loss":         func() []use { return []use{against(nn.NewL1Loss("sum"), op.Randn(2, 3), op.Randn(2, 3))} },
	"NewSmoothL1Loss":   func() []use { return []use{against(nn.NewSmoothL1Loss("mean", 0.8), op.Randn(2, 3), op.Randn(2, 3))} },
	"NewHuberLoss":      func() []use { return []use{against(nn.NewHuberLoss("mean", 0.8), op.Randn(2, 3), op.Randn(2, 3))} },
	"NewKLDivLoss":      func() []use { return []use{against(nn.NewKLDivLoss("sum", false), op.Randn(2, 3), positive(2, 3))} },
	"NewSoftMarginLoss": func() []use { return []use{against(nn.NewSoftMarginLoss("mean"), op.Randn(3), signs(1, -1, 1))} },
	"NewMultiLabelMarginLoss": func() []use {
		return []use{against(nn.NewMultiLabelMarginLoss("mean"), op.Randn(4), whole(3, 0, -1, 1))}
	},
	"NewMultiLabelSoftMarginLoss": func() []use {
		return []use{against(nn.NewMultiLabelSoftMarginLoss(positive(3), "mean"), op.Randn(2, 3), positive(2, 3))}
	},
	"NewMultiMarginLoss": func() []use {
		return []use{against(nn.NewMultiMarginLoss(op.MultiMarginOptions{}), op.Randn(3, 4), whole(1, 3, 0))}
	},
	"NewHingeEmbeddingLoss": func() []use {
		return []use{against(nn.NewHingeEmbeddingLoss(1, "mean"), op.Randn(3), signs(1, -1, -1))}
	},
	"NewPoissonNLLLoss": func() []use {
		return []use{against(nn.NewPoissonNLLLoss(op.PoissonNLLOptions{Full: true}), op.Randn(3), signs(1, 4, 2))}
	},
	"NewTripletMarginLoss": func() []use {
		return []use{among(nn.NewTripletMarginLoss(op.TripletMarginOptions{}), op.Randn(2, 3), op.Randn(2, 3), op.Randn(2, 3))}
	},
	"NewCosineEmbeddingLoss": func() []use {
		return []use{among(nn.NewCosineEmbeddingLoss(0.1, "mean"), op.Randn(2, 3), op.Randn(2, 3), signs(1, -1))}
	},
	"NewMarginRankingLoss": func() []use {
		return []use{among(nn.NewMarginRankingLoss(0.1, "mean"), op.Randn(2), op.Randn(2), signs(1, -1))}
	},
	"NewGaussianNLLLoss": func() []use {
		return []use{among(nn.NewGaussianNLLLoss(true, 1e-6, "mean"), op.Randn(2, 3), op.Randn(2, 3), positive(2, 3))}
	},
	"NewSequential": func() []use {
		return []use{of(nn.NewSequential(nn.NewLinear(3, 2, nn.LinearOptions{}), nn.NewTanh(), nn.NewLinear(2, 2, nn.LinearOptions{})), 2, 3)}
	},
	"NewModuleList": func() []use {
		l := nn.NewModuleList(nn.NewLinear(3, 2, nn.LinearOptions{}), nn.NewLinear(3, 2, nn.LinearOptions{}))
		return []use{several(l, func(in []*core.Tensor) []*core.Tensor {
			return []*core.Tensor{op.Mul(l.Items[0].Forward(in[0]), l.Items[1].Forward(in[0]))}
		}, op.Randn(2, 3))}
	},
	"NewModuleDict": func() []use {
		d := nn.NewModuleDict(map[string]*nn.Linear{"a": nn.NewLinear(3, 2, nn.LinearOptions{})})
		return []use{several(d, func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{d.Items["a"].Forward(in[0])} }, op.Randn(2, 3))}
	},
}

// constructors returns the names of the package's exported functions that begin with New.
func constructors(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "New") {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}

// TestGradientsOfModules compares the gradients of parameters and inputs of what every constructor makes with central
// differences, in float64.
func TestGradientsOfModules(t *testing.T) {
	coretest.SkipUnderRace(t)
	all := constructors(t)
	for name := range uses {
		require.Contains(t, all, name)
	}
	for _, name := range all {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, uses, name, "a constructor without a use in this test")
			t.Parallel()
			ctx := core.NewRankContext(0, nil)
			defer ctx.Free()
			require.NoError(t, ctx.SetDefaultDType(core.Float64))
			core.WithContext(ctx, func() {
				core.Tidy(func() {
					core.ManualSeed(5)
					for i, u := range uses[name]() {
						require.NoError(t, nn.Err(u.module))
						var leaves []*core.Tensor
						for _, x := range u.inputs {
							leaves = append(leaves, x.Detach().SetRequiresGrad(x.DType().IsFloat() && !isTarget(u, x)))
						}
						own := nn.Parameters(u.module)
						n := len(leaves)
						err := autograd.Check(func(in []*core.Tensor) []*core.Tensor {
							core.ManualSeed(6)
							return u.call(in[:n])
						}, append(leaves, own...), 1e-6, 1e-6, 1e-5)
						require.NoError(t, err, "use %d", i)
					}
				})
			})
		})
	}
}

// isTarget reports whether x is what a loss compares with, which need not have a gradient.
func isTarget(u use, x *core.Tensor) bool {
	switch u.module.(type) {
	case *nn.Loss:
		return x != u.inputs[0]
	case *nn.TripleLoss:
		return x == u.inputs[2] && x.Dim() == 1
	}
	return false
}
