package blas_test

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/blas"
	"github.com/plait-ml/plait/core/cpu/gemm"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// choose sets PLAIT_BLAS for the rest of the test and loads the library again.
func choose(t *testing.T, setting string) (blas.Library, error) {
	t.Setenv("PLAIT_BLAS", setting)
	blas.SetPath("")
	t.Cleanup(func() {
		require.NoError(t, os.Unsetenv("PLAIT_BLAS"))
		blas.SetPath("")
		require.NoError(t, blas.Load())
	})
	return blas.Info()
}

// needLibrary loads OpenBLAS, or skips the test if there is none.
func needLibrary(t *testing.T) blas.Library {
	l, err := choose(t, "openblas")
	require.NoError(t, err)
	if l.Path == "" {
		t.Skip("no BLAS library on this machine")
	}
	return l
}

func TestNone(t *testing.T) {
	l, err := choose(t, "none")
	require.NoError(t, err)
	require.Empty(t, l.Path)
	require.Equal(t, gemm.Current().String(), l.Core)
	require.Equal(t, "built-in kernels ("+l.Core+")", l.String())
}

func TestPathThatIsNoLibrary(t *testing.T) {
	_, err := choose(t, "/nonexistent/libopenblas.so")
	require.ErrorContains(t, err, "PLAIT_BLAS: cannot use /nonexistent/libopenblas.so as a BLAS library: ")
	file := filepath.Join(t.TempDir(), "empty.so")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = choose(t, file)
	require.ErrorContains(t, err, "cannot use "+file)
	_, err = choose(t, "libm.so.6")
	require.ErrorContains(t, err, "no cblas_sgemm and cblas_dgemm in it")
}

// TestLapackIsFoundWhateverComputesProducts checks that the library is looked for where products are the built-in kernels' too.
func TestLapackIsFoundWhateverComputesProducts(t *testing.T) {
	l := needLibrary(t)
	for setting, want := range map[string]bool{"none": false, "": true, "auto": true, "openblas": true, l.Path: true} {
		_, err := choose(t, setting)
		require.NoError(t, err)
		lapack, err := blas.Lapack()
		require.NoError(t, err)
		require.Equal(t, want, lapack != nil, "PLAIT_BLAS=%s", setting)
	}
	_, err := choose(t, "/nonexistent/libopenblas.so")
	require.Error(t, err)
	_, err = blas.Lapack()
	require.ErrorContains(t, err, "PLAIT_BLAS: cannot use /nonexistent/libopenblas.so")
}

func TestVirtualEnvironmentIsSearched(t *testing.T) {
	env := t.TempDir()
	lib := filepath.Join(env, "lib", "python3.11", "site-packages", "scipy_openblas32", "lib")
	require.NoError(t, os.MkdirAll(lib, 0o700))
	path := filepath.Join(lib, "libscipy_openblas.so")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	t.Setenv("VIRTUAL_ENV", env)
	require.Equal(t, path, blas.Candidates()[0])
}

func TestPreferredPathComesFirst(t *testing.T) {
	l := needLibrary(t)
	t.Setenv("VIRTUAL_ENV", "")
	blas.SetPath(l.Path)
	got, err := blas.Info()
	require.NoError(t, err)
	require.Equal(t, l.Path, got.Path)
}

func TestManyGoroutinesLoad(t *testing.T) {
	needLibrary(t)
	blas.SetPath("")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := blas.Load(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

type number interface{ float32 | float64 }

// products runs one product of every layout, with and without bias and beta, and returns the results.
func products[E number](t *testing.T, dtype core.DType, m, n, k int, workers unsafe.Pointer) [][]E {
	var all [][]E
	for mask := range 32 {
		r := rand.New(rand.NewPCG(uint64(mask), 3))
		random := func(size int) []E {
			v := make([]E, size)
			for i := range v {
				v[i] = E(r.Float64() - 0.5)
			}
			return v
		}
		pad := mask & 16 >> 4 * 3
		a, b, c, bias := random((m+pad)*(k+pad)), random((k+pad)*(n+pad)), random(m*(n+pad)), random(n)
		var pin runtime.Pinner
		pin.Pin(&a[0])
		pin.Pin(&b[0])
		pin.Pin(&c[0])
		pin.Pin(&bias[0])
		p := gemm.Product{M: m, N: n, K: k, In: int(dtype), Out: int(dtype), Alpha: 1,
			A: gemm.Matrix{Data: unsafe.Pointer(&a[0]), Row: k + pad, Col: 1},
			B: gemm.Matrix{Data: unsafe.Pointer(&b[0]), Row: n + pad, Col: 1},
			C: gemm.Matrix{Data: unsafe.Pointer(&c[0]), Row: n + pad, Col: 1}}
		if mask&1 != 0 {
			p.A.Row, p.A.Col = 1, m+pad
		}
		if mask&2 != 0 {
			p.B.Row, p.B.Col = 1, k+pad
		}
		if mask&4 != 0 {
			p.Beta, p.Alpha = 0.5, -2
		}
		if mask&8 != 0 {
			p.Bias, p.BiasStep = unsafe.Pointer(&bias[0]), 1
		}
		var memory kernel.Context
		require.NoError(t, p.Run(workers, &memory))
		memory.FreeScratch()
		pin.Unpin()
		all = append(all, c)
	}
	return all
}

func requireClose[E number](t *testing.T, want, got [][]E, tolerance float64) {
	for mask := range want {
		for i, x := range want[mask] {
			if !(math.Abs(float64(x-got[mask][i])) <= tolerance) {
				require.Failf(t, "products differ", "case %d element %d: built in %v, library %v", mask, i, x, got[mask][i])
			}
		}
	}
}

func TestLibraryAgreesWithTheBuiltInKernels(t *testing.T) {
	for _, s := range [][3]int{{50, 60, 70}, {300, 200, 150}, {1, 300, 300}, {64, 500, 90}} {
		_, err := choose(t, "none")
		require.NoError(t, err)
		want32, want64 := products[float32](t, core.Float32, s[0], s[1], s[2], nil), products[float64](t, core.Float64, s[0], s[1], s[2], nil)
		needLibrary(t)
		workers := pool.New(2)
		requireClose(t, want32, products[float32](t, core.Float32, s[0], s[1], s[2], workers.Ptr()), 2e-5)
		requireClose(t, want64, products[float64](t, core.Float64, s[0], s[1], s[2], workers.Ptr()), 1e-13)
		workers.Close()
	}
}

func TestLibraryGivesTheSameBitsOnAnyPool(t *testing.T) {
	needLibrary(t)
	want := products[float32](t, core.Float32, 300, 260, 200, nil)
	for _, threads := range []int{2, 5} {
		workers := pool.New(threads)
		require.Equal(t, want, products[float32](t, core.Float32, 300, 260, 200, workers.Ptr()))
		workers.Close()
	}
}
