//go:build cgo && linux && amd64

package hostcuda

import (
	"encoding/binary"
	"math"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

const testThreads = 64

// A host is a GPU with one buffer, for programs of one buffer.
type host struct {
	gpu            driver.GPU
	params, buffer driver.Buffer
}

func newHost(t *testing.T, d Driver, bytes int) *host {
	t.Helper()
	if err := Missing(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	g, err := d.Open(0)
	require.NoError(t, err)
	params, err := g.NewBuffer(driver.Uniform, 4096, false)
	require.NoError(t, err)
	b, err := g.NewBuffer(driver.Storage, bytes, false)
	require.NoError(t, err)
	t.Cleanup(func() {
		params.Release()
		b.Release()
	})
	return &host{g, params, b}
}

// written writes a program for a buffer x of words.
func written(body func(w *shader.Text)) driver.Program {
	r := &shader.Recorder{GPU: &shader.Device{Language: shader.CUDA{}}}
	s := r.Write(1, func(w *shader.Text) {
		w.Words(1, "x")
		body(w)
	})
	return driver.Program{Name: "test", Source: s.Text, Buffers: 1, Threads: s.Threads}
}

// run runs workgroups of a program and returns the GPU's error.
func (h *host) run(t *testing.T, groups int, p driver.Program) error {
	t.Helper()
	compiled, err := h.gpu.NewPipeline(p)
	require.NoError(t, err)
	bound, err := h.gpu.NewBindGroup(h.params, shader.MaxParamBytes, []driver.Buffer{h.buffer})
	require.NoError(t, err)
	defer bound.Release()
	l := h.gpu.NewCommandList()
	l.Dispatch(compiled, bound, 0, uint32(groups), 1, 1)
	s := h.gpu.NewStatus()
	h.gpu.Submit(l, h.params, make([]byte, shader.MaxParamBytes), s)
	done, failed := s.Done()
	require.True(t, done && !failed)
	return h.gpu.TakeError()
}

func words[T any](h *host) []T {
	m := h.buffer.Mapped()
	return unsafe.Slice((*T)(unsafe.Pointer(&m[0])), len(m)/int(unsafe.Sizeof(*new(T))))
}

// eachOrder runs a test forwards and backwards.
func eachOrder(t *testing.T, bytes int, test func(t *testing.T, h *host)) {
	for name, backward := range map[string]bool{"forwards": false, "backwards": true} {
		t.Run(name, func(t *testing.T) { test(t, newHost(t, Driver{Backward: backward}, bytes)) })
	}
}

// turned is a program in which each invocation reads what another has written to workgroup memory.
func turned(barrier bool) driver.Program {
	return written(func(w *shader.Text) {
		w.Shared("s", "u32", testThreads)
		w.Main(testThreads)
		w.Put("  for (var k = 0u; k < 3u; k++) {\n  s[li] = li + group + k;")
		if barrier {
			w.Barrier()
		}
		w.Put("  let other = s[(li + 5u) % 64u];")
		if barrier {
			w.Barrier()
		}
		w.Put("  x[group * 64u + li] = other;\n  }")
	})
}

func TestBarriers(t *testing.T) {
	eachOrder(t, 3*testThreads*4, func(t *testing.T, h *host) {
		require.NoError(t, h.run(t, 3, turned(true)))
		for i, x := range words[uint32](h) {
			require.Equal(t, (i+5)%testThreads+i/testThreads+2, int(x), i)
		}
	})
}

func TestMissingBarrierShowsInOneOrder(t *testing.T) {
	var results [2][]uint32
	for i := range results {
		h := newHost(t, Driver{Backward: i == 1}, testThreads*4)
		require.NoError(t, h.run(t, 1, turned(false)))
		results[i] = append(results[i], words[uint32](h)...)
	}
	require.NotEqual(t, results[0], results[1])
}

func TestBarrierThatSomeDoNotReach(t *testing.T) {
	eachOrder(t, 4*testThreads, func(t *testing.T, h *host) {
		p := written(func(w *shader.Text) {
			w.Main(testThreads)
			w.Put("  if (li > 40u) { return; }")
			w.Barrier()
		})
		require.ErrorContains(t, h.run(t, 2, p), "test: a part of workgroup (")
		require.NoError(t, h.run(t, 1, turned(true)), "later programs run")
	})
}

func TestMemoryThatNothingHasWritten(t *testing.T) {
	h := newHost(t, Driver{}, testThreads*8)
	for _, x := range words[float64](h) {
		require.True(t, math.IsNaN(x))
	}
	p := written(func(w *shader.Text) {
		w.Shared("s", "f32", testThreads)
		w.Main(testThreads)
		w.Put("  x[li] = bitcast<u32>(s[li]);\n  s[li] = 1.0;")
	})
	for range 2 {
		require.NoError(t, h.run(t, 2, p))
		for _, x := range words[float32](h)[:testThreads] {
			require.True(t, x != x, "a workgroup does not see the memory of the one before it")
		}
	}
}

func TestWriteBehindTheData(t *testing.T) {
	h := newHost(t, Driver{}, (testThreads-1)*4)
	p := written(func(w *shader.Text) {
		w.Main(testThreads)
		w.Put("  x[li] = li;")
	})
	require.EqualError(t, h.run(t, 1, p), "test has written behind the data of buffer 1, which has 252 bytes")
	read := written(func(w *shader.Text) {
		w.Main(testThreads)
		w.Put("  let past = x[li + 1000u];\n  if (li == 0u) { x[0] = past; }")
	})
	require.NoError(t, h.run(t, 1, read))
	require.True(t, math.IsNaN(float64(words[float32](h)[0])))
}

func TestAccessToNoBuffer(t *testing.T) {
	eachOrder(t, 1000, func(t *testing.T, h *host) {
		for _, offset := range []string{"-5000", "1024", "5000"} {
			p := written(func(w *shader.Text) {
				w.Main(testThreads)
				w.Barrier() // on a stack of its own
				w.Raw("if (li.v == 7) ((volatile char *)x.at)[" + offset + "] = 1;")
			})
			require.ErrorContains(t, h.run(t, 1, p), "test: invocation 7 of workgroup (0, 0, 0) has accessed memory at 0x")
		}
		require.NoError(t, h.run(t, 1, turned(true)), "later programs run")
	})
}

func TestAtomics(t *testing.T) {
	eachOrder(t, 12, func(t *testing.T, h *host) {
		p := written(func(w *shader.Text) {
			w.Shared("n", shader.AtomicWord)
			w.Main(testThreads)
			w.Put("  if (li == 0u) { " + w.AtomicStore("n", "0u") + "; }")
			w.Barrier()
			w.Put("  _ = " + w.AtomicAdd("n", "li") + ";\n  _ = " + w.AtomicOr("n", "0x10000u") + ";\n  _ = " + w.AtomicAnd("n", "0xfffffffeu") + ";")
			w.Barrier()
			w.Put("  if (li == 0u) { x[0] = " + w.AtomicLoad("n") + "; }")
		})
		require.NoError(t, h.run(t, 1, p))
		require.NotZero(t, words[uint32](h)[0]&0x10000)
		require.Zero(t, words[uint32](h)[0]&1)
	})
}

func TestHalves(t *testing.T) {
	h := newHost(t, Driver{}, 1<<18)
	require.NoError(t, h.run(t, 1<<10, written(func(w *shader.Text) {
		w.Main(testThreads)
		w.Put("  let i = group * 64u + li;\n  x[i] = bitcast<u32>(unpack2x16float(i).x);")
	})))
	for i, x := range words[float32](h) {
		want := core.Float16Value(uint16(i))
		if want != want {
			require.True(t, x != x, "%#x", i)
		} else {
			require.Equal(t, math.Float32bits(want), math.Float32bits(x), "%#x", i)
		}
	}
}

func TestConversionsSaturate(t *testing.T) {
	h := newHost(t, Driver{}, 5*8)
	for i, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -2.75, 3e9} {
		binary.NativeEndian.PutUint32(h.buffer.Mapped()[4*i:], math.Float32bits(v))
	}
	require.NoError(t, h.run(t, 1, written(func(w *shader.Text) {
		w.Main(5)
		w.Put("  let v = bitcast<f32>(x[li]);\n  x[li] = u32(v);\n  x[li + 5u] = bitcast<u32>(i32(v));")
	})))
	got := words[uint32](h)
	require.Equal(t, []uint32{0, math.MaxUint32, 0, 0, 3e9}, got[:5])
	require.Equal(t, []int32{0, math.MaxInt32, math.MinInt32, -2, math.MaxInt32}, words[int32](h)[5:])
}

// TestDouble runs CUDA's functions on float64 that the C library lacks.
func TestDouble(t *testing.T) {
	apply := func(function string, x float64) float64 {
		h := newHost(t, Driver{}, 8)
		words[float64](h)[0] = x
		require.NoError(t, h.run(t, 1, written(func(w *shader.Text) {
			w.Main(1)
			w.Raw("double *v = (double *)x.at; *v = " + function + "(*v);")
		})))
		return words[float64](h)[0]
	}
	for _, x := range []float64{-1, -0.999999, -0.5, -1e-9, 0, 1e-300, 0.1, 0.4999, 0.5001, 0.9, 1 - 1e-15, 1} {
		want := math.Erfinv(x)
		if got := apply("erfinv", x); got != want {
			require.InEpsilon(t, want, got, 1e-14, x)
		}
	}
	require.True(t, math.IsNaN(apply("erfinv", 1.5)))
	for x, want := range map[float64]float64{ // computed with 40 digits
		-3: 16205.98885399958662546957, 0: 1, 0.5: 0.6156903441929258748707934, 2: 0.2553956763105057438650886,
		24.9: 0.02263998777604950628595810, 25.1: 0.02245987581758138823596750, 100: 0.005641613782989432903556457, 1e6: 5.641895835474741921560e-7,
	} {
		require.InEpsilon(t, want, apply("erfcx", x), 1e-14, x)
	}
}

func TestProgramThatDoesNotCompile(t *testing.T) {
	h := newHost(t, Driver{}, 4)
	_, err := h.gpu.NewPipeline(written(func(w *shader.Text) {
		w.Main(1)
		w.Raw("nothing();")
	}))
	require.ErrorContains(t, err, "nothing")
	_, err = h.gpu.NewPipeline(driver.Program{Source: "x"})
	require.ErrorContains(t, err, "not one that shader.CUDA prints")
}
