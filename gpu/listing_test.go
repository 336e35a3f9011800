package gpu

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

// A listedDriver is a fake driver with a list of adapters.
type listedDriver struct {
	fakeDriver
	name, missing string
	adapters      []driver.Adapter
	broken        map[int]string // why adapters cannot be opened, by index
}

func (d *listedDriver) Name() string               { return d.name }
func (d *listedDriver) Missing() string            { return d.missing }
func (d *listedDriver) Adapters() []driver.Adapter { return d.adapters }

func (d *listedDriver) Open(index int) (driver.GPU, error) {
	if why := d.broken[index]; why != "" {
		return nil, errors.New(why)
	}
	return &fakeGPU{language: shader.WGSL{}, programs: map[string]int{}}, nil
}

// fakeAdapter returns an adapter with a UUID of one byte; 0 stands for an unknown one.
func fakeAdapter(index int, name string, vendor uint32, uuid byte) driver.Adapter {
	return driver.Adapter{Index: index, Name: name, Backend: "none", Vendor: vendor, UUID: [16]byte{15: uuid}}
}

// fakeDrivers returns the drivers of a machine with two GPUs of NVIDIA, in another order under WebGPU, an integrated GPU and a software
// adapter.
func fakeDrivers() (cuda, webgpu *listedDriver, both []driver.Driver) {
	cuda = &listedDriver{name: "cuda", adapters: []driver.Adapter{fakeAdapter(0, "N1", nvidia, 1), fakeAdapter(1, "N2", nvidia, 2)}}
	cuda.adapters[0].ComputeCapability, cuda.adapters[0].Multiprocessors = 90, 132
	webgpu = &listedDriver{name: "webgpu", adapters: []driver.Adapter{
		fakeAdapter(0, "I", 0x8086, 3), fakeAdapter(1, "N2", nvidia, 2), fakeAdapter(2, "N1", nvidia, 1), fakeAdapter(3, "S", 0x10005, 4),
	}}
	webgpu.adapters[2].Memory = 1 << 30
	webgpu.adapters[3].Software = true
	return cuda, webgpu, []driver.Driver{cuda, webgpu}
}

// opened describes each GPU of a listing once it is open, as "cuda:0 N1 under cuda; webgpu: cuda comes first", or says why it cannot be.
func opened(l *listing) []string {
	var out []string
	for i := range max(len(l.entries), 1) {
		d, err := l.open(i, 1<<20+i)
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		out = append(out, d.String()+" "+d.Name()+" under "+d.Driver()+"; "+d.DriverReason())
	}
	return out
}

func TestEachGPUIsListedOnce(t *testing.T) {
	const noUUID = "cuda: it lists no GPU with the UUID of this one"
	_, _, both := fakeDrivers()
	require.Equal(t, []string{
		"cuda:0 N1 under cuda; webgpu: cuda comes first", "cuda:1 N2 under cuda; webgpu: cuda comes first", "gpu:2 I under webgpu; " + noUUID,
	}, opened(newListing(both, settings{})))
	require.Equal(t, []string{"gpu:3 S under webgpu; " + noUUID, "gpu:4 S under webgpu; " + noUUID}, opened(newListing(both, settings{software: 2}))[3:])
}

func TestGPUsWithoutUUIDs(t *testing.T) {
	_, webgpu, both := fakeDrivers()
	for i := range webgpu.adapters {
		webgpu.adapters[i].UUID = [16]byte{}
	}
	require.Equal(t, []string{
		"cuda:0 N1 under cuda; webgpu: it lists no GPU with the UUID of this one", "cuda:1 N2 under cuda; webgpu: it lists no GPU with the UUID of this one",
		"gpu:2 I under webgpu; cuda: it lists no GPU with the UUID of this one",
	}, opened(newListing(both, settings{})), "CUDA's list counts for NVIDIA")
}

// TestGPUsThatCUDADoesNotList checks that a GPU of NVIDIA which CUDA does not list is too old for it, unless CUDA_VISIBLE_DEVICES hides it.
func TestGPUsThatCUDADoesNotList(t *testing.T) {
	cuda, _, both := fakeDrivers()
	cuda.adapters = cuda.adapters[1:]
	require.Equal(t, []string{"N2", "I", "N1"}, names(newListing(both, settings{})))
	require.Equal(t, []string{"N2", "I"}, names(newListing(both, settings{hidesCUDA: true})))
}

func names(l *listing) (out []string) {
	for _, e := range l.entries {
		out = append(out, e.adapters[0].Name)
	}
	return out
}

