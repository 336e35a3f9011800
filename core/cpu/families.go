package cpu

// The families of kernels, each of which registers itself.
import (
	_ "github.com/plait-ml/plait/core/cpu/kernel/conv"
	_ "github.com/plait-ml/plait/core/cpu/kernel/copying"
	_ "github.com/plait-ml/plait/core/cpu/kernel/random"
	_ "github.com/plait-ml/plait/core/cpu/kernel/reduce"
)
