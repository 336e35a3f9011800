package bind

import (
	"github.com/plait-ml/plait/core/cpu/blas"
	"github.com/plait-ml/plait/core/cpu/gemm"
)

// BlasPrefer gives the path of an OpenBLAS to prefer over the system's, before the first matrix product; it does not load
// it. Processors with AVX2 use built-in kernels instead, unless the environment variable PLAIT_BLAS says otherwise.
func BlasPrefer(path string) Status {
	blas.SetPath(path)
	return 0
}

// BlasName says in a line what computes matrix products on CPU devices, and decides it if that is not done yet; it
// returns the reason where PLAIT_BLAS names a library that cannot be used.
//
//plait:waits
func BlasName() string {
	l, err := blas.Info()
	if err != nil {
		return err.Error()
	}
	return l.String()
}

// CPUInstructions names the newest instructions that kernels of CPU devices use: "amx", "avx512_bf16", "avx512", "avx2" or
// "baseline".
func CPUInstructions() string { return gemm.Current().String() }