func TestWhatOneDriverKnowsHoldsUnderTheOther(t *testing.T) {
	_, _, both := fakeDrivers()
	for _, choice := range []driverChoice{{}, {byIndex: map[int]string{0: "webgpu"}}} {
		d, err := newListing(both, settings{drivers: choice}).open(0, 1<<20)
		require.NoError(t, err)
		a := d.Adapter()
		require.Equal(t, []int{90, 132, 1 << 30}, []int{a.ComputeCapability, a.Multiprocessors, a.Memory})
	}
}

func TestMissingDriver(t *testing.T) {
	cuda, webgpu, both := fakeDrivers()
	cuda.adapters, cuda.missing = nil, "libnvrtc.so.13 is not installed"
	require.Equal(t, []string{
		"gpu:0 I under webgpu; cuda: libnvrtc.so.13 is not installed", "gpu:1 N2 under webgpu; cuda: libnvrtc.so.13 is not installed",
		"gpu:2 N1 under webgpu; cuda: libnvrtc.so.13 is not installed",
	}, opened(newListing(both, settings{})))
	require.Equal(t, []string{"device: gpu:0 (I) cannot be opened: PLAIT_GPU_DRIVER asks for the driver cuda: libnvrtc.so.13 is not installed"},
		opened(newListing(both, settings{drivers: driverChoice{byIndex: map[int]string{0: "cuda"}}}))[:1])
	webgpu.adapters, webgpu.missing = nil, "the Vulkan loader, libvulkan.so.1, is not installed"
	require.Equal(t, []string{
		"device: there is no GPU: cuda: libnvrtc.so.13 is not installed; webgpu: the Vulkan loader, libvulkan.so.1, is not installed",
	}, opened(newListing(both, settings{})))
	_, _, both = fakeDrivers()
	both[1].(*listedDriver).adapters, both[1].(*listedDriver).missing = nil, "the Vulkan loader, libvulkan.so.1, is not installed"
	require.Equal(t, "cuda:0 N1 under cuda; webgpu: the Vulkan loader, libvulkan.so.1, is not installed", opened(newListing(both, settings{}))[0])
}

// TestDriverThatCannotOpen checks that a GPU runs under the next driver if the first turns out to be unable to open it.
func TestDriverThatCannotOpen(t *testing.T) {
	cuda, webgpu, both := fakeDrivers()
	cuda.broken = map[int]string{0: "CUDA_ERROR_OUT_OF_MEMORY"}
	l := newListing(both, settings{})
	require.Equal(t, "cuda", l.driverOf(0))
	require.Equal(t, "gpu:0 N1 under webgpu; cuda: CUDA_ERROR_OUT_OF_MEMORY", opened(l)[0])
	require.Equal(t, []string{"webgpu", "cuda", "webgpu", ""}, []string{l.driverOf(0), l.driverOf(1), l.driverOf(2), l.driverOf(3)})
	webgpu.broken = map[int]string{2: "no memory"}
	l = newListing(both, settings{})
	require.Equal(t, "device: cuda:0 (N1) cannot be opened: cuda: CUDA_ERROR_OUT_OF_MEMORY; webgpu: no memory", opened(l)[0])
	cuda.broken = nil
	require.Equal(t, "cuda:0 N1 under cuda; webgpu: cuda comes first", opened(l)[0], "the next attempt begins with the first driver again")
}

func TestDriverOfEveryGPU(t *testing.T) {
	cuda, _, both := fakeDrivers()
	const asked = "cuda: PLAIT_GPU_DRIVER asks for webgpu"
	require.Equal(t, []string{"gpu:0 I under webgpu; " + asked, "gpu:1 N2 under webgpu; " + asked, "gpu:2 N1 under webgpu; " + asked},
		opened(newListing(both, settings{drivers: driverChoice{every: "webgpu"}})))
	require.Equal(t, []string{"cuda:0 N1 under cuda; webgpu: PLAIT_GPU_DRIVER asks for cuda", "cuda:1 N2 under cuda; webgpu: PLAIT_GPU_DRIVER asks for cuda"},
		opened(newListing(both, settings{drivers: driverChoice{every: "cuda"}, software: 1})))
	cuda.adapters, cuda.missing = nil, "libcuda.so.1 is not installed"
	require.Equal(t, []string{"device: there is no GPU: PLAIT_GPU_DRIVER asks for cuda; cuda: libcuda.so.1 is not installed"},
		opened(newListing(both, settings{drivers: driverChoice{every: "cuda"}})))
	require.Equal(t, []string{"device: there is no GPU: PLAIT_GPU_DRIVER asks for cuda; cuda: this program was built without it"},
		opened(newListing(both[1:], settings{drivers: driverChoice{every: "cuda"}})))
}

