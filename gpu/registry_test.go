package gpu_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/crosscheck"
	"github.com/plait-ml/plait/core/op"
)

// missing collects the ops that the device lacks a kernel for.
var missing struct {
	sync.Mutex
	ops map[string]string
}

// noteMissing reports whether err says that the device lacks a kernel, and records the op.
func noteMissing(r *op.Row, err error) bool {
	var e *core.Error
	if err == nil || !errors.As(err, &e) || e.Kind != core.NotImplemented {
		return false
	}
	missing.Lock()
	defer missing.Unlock()
	if missing.ops == nil {
		missing.ops = map[string]string{}
	}
	missing.ops[r.Name] = err.Error()
	return true
}

// equal returns an error if a result differs from that of the CPU.
func equal(t *testing.T, want, got *core.Tensor, tolerance float64, what string) error {
	t.Helper()
	if err := crosscheck.Equal(want, got, tolerance); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// compare runs a sample on the CPU and on the GPU and compares results and gradients.
func compare(t *testing.T, r *op.Row, s op.Sample, d core.DType, sliced bool, tolerance float64) {
	compareOn(t, device(t), r, s, d, sliced, tolerance)
}

// compareOn is compare for a given GPU.
func compareOn(t *testing.T, g core.Device, r *op.Row, s op.Sample, d core.DType, sliced bool, tolerance float64) {
	m := &crosscheck.Maker{Rand: crosscheck.Rand(r.Name+s.Name, 1), DType: d, Sliced: sliced, Device: g}
	if err := crosscheck.Compare(m, r, s, tolerance); err != nil && !noteMissing(r, err) {
		t.Fatal(err)
	}
}

var all = flag.Bool("all", false, "run every sample of the registry, not two of each row, and more and larger programs")

// TestRegistryInOtherDTypes compares every op with the CPU in 16-bit dtypes and integers: in one dtype of each op in turn, or in
// all.
func TestRegistryInOtherDTypes(t *testing.T) {
	device(t)
	if testing.Short() {
		t.Skip("compiles many programs")
	}
	precision := map[core.DType]float64{core.Float16: 2e-3, core.BFloat16: 1.6e-2, core.Int64: 0, core.Int32: 0, core.Uint8: 0, core.Bool: 0, core.Int8: 0, core.Int16: 0, core.Uint16: 0, core.Uint32: 0}
	for n, r := range op.Rows() {
		if len(r.Samples) == 0 {
			continue
		}
		s := r.Samples[0]
		dtypes := s.DTypes
		if dtypes == nil {
			dtypes = []core.DType{core.Float16, core.BFloat16}
		}
		dtypes = slices.DeleteFunc(slices.Clone(dtypes), func(d core.DType) bool { _, known := precision[d]; return !known })
		for i, d := range dtypes {
			if !*all && i != n%len(dtypes) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", r.Name, d), func(t *testing.T) {
				ctx := core.NewRankContext(0, nil)
				defer ctx.Free()
				core.WithContext(ctx, func() {
					core.Tidy(func() { compare(t, r, s, d, n%2 == 0, precision[d]) })
				})
			})
		}
	}
}

// TestRegistryInFloat64 compares every op that takes float64 with the CPU, on a GPU that computes in it.
func TestRegistryInFloat64(t *testing.T) {
	if !device(t).Float64() {
		t.Skip("the GPU's language has no float64")
	}
	compareRegistry(t, core.Float64, 1e-12)
	reportMissing(t)
}

// TestRegistry compares every op of the registry with the CPU.
func TestRegistry(t *testing.T) {
	device(t)
	compareRegistry(t, core.Float32, crosscheck.Float32Tolerance)
	reportMissing(t)
}

// reportMissing lists the ops that the device refused, which must be because of float64 or of a kernel that GPUs do without.
func reportMissing(t *testing.T) {
	var list []string
	for name, why := range missing.ops {
		list = append(list, name+": "+why)
		if !slices.ContainsFunc(lacking, func(k core.KernelID) bool { return strings.HasSuffix(why, fmt.Sprintf("no kernel %q", k.String())) }) {
			require.Contains(t, why, "float64 is not supported on", "%s: docs/gpu-kernels.md says how to write a kernel", name)
		}
	}
	sort.Strings(list)
	t.Logf("%d operations without what they need:\n%s", len(list), strings.Join(list, "\n"))
}

// compareRegistry compares every op of the registry with the CPU in a floating-point dtype.
func compareRegistry(t *testing.T, d core.DType, tolerance float64) {
	for n, r := range op.Rows() {
		if !coretest.Drawn(n) {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			for i, s := range r.Samples {
				if d == core.Float64 && s.DTypes != nil && !slices.Contains(s.DTypes, d) {
					continue
				}
				// The middle sample of one row, the last of the next.
				other := (len(r.Samples) - 1) / (2 - n%2)
				if !*all && i != 0 && (testing.Short() || i != other) {
					continue
				}
				name := s.Name
				if name == "" {
					name = fmt.Sprint(i)
				}
				t.Run(name, func(t *testing.T) {
					ctx := core.NewRankContext(0, nil)
					defer ctx.Free()
					core.WithContext(ctx, func() {
						core.Tidy(func() { compare(t, r, s, d, i%2 == 1, tolerance) })
					})
				})
			}
		})
	}
}
