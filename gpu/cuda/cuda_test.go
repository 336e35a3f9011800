//go:build cgo && linux && amd64

package cuda_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/gpu/cuda"
	"github.com/plait-ml/plait/gpu/cuda/nvrtc"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

// role is the variable that names the part of a test that runs in a process of its own: the driver opens its library once.
const role = "TEST_CUDA_ROLE"

func TestMain(m *testing.M) {
	if library := os.Getenv("FAKE_LIBRARY"); library != "" {
		cuda.OpenInstead(library)
	}
	os.Exit(m.Run())
}

// TestPart is the part of a test that [run] runs in a process of its own.
func TestPart(t *testing.T) {
	part := parts[os.Getenv(role)]
	if part == nil {
		t.Skip("other tests run it")
	}
	part(t)
}

// parts are run with the stand-in of testdata/libcuda.c.
var parts = map[string]func(t *testing.T){
	"refused": func(t *testing.T) {
		require.Empty(t, cuda.Driver.Adapters())
		require.Contains(t, cuda.Driver.Missing(), os.Getenv("WANT"))
		_, err := cuda.Driver.Open(0)
		require.Error(t, err)
		require.True(t, cuda.Driver.Shutdown())
	},
	"peers": peers, "shared": shared, "order": order, "graph": graphs, "errors": failures, "fault": fault, "leave": leave,
}

// fake runs a part of a test with the stand-in, and returns the calls that the driver made.
func fake(t *testing.T, part string, environment ...string) []string {
	t.Helper()
	library := filepath.Join(t.TempDir(), "libfakecuda.so")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, "testdata/libcuda.c").CombinedOutput()
	require.NoError(t, err, string(out))
	return run(t, part, append(environment, "FAKE_LIBRARY="+library)...)
}