func TestDriverOfSingleGPUs(t *testing.T) {
	cuda, _, both := fakeDrivers()
	require.Equal(t, []string{
		"gpu:0 N1 under webgpu; cuda: PLAIT_GPU_DRIVER asks for webgpu", "cuda:1 N2 under cuda; webgpu: cuda comes first",
		"gpu:2 I under webgpu; cuda: it lists no GPU with the UUID of this one",
	}, opened(newListing(both, settings{drivers: driverChoice{byIndex: map[int]string{0: "webgpu"}}})))
	require.Equal(t, "device: gpu:2 (I) cannot be opened: PLAIT_GPU_DRIVER asks for the driver cuda: it lists no GPU with the UUID of this one",
		opened(newListing(both, settings{drivers: driverChoice{byIndex: map[int]string{2: "cuda"}}}))[2])
	require.Equal(t, "device: PLAIT_GPU_DRIVER has a driver for gpu:3, which does not exist, there are 3 GPUs",
		opened(newListing(both, settings{drivers: driverChoice{byIndex: map[int]string{3: "cuda"}}}))[0])
	cuda.broken = map[int]string{1: "CUDA_ERROR_OUT_OF_MEMORY"}
	require.Equal(t, "device: cuda:1 (N2) cannot be opened: cuda: CUDA_ERROR_OUT_OF_MEMORY",
		opened(newListing(both, settings{drivers: driverChoice{byIndex: map[int]string{1: "cuda"}}}))[1], "no other driver takes its place")
	_, err := newListing(both, settings{}).open(3, 1<<20)
	require.EqualError(t, err, "device: gpu:3 does not exist, there are 3 GPUs")
}

func TestSoftwareAdaptersAloneNeedAVariable(t *testing.T) {
	_, webgpu, _ := fakeDrivers()
	webgpu.adapters = webgpu.adapters[3:]
	require.Equal(t, []string{"device: there is no GPU: the only adapter is S, which computes on the CPU; PLAIT_SOFTWARE_GPU=1 allows it"},
		opened(newListing([]driver.Driver{webgpu}, settings{})))
}

func TestParseDrivers(t *testing.T) {
	for value, want := range map[string]driverChoice{
		"": {}, "cuda": {every: "cuda"}, "webgpu": {every: "webgpu"},
		"gpu:0=cuda, cuda:12=webgpu": {byIndex: map[int]string{0: "cuda", 12: "webgpu"}},
	} {
		got, err := parseDrivers(value)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	const usage = ", want cuda, webgpu, or drivers of single GPUs such as gpu:0=cuda,gpu:1=webgpu"
	for value, want := range map[string]string{
		"vulkan":                   `PLAIT_GPU_DRIVER is "vulkan"` + usage,
		"cuda,webgpu":              `PLAIT_GPU_DRIVER is "cuda,webgpu"` + usage,
		"gpu=cuda":                 `PLAIT_GPU_DRIVER is "gpu=cuda"` + usage,
		"gpu:-1=cuda":              `PLAIT_GPU_DRIVER is "gpu:-1=cuda"` + usage,
		"cpu:0=cuda":               `PLAIT_GPU_DRIVER is "cpu:0=cuda"` + usage,
		"gpu:0=metal":              `PLAIT_GPU_DRIVER gives gpu:0 the driver "metal", want cuda or webgpu`,
		"gpu:1=cuda,cuda:1=webgpu": `PLAIT_GPU_DRIVER gives gpu:1 two drivers, in "gpu:1=cuda,cuda:1=webgpu"`,
	} {
		_, err := parseDrivers(value)
		require.EqualError(t, err, "device: "+want)
	}
}

// TestNames checks that a GPU has one identity under both of its names.
func TestNames(t *testing.T) {
	core.RegisterBackend(core.Backend{Kind: "namedgpu", Aliases: []string{"othername"}, Count: func() int { return 3 }, Open: func(index, ordinal int) (core.Device, error) {
		_, _, both := fakeDrivers()
		return newListing(both, settings{}).open(index, ordinal)
	}})
	a, err := core.OpenDevice("othername:1")
	require.NoError(t, err)
	b, err := core.OpenDevice("namedgpu:1")
	require.NoError(t, err)
	require.Same(t, a, b)
	require.Equal(t, []any{"cuda:1", "gpu", 1}, []any{a.String(), a.Kind(), a.Index()})
	require.Equal(t, 3, core.DeviceCount("othername"))
	require.Equal(t, []string{"gpu", "gpu", "cpu", "nonsense"}, []string{
		core.DeviceKind("cuda"), core.DeviceKind("gpu"), core.DeviceKind("cpu"), core.DeviceKind("nonsense"),
	})
}
