//go:build cgo && linux && amd64

package gpu_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/internal/hostcuda"
)

// hostDevice opens a device of the kind hostcuda: the host in the place of a GPU that takes CUDA C++.
func hostDevice(t *testing.T, index int) *gpu.Device {
	t.Helper()
	if err := hostcuda.Missing(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	d, err := core.OpenDevice(fmt.Sprint("hostcuda:", index))
	require.NoError(t, err)
	return d.(*gpu.Device)
}

// A hostCase is a sample that runs on the host in the place of a GPU.
type hostCase struct {
	row    *op.Row
	sample op.Sample
	dtype  core.DType
	number int
}

func (c hostCase) String() string { return fmt.Sprintf("%s/%d/%v", c.row.Name, c.number, c.dtype) }

// hostTolerance is the tolerance of comparisons by dtype.
var hostTolerance = map[core.DType]float64{
	core.Float64: 1e-12, core.Float32: 4e-6, core.Float16: 2e-3, core.BFloat16: 1.6e-2, core.Int64: 0, core.Int32: 0, core.Uint8: 0, core.Bool: 0, core.Int8: 0, core.Int16: 0, core.Uint16: 0, core.Uint32: 0,
}

// hostCases lists the first sample of each row in float32 and in one other dtype, or with -all every sample, and the first in every dtype.
func hostCases() (list []hostCase) {
	for n, r := range op.Rows() {
		for i, s := range r.Samples {
			if i > 0 && !*all {
				break
			}
			list = append(list, hostCase{r, s, core.Float32, i})
			if i > 0 {
				continue
			}
			dtypes := s.DTypes
			if dtypes == nil {
				dtypes = []core.DType{core.Float16, core.Float64, core.BFloat16}
			}
			dtypes = slices.DeleteFunc(slices.Clone(dtypes), func(d core.DType) bool { _, known := hostTolerance[d]; return !known || d == core.Float32 })
			for j, d := range dtypes {
				if *all || j == n%len(dtypes) {
					list = append(list, hostCase{r, s, d, i})
				}
			}
		}
	}
	return list
}

// TestRegistryInCUDA compares operations with the CPU where their programs in CUDA C++ run on the host: some of the registry's, or with -all
// all of them, forwards and backwards.
func TestRegistryInCUDA(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles many programs")
	}
	if *under != "" {
		t.Skip("needs no GPU")
	}
	devices := []*gpu.Device{hostDevice(t, gpu.HostForward), hostDevice(t, gpu.HostBackward)}
	cases := hostCases()
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	if *all {
		slices.SortStableFunc(cases, func(a, b hostCase) int { return cmp.Compare(a.number, b.number) })
	} else {
		cases = cases[:len(cases)/4]
	}
	number := 0
	for some := range slices.Chunk(cases, 100) {
		compileOnHost(t, some)
		for _, c := range some {
			for j, d := range devices {
				if *all || j == number%2 {
					t.Run(fmt.Sprintf("%v/%v", c, d), func(t *testing.T) { c.compare(t, d) })
				}
			}
			number++
		}
	}
	reportMissing(t)
}

// compare runs the case on a device and on the CPU.
func (c hostCase) compare(t *testing.T, d *gpu.Device) {
	ctx := core.NewRankContext(0, nil)
	defer ctx.Free()
	core.WithContext(ctx, func() {
		core.Tidy(func() { compareOn(t, d, c.row, c.sample, c.dtype, c.number%2 == 1, hostTolerance[c.dtype]) })
	})
	d.EmptyCache() // so that the memory of the next case is new
}

// compileOnHost compiles the programs of many cases at once, which takes less time than one after the other. Programs that follow from
// values are compiled when they are needed.
func compileOnHost(t *testing.T, cases []hostCase) {
	idle := hostDevice(t, gpu.HostIdle)
	before := len(gpu.HostPrograms(idle))
	for _, c := range cases {
		ctx := core.NewRankContext(0, nil)
		core.WithContext(ctx, func() {
			core.Tidy(func() { runOnFakeDevice(t, c.row, c.sample, idle, c.dtype, c.number) })
		})
		ctx.Free()
		idle.EmptyCache()
	}
	require.NoError(t, idle.Synchronize())
	assert.NoError(t, hostcuda.Compile(gpu.HostPrograms(idle)[before:]))
}