func run(t *testing.T, part string, environment ...string) []string {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	c := exec.Command(os.Args[0], "-test.run=^TestPart$")
	c.Env = append(os.Environ(), append(environment, role+"="+part, "FAKE_LOG="+log)...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	text, _ := os.ReadFile(log)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// compiler skips a test where there is no NVRTC; CI has it.
func compiler(t *testing.T) {
	t.Helper()
	if _, _, _, err := nvrtc.Version(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func TestDriversThatCannotBeUsed(t *testing.T) {
	run(t, "refused", "FAKE_LIBRARY=/none/libcuda.so.1", "WANT=cannot be opened")
	fake(t, "refused", "FAKE_INIT=100", "WANT=does not start")
	fake(t, "refused", "FAKE_VERSION=11080", "WANT=supports CUDA 11.8, and 12.0 or newer is needed")
	fake(t, "refused", "FAKE_DEVICES=0", "WANT=found no GPU")
	fake(t, "refused", "FAKE_CAPABILITY=70", "WANT=compute capability 7.0, and 7.5 is the least")
}

// program is a program that doubles the numbers of a buffer.
func program() driver.Program {
	source := shader.CUDA{}.Translate(`@group(0) @binding(0) var<uniform> p: array<vec4<u32>, 32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) li: u32) {
  b[wg.x * 64u + li] = 2.0 * b[p[0].x];
}
`)
	return driver.Program{Name: "double", Source: source, Buffers: 1, Params: 512, Threads: 64, Dynamic: 100 << 10}
}

func open(t *testing.T) driver.GPU {
	require.Len(t, cuda.Driver.Adapters(), 1)
	a := cuda.Driver.Adapters()[0]
	require.Equal(t, "GPU 0", a.Name)
	require.Equal(t, 90, a.ComputeCapability)
	g, err := cuda.Driver.Open(0)
	require.NoError(t, err)
	return g
}

func await(t *testing.T, s driver.Status) (failed bool) {
	t.Helper()
	for range 10 {
		if done, failed := s.Done(); done {
			s.Free()
			return failed
		}
	}
	t.Fatal("the status is never done")
	return true
}

// TestPeers checks the calls by which a GPU uses another's memory, in a queue of its own, after the other's work, and between the commands of
// a long list, and those by which it exchanges signals.
func TestPeers(t *testing.T) {
	compiler(t)
	log := fake(t, "peers", "FAKE_DEVICES=2")
	require.Equal(t, []string{
		"retain 0", "stream 1", "retain 1", "stream 1", "access 0", "stream 1 of priority -5",
		"alloc 1040", "alloc 1040", "event 2", "event 2", "record",
		"wait 0", "copy 1024", "record", "wait 0",
		"set 0 x 1", "set 0 x 1", "set 0 x 1", "set 0 x 1", "set 0 x 1", "set 0 x 1", "set 0 x 1", "set 0 x 1",
		"event 2", "copy 1024", "record", "set 0 x 1", "record",
		"signal 7 at 0 0", "await 8 at 4 0", "record",
		"free", "free",
		"release 1: held 0 memory, 0 host, 2 events, 0 modules, 1 streams", "release 0: held 0 memory, 0 host, 0 events, 0 modules, 0 streams",
	}, log)
	fake(t, "peers", "FAKE_DEVICES=2", "FAKE_PEERS=0")
}

func peers(t *testing.T) {
	var gpus [2]driver.Linked
	for i := range gpus {
		g, err := cuda.Driver.Open(i)
		require.NoError(t, err)
		gpus[i] = g.(driver.Linked)
	}
	require.True(t, gpus[0].Reach(gpus[0]))
	reaches := gpus[0].Reach(gpus[1])
	require.Equal(t, os.Getenv("FAKE_PEERS") != "0", reaches)
	if !reaches {
		return
	}
	q, err := gpus[0].NewQueue()
	require.NoError(t, err)
	to, err := gpus[0].NewBuffer(driver.Storage, 1024, false)
	require.NoError(t, err)
	from, err := gpus[1].NewBuffer(driver.Storage, 1024, false)
	require.NoError(t, err)
	made, copied := gpus[1].NewStatus(), gpus[0].NewStatus()
	gpus[1].Submit(gpus[1].NewCommandList(), nil, nil, made)
	list := gpus[0].NewCommandList()
	list.Copy(to, 0, from, 0, 1024)
	q.After(made)
	q.Submit(list, nil, nil, copied)
	gpus[0].After(copied)
	require.False(t, await(t, copied))
	require.False(t, await(t, made))
	long, between := gpus[0].NewCommandList(), 0
	for range 9 {
		long.Clear(to, 0, 4)
	}
	gpus[0].Yield(func() {
		between++
		s := gpus[0].NewStatus()
		q.Submit(list, nil, nil, s)
		s.Free()
	})
	ended := gpus[0].NewStatus()
	gpus[0].Submit(long, nil, nil, ended)
	require.False(t, await(t, ended))
	require.Equal(t, 1, between)
	require.True(t, gpus[0].(driver.Signaling).Signals())
	signals, told := gpus[0].NewCommandList().(driver.SignalList), gpus[0].NewStatus()
	signals.Signal(to, 0, 7)
	signals.Await(to, 4, 8)
	q.Submit(signals, nil, nil, told)
	require.False(t, await(t, told))
	q.Release()
	to.Release()
	from.Release()
	gpus[1].Close()
	gpus[0].Close()
}

// TestShared checks the calls by which processes use each other's memory.
func TestShared(t *testing.T) {
	compiler(t)
	log := fake(t, "shared", "FAKE_DEVICES=2")
	require.Equal(t, []string{
		"retain 0", "stream 1", "retain 1", "stream 1", "alloc 1040", "share", "open shared 1", "close shared", "free",
		"release 1: held 0 memory, 0 host, 0 events, 0 modules, 1 streams", "release 0: held 0 memory, 0 host, 0 events, 0 modules, 0 streams",
	}, log)
}

func shared(t *testing.T) {
	var gpus [2]driver.Sharing
	for i := range gpus {
		g, err := cuda.Driver.Open(i)
		require.NoError(t, err)
		gpus[i] = g.(driver.Sharing)
	}
	b, err := gpus[0].NewBuffer(driver.Storage, 1024, false)
	require.NoError(t, err)
	require.NoError(t, os.Setenv("FAKE_FAIL", "cuIpcGetMemHandle:801"))
	_, err = gpus[0].Share(b)
	require.Error(t, err)
	require.NoError(t, os.Setenv("FAKE_FAIL", ""))
	handle, err := gpus[0].Share(b)
	require.NoError(t, err)
	require.NoError(t, os.Setenv("FAKE_FAIL", "cuIpcOpenMemHandle_v2:201"))
	_, err = gpus[1].OpenShared(handle, 1024)
	require.Error(t, err)
	require.NoError(t, os.Setenv("FAKE_FAIL", ""))
	_, err = gpus[1].OpenShared(handle[1:], 1024)
	require.ErrorContains(t, err, "a handle of 63 bytes, want 64")
	for _, g := range gpus {
		require.NoError(t, g.TakeError(), "what cannot be shared does no harm")
	}
	opened, err := gpus[1].OpenShared(handle, 1024)
	require.NoError(t, err)
	require.Equal(t, 1024, opened.Size())
	opened.Release()
	b.Release()
	gpus[1].Close()
	gpus[0].Close()
}

// TestOrderEventsAndFrees checks the calls that a submission makes: commands in order, an event behind them, and at the end nothing held.
func TestOrderEventsAndFrees(t *testing.T) {
	compiler(t)
	log := fake(t, "order")
	require.Equal(t, []string{
		"retain 0", "stream 1", "alloc 1040", "alloc host 1024 1", "alloc host 1024 1",
		"load cubin", "function plait_main", "attribute 8 = 102400",
		"event 2", "alloc host 1048576 1",
		"copy 1024", "copy 8", "set 0 x 2", "launch 2 x 3 x 1 of 64 x 1 x 1, 102400 dynamic, first word 7, first buffer 1040 bytes", "copy 1024", "record",
		"event 2", "record", // the map
		"record", "record", // events are reused
		"free host", "free host", "free", "free host",
		"release 0: held 0 memory, 0 host, 0 events, 0 modules, 0 streams",
	}, log)
}

func order(t *testing.T) {
	g := open(t)
	slab, err := g.NewBuffer(driver.Storage|driver.CopySource|driver.CopyTarget, 1024, false)
	require.NoError(t, err)
	up, err := g.NewBuffer(driver.MapWrite|driver.CopySource, 1024, true)
	require.NoError(t, err)
	down, err := g.NewBuffer(driver.MapRead|driver.CopyTarget, 1024, false)
	require.NoError(t, err)
	params, err := g.NewBuffer(driver.Uniform|driver.CopySource, 1<<20, false)
	require.NoError(t, err)
	p, err := g.NewPipeline(program())
	require.NoError(t, err)
	group, err := g.NewBindGroup(params, 512, []driver.Buffer{slab})
	require.NoError(t, err)
	for i := range up.Mapped() {
		up.Mapped()[i] = byte(i)
	}

	data := make([]byte, 1024)
	data[16] = 7
	copy(data[600:], "parameters")
	l := g.NewCommandList()
	l.Copy(slab, 0, up, 0, 1024)
	l.Copy(slab, 64, params, 600, 8)
	l.Clear(slab, 128, 8)
	l.Dispatch(p, group, 16, 2, 3, 1)
	l.Copy(down, 0, slab, 0, 1024)
	require.Equal(t, 5, l.Len())
	s := g.NewStatus()
	g.Submit(l, params, data, s)
	clear(data) // the driver has its own copy
	mapped := g.NewStatus()
	down.Map(false, mapped)
	done, _ := s.Done()
	require.False(t, done, "it has only been submitted")
	require.False(t, await(t, s))
	require.False(t, await(t, mapped))
	got := down.Mapped()
	require.Equal(t, []byte{60, 61, 62, 63}, got[60:64])
	require.Equal(t, "paramete", string(got[64:72]))
	require.Equal(t, make([]byte, 8), got[128:136])

	l.Reset()
	for range 2 { // statuses are used again
		s = g.NewStatus()
		g.Submit(l, params, nil, s)
		require.False(t, await(t, s))
	}
	require.NoError(t, g.TakeError())
	for _, b := range []driver.Buffer{up, down, slab, params} {
		b.Release()
	}
	group.Release()
	p.Release()
	g.Close()
}

// TestGraph keeps commands and runs them three times, and has each function of a graph fail.
func TestGraph(t *testing.T) {
	compiler(t)
	log := strings.Join(fake(t, "graph"), "\n")
	require.Contains(t, log, "capture 2")
	require.Contains(t, log, "captured 3\ninstantiate 0")
	require.Equal(t, 3, strings.Count(log, "graph of 3"))
	require.Contains(t, log, "held 0 memory, 0 host")
	require.NotContains(t, log, "held 1 graphs")
}

func graphs(t *testing.T) {
	g := open(t).(driver.GraphGPU)
	slab, err := g.NewBuffer(driver.Storage, 1024, false)
	require.NoError(t, err)
	down, err := g.NewBuffer(driver.MapRead, 1024, false)
	require.NoError(t, err)
	params, err := g.NewBuffer(driver.Uniform, 1<<20, false)
	require.NoError(t, err)
	p, err := g.NewPipeline(program())
	require.NoError(t, err)
	group, err := g.NewBindGroup(params, 512, []driver.Buffer{slab})
	require.NoError(t, err)
	l := g.NewCommandList()
	_, err = g.NewGraph(l, params, nil)
	require.ErrorContains(t, err, "a graph needs commands")
	data := make([]byte, 1024)
	copy(data[600:], "parameters")
	l.Dispatch(p, group, 0, 1, 1, 1)
	l.Copy(slab, 64, params, 600, 8)
	l.Copy(down, 0, slab, 0, 1024)
	for _, what := range []string{"cuStreamBeginCapture_v2:1", "cuStreamEndCapture:901", "cuGraphInstantiateWithFlags:2", "cuLaunchKernel:701"} {
		require.NoError(t, os.Setenv("FAKE_FAIL", what))
		_, err = g.NewGraph(l, params, data)
		require.Error(t, err)
		require.False(t, g.Lost())
		require.NoError(t, g.TakeError())
	}
	require.NoError(t, os.Setenv("FAKE_FAIL", ""))
	x, err := g.NewGraph(l, params, data)
	require.NoError(t, err)
	clear(data) // the graph has its own copy
	l.Reset()
	for range 3 {
		again := g.NewCommandList().(driver.GraphList)
		again.Clear(slab, 0, 1024)
		again.Graph(x)
		s := g.NewStatus()
		clear(down.Mapped())
		g.Submit(again, params, nil, s)
		require.False(t, await(t, s))
		require.Equal(t, "paramete", string(down.Mapped()[64:72]))
	}
	require.NoError(t, g.TakeError())
	require.NoError(t, os.Setenv("FAKE_FAIL", "cuGraphLaunch:1"))
	again := g.NewCommandList().(driver.GraphList)
	again.Graph(x)
	s := g.NewStatus()
	g.Submit(again, params, nil, s)
	require.ErrorContains(t, g.TakeError(), "a graph: failed")
	require.NoError(t, os.Setenv("FAKE_FAIL", ""))
	require.False(t, await(t, s))
	x.Release()
	for _, b := range []driver.Buffer{down, slab, params} {
		b.Release()
	}
	group.Release()
	p.Release()
	g.Close()
}

func TestErrorsOfCalls(t *testing.T) {
	compiler(t)
	fake(t, "errors")
}

func failures(t *testing.T) {
	g := open(t)
	fail := func(what string) { require.NoError(t, os.Setenv("FAKE_FAIL", what)) }
	fail("cuMemAlloc_v2:2")
	_, err := g.NewBuffer(driver.Storage, 1<<20, false)
	require.ErrorContains(t, err, "allocating 1048576 bytes: out of memory")
	fail("cuMemHostAlloc:2")
	_, err = g.NewBuffer(driver.MapRead, 1<<20, false)
	require.ErrorContains(t, err, "allocating 1048576 bytes of pinned memory: out of memory")
	require.False(t, g.Lost(), "a lack of memory does no harm")
	fail("cuModuleLoadData:209")
	_, err = g.NewPipeline(program())
	require.ErrorContains(t, err, "loading the program")
	fail("")
	broken := program()
	broken.Source = "extern \"C\" __global__ void plait_main() { nonsense; }"
	_, err = g.NewPipeline(broken)
	require.ErrorContains(t, err, `identifier "nonsense" is undefined`)
	broken.Buffers = 17
	_, err = g.NewPipeline(broken)
	require.ErrorContains(t, err, "it binds 17 buffers, the limit is 16")
	_, err = g.NewBuffer(driver.Storage, 1<<40, false)
	require.ErrorContains(t, err, "past the limit")
	require.NoError(t, g.TakeError(), "errors are told once")

	slab, err := g.NewBuffer(driver.Storage, 1024, false)
	require.NoError(t, err)
	p, err := g.NewPipeline(program())
	require.NoError(t, err)
	group, err := g.NewBindGroup(nil, 512, []driver.Buffer{slab})
	require.NoError(t, err)
	l := g.NewCommandList()
	l.Dispatch(p, group, 0, 1, 1, 1)
	fail("cuLaunchKernel:701")
	s := g.NewStatus()
	g.Submit(l, nil, make([]byte, 512), s)
	require.ErrorContains(t, g.TakeError(), "program double, a grid of 1 x 1 x 1 workgroups of 64")
	fail("")
	require.False(t, await(t, s))
	require.False(t, g.Lost(), "a program that does not start does no harm")
	g.Lose("for a test")
	s = g.NewStatus()
	g.Submit(l, nil, make([]byte, 512), s)
	require.True(t, await(t, s))
	require.ErrorContains(t, g.TakeError(), "for a test")
}

// TestFaultingProgram checks that a program that faults makes its device lost, and is named.
func TestFaultingProgram(t *testing.T) {
	compiler(t)
	fake(t, "fault")
}

func fault(t *testing.T) {
	g := open(t)
	slab, err := g.NewBuffer(driver.Storage, 1024, false)
	require.NoError(t, err)
	p, err := g.NewPipeline(program())
	require.NoError(t, err)
	group, err := g.NewBindGroup(nil, 512, []driver.Buffer{slab})
	require.NoError(t, err)
	l := g.NewCommandList()
	l.Dispatch(p, group, 0, 1, 1, 1)
	s := g.NewStatus()
	g.Submit(l, nil, make([]byte, 512), s)
	require.NoError(t, os.Setenv("FAKE_FAIL", "cuEventQuery:700"))
	require.True(t, await(t, s))
	require.True(t, g.Lost())
	require.ErrorContains(t, g.TakeError(), "a program failed while it ran: failed (ERROR_700), in program double")
	next := g.NewStatus()
	g.Submit(l, nil, make([]byte, 512), next)
	require.True(t, await(t, next), "a lost device runs nothing")
}

func TestNoDeviceIsOpenedAfterShutdown(t *testing.T) {
	compiler(t)
	fake(t, "leave")
}

func leave(t *testing.T) {
	g := open(t)
	require.True(t, cuda.Driver.Shutdown())
	_, err := cuda.Driver.Open(0)
	require.ErrorContains(t, err, "the process ends")
	_, err = g.NewBuffer(driver.Storage, 1024, false)
	require.ErrorContains(t, err, "the process ends")
	require.True(t, g.Lost())
}
