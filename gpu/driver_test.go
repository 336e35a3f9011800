package gpu_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/crosscheck"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// TestEveryKernelRunsOnTheFakeDriver runs every op and its derivative on a fake driver that computes nothing. It checks that
// kernels depend on nothing but the driver's interface.
func TestEveryKernelRunsOnTheFakeDriver(t *testing.T) {
	opened, err := core.OpenDevice("fakegpu")
	require.NoError(t, err)
	d := opened.(*gpu.Device)
	gpu.Mark(d)
	for n, r := range op.Rows() {
		if !coretest.Drawn(n) {
			continue
		}
		for i, s := range r.Samples {
			if i > 0 && testing.Short() {
				break
			}
			ctx := core.NewRankContext(0, nil)
			core.WithContext(ctx, func() {
				core.Tidy(func() { runOnFakeDevice(t, r, s, d, core.Float32, i) })
			})
			ctx.Free()
		}
	}
	require.NoError(t, d.Synchronize())
	programs, dispatches := gpu.Ran(d)
	require.NotZero(t, programs)
	require.Greater(t, dispatches, programs, "programs are used again")
	owned := regexp.MustCompile(`\bfn |\bstruct |var<|@\w+|Barrier\(|\batomic\w+[<(]|\barray<`)
	for _, text := range gpu.OwnTexts(d) {
		if found := owned.FindString(text); found != "" {
			require.Fail(t, "a program declares something itself", "%q is for a method of shader.Text or shader.Builder, in\n%s", found, text)
		}
	}
}

// runOnFakeDevice runs a sample and its derivative on a device whose results are meaningless.
func runOnFakeDevice(t *testing.T, r *op.Row, s op.Sample, d *gpu.Device, dtype core.DType, n int) {
	m := &crosscheck.Maker{Rand: crosscheck.Rand(r.Name, n), DType: dtype, Sliced: n%2 == 1, Device: d}
	_, args := m.Arguments(s)
	context := core.CurrentContext()
	context.SetDefaultDevice(d)
	defer context.SetDefaultDevice(nil)
	var roots, seeds []*core.Tensor
	for _, y := range r.Call(args...) {
		if err := y.Err(); err != nil {
			requireValueError(t, r, err)
			return
		}
		if y.RequiresGrad() {
			roots, seeds = append(roots, y), append(seeds, op.OnesLike(y, op.TensorOptions{}))
		}
	}
	var inputs []*core.Tensor
	for _, x := range m.There {
		if x.RequiresGrad() {
			inputs = append(inputs, x)
		}
	}
	if r.NoGrad == "" && len(roots) > 0 && len(inputs) > 0 {
		if _, err := autograd.Grad(roots, inputs, seeds, autograd.Options{AllowUnused: true}); err != nil {
			requireValueError(t, r, err)
		}
	}
	if err := d.Synchronize(); err != nil {
		requireValueError(t, r, err)
	}
}

// requireValueError requires that err is about values, which are arbitrary on the fake device, or about float64.
func requireValueError(t *testing.T, r *op.Row, err error) {
	t.Helper()
	var e *core.Error
	require.ErrorAs(t, err, &e, r.Name)
	require.NotContains(t, []core.Kind{core.DeviceError, core.StateError}, e.Kind, "%s: %v", r.Name, err)
}
