package main

import (
	"fmt"
	"os"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/blas"
	"github.com/plait-ml/plait/core/op"
)

// matmuls compares our product, by whatever engine a program gets by default, with OpenBLAS on its own threads.
func matmuls(b *bench) {
	library := os.Getenv("PLAIT_BLAS")
	if library == "" || library == "none" || library == "auto" {
		library = "openblas"
	}
	for _, name := range []string{"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"} { // the library's own choice of kernels
		if b.err = os.Unsetenv(name); b.err != nil {
			return
		}
	}
	use := func(engine string) error {
		if err := os.Setenv("PLAIT_BLAS", engine); err != nil {
			return err
		}
		blas.SetPath("") // makes the next product choose again
		return blas.Load()
	}
	defer use("auto")
	for _, n := range []int{256, 512, 1024, 2048} {
		x, y, z := op.Rand(n, n), op.Rand(n, n), op.Rand(n, n)
		ours := func() error {
			out := op.MatMul(x, y)
			defer out.Release()
			return out.Err()
		}
		theirs := func() error {
			blas.Alone(b.threads, false, false, false, n, n, n, data(x), data(y), data(z))
			return nil
		}
		best := [2]float64{1e9, 1e9}
		for range rounds {
			if b.err = use(library); b.err != nil {
				return
			}
			if info, _ := blas.Info(); info.Path == "" {
				b.err = fmt.Errorf("found no OpenBLAS to compare with; set PLAIT_BLAS to its path, or run make bench")
				return
			}
			best[1] = min(best[1], b.time(theirs, b.repeats(theirs)))
			time.Sleep(150 * time.Millisecond) // the library's threads spin for a tenth of a second after a call
			if b.err = use("auto"); b.err != nil {
				return
			}
			best[0] = min(best[0], b.time(ours, b.repeats(ours)))
		}
		flops := 2 * float64(n) * float64(n) * float64(n)
		b.add(fmt.Sprint(n, " x ", n), flops/best[0]/1e9, flops/best[1]/1e9, 0.95)
		for _, t := range []*core.Tensor{x, y, z} {
			t.Release()
		}
	}
}
