package gpu

// Each family of kernels registers itself when it is imported.
import (
	_ "github.com/plait-ml/plait/gpu/kernel/attention"
	_ "github.com/plait-ml/plait/gpu/kernel/conv"
	_ "github.com/plait-ml/plait/gpu/kernel/copying"
	_ "github.com/plait-ml/plait/gpu/kernel/creation"
	_ "github.com/plait-ml/plait/gpu/kernel/dropout"
	_ "github.com/plait-ml/plait/gpu/kernel/elementwise"
	_ "github.com/plait-ml/plait/gpu/kernel/indexing"
	_ "github.com/plait-ml/plait/gpu/kernel/interpolate"
	_ "github.com/plait-ml/plait/gpu/kernel/joining"
	_ "github.com/plait-ml/plait/gpu/kernel/linalg"
	_ "github.com/plait-ml/plait/gpu/kernel/loss"
	_ "github.com/plait-ml/plait/gpu/kernel/matmul"
	_ "github.com/plait-ml/plait/gpu/kernel/norm"
	_ "github.com/plait-ml/plait/gpu/kernel/optim"
	_ "github.com/plait-ml/plait/gpu/kernel/padding"
	_ "github.com/plait-ml/plait/gpu/kernel/pooling"
	_ "github.com/plait-ml/plait/gpu/kernel/random"
	_ "github.com/plait-ml/plait/gpu/kernel/rearrangement"
	_ "github.com/plait-ml/plait/gpu/kernel/recurrent"
	_ "github.com/plait-ml/plait/gpu/kernel/reduction"
	_ "github.com/plait-ml/plait/gpu/kernel/scan"
	_ "github.com/plait-ml/plait/gpu/kernel/softmax"
	_ "github.com/plait-ml/plait/gpu/kernel/sorting"
	_ "github.com/plait-ml/plait/gpu/kernel/special"
)
