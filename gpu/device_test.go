package gpu_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/cuda/nvrtc"
	"github.com/plait-ml/plait/gpu/shader"
)

func TestMain(m *testing.M) {
	if os.Getenv("PLAIT_TEST_ENVIRONMENT") == "" {
		os.Setenv("PLAIT_SOFTWARE_GPU", "8")
	}
	if _, set := os.LookupEnv("PLAIT_TUNE"); !set {
		os.Setenv("PLAIT_TUNE", "0") // results must not depend on the user's tuning cache
	}
	flag.Parse()
	if *under != "" {
		os.Exit(runUnder(*under, m))
	}
	if !*translate {
		os.Exit(m.Run())
	}
	programs := gpu.RecordPrograms()
	code := m.Run()
	for _, text := range programs() {
		if _, err := nvrtc.Compile(shader.CUDA{}.Translate(text), "program", 90); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s\n", err, text)
			code = 1
		}
	}
	fmt.Printf("%d programs in CUDA C++\n", len(programs()))
	os.Exit(code)
}

var translate = flag.Bool("translate", false, "compile each program that the tests have run in CUDA C++ too, at the end")

var under = flag.String("under", "", "run on a hardware GPU under this driver, cuda or webgpu, and fail if no kernel has run")

// runUnder runs the tests on a hardware GPU under the named driver. It returns 3 if there is none, and fails if it has launched no kernel.
func runUnder(name string, m *testing.M) (code int) {
	opened, err := core.OpenDevice("gpu")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	d := opened.(*gpu.Device)
	if d.Software() || d.Driver() != name {
		fmt.Fprintf(os.Stderr, "%v (%s) runs under %s (software: %v), want a GPU of hardware under %s\n", d, d.Name(), d.Driver(), d.Software(), name)
		return 3
	}
	code = m.Run()
	ran := d.Traffic().Dispatches
	fmt.Printf("%v (%s) has run %d kernels under %s\n", d, d.Name(), ran, name)
	if ran == 0 {
		return 1
	}
	return code
}

var onHost = flag.String("host", "", "run on the host in the place of a GPU that takes CUDA C++: hostcuda, or in the opposite order hostcuda:1")

// device returns the GPU that tests run on: the machine's, or lavapipe.
func device(t testing.TB) *gpu.Device {
	t.Helper()
	if *onHost != "" {
		d, err := core.OpenDevice(*onHost)
		require.NoError(t, err)
		return d.(*gpu.Device)
	}
	if gpu.Count() == 0 {
		const line = "no GPU to test on (%s); apt-get install libvulkan1 mesa-vulkan-drivers brings one made of software"
		if os.Getenv("CI") == "true" {
			t.Fatalf(line, gpu.Reason())
		}
		t.Skipf(line, gpu.Reason())
	}
	d, err := core.OpenDevice("gpu")
	require.NoError(t, err)
	return d.(*gpu.Device)
}

// sized returns large for GPUs of hardware and with -all, and otherwise small, because a GPU made of software takes seconds for large.
func sized[T any](t testing.TB, large, small T) T {
	t.Helper()
	if *all || !device(t).Software() {
		return large
	}
	return small
}

func TestUploadAndDownload(t *testing.T) {
	d := device(t)
	s := d.NewStream(0)
	defer s.Close()
	rng := rand.NewChaCha8([32]byte{1})
	for _, size := range []int{1, 2, 3, 4, 5, 100, 16 << 10, 16<<10 + 3, 100_001, 40 << 20} {
		for offset := range 4 {
			if size > 1<<20 && offset == coretest.Rounds(4) {
				break
			}
			m, err := s.Alloc(size + 16)
			require.NoError(t, err)
			all := make([]byte, size+16)
			rng.Read(all)
			s.Upload(m, 0, all)
			part := make([]byte, size)
			rng.Read(part)
			s.Upload(m, offset+1, part)
			copy(all[offset+1:], part)
			clear(part) // the stream has its own copy
			got := make([]byte, size+16)
			s.Download(got, m, 0)
			require.NoError(t, s.TakeError())
			require.True(t, string(all) == string(got), "%d bytes at %d", size, offset)
			got = got[:size]
			s.Download(got, m, offset)
			require.True(t, string(all[offset:offset+size]) == string(got), "%d bytes from %d", size, offset)
			s.Free(m)
		}
	}
}

func TestToDevice(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		x := core.FromSlice([]float64{1, 2, 3, 4, 5, 6}, 2, 3)
		y := op.ToDevice(x, d)
		require.Equal(t, core.Device(d), y.Device())
		v, err := core.Values[float64](op.Transpose(y, 0, 1))
		require.NoError(t, err)
		require.Equal(t, []float64{1, 4, 2, 5, 3, 6}, v)
	})
}
