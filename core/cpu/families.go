//go:build cgo

package cpu

// Every kernel family registers its kernels when it is imported.
import (
	_ "github.com/plait-ml/plait/core/cpu/kernel/attention"
	_ "github.com/plait-ml/plait/core/cpu/kernel/combine"
	_ "github.com/plait-ml/plait/core/cpu/kernel/conv"
	_ "github.com/plait-ml/plait/core/cpu/kernel/copying"
	_ "github.com/plait-ml/plait/core/cpu/kernel/creation"
	_ "github.com/plait-ml/plait/core/cpu/kernel/distance"
	_ "github.com/plait-ml/plait/core/cpu/kernel/dropout"
	_ "github.com/plait-ml/plait/core/cpu/kernel/elementwise"
	_ "github.com/plait-ml/plait/core/cpu/kernel/fft"
	_ "github.com/plait-ml/plait/core/cpu/kernel/indexing"
	_ "github.com/plait-ml/plait/core/cpu/kernel/interpolate"
	_ "github.com/plait-ml/plait/core/cpu/kernel/joining"
	_ "github.com/plait-ml/plait/core/cpu/kernel/linalg"
	_ "github.com/plait-ml/plait/core/cpu/kernel/loss"
	_ "github.com/plait-ml/plait/core/cpu/kernel/matmul"
	_ "github.com/plait-ml/plait/core/cpu/kernel/norm"
	_ "github.com/plait-ml/plait/core/cpu/kernel/optim"
	_ "github.com/plait-ml/plait/core/cpu/kernel/padding"
	_ "github.com/plait-ml/plait/core/cpu/kernel/pooling"
	_ "github.com/plait-ml/plait/core/cpu/kernel/random"
	_ "github.com/plait-ml/plait/core/cpu/kernel/rearrangement"
	_ "github.com/plait-ml/plait/core/cpu/kernel/recurrent"
	_ "github.com/plait-ml/plait/core/cpu/kernel/reduction"
	_ "github.com/plait-ml/plait/core/cpu/kernel/scan"
	_ "github.com/plait-ml/plait/core/cpu/kernel/softmax"
	_ "github.com/plait-ml/plait/core/cpu/kernel/sorting"
	_ "github.com/plait-ml/plait/core/cpu/kernel/sparse"
	_ "github.com/plait-ml/plait/core/cpu/kernel/special"
)
