//go:build cgo && linux

package cublaslt_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/cuda/cublaslt"
	"github.com/plait-ml/plait/gpu/cuda/internal/library"
	"github.com/plait-ml/plait/gpu/driver"
)

// fake compiles the stand-in of the library and returns its folder.
func fake(t *testing.T, flags ...string) string {
	t.Helper()
	folder := t.TempDir()
	args := append(flags, "-O1", "-shared", "-fPIC", "-o", filepath.Join(folder, "libcublasLt.so.13"), filepath.Join("testdata", "fake.c"))
	out, err := exec.Command("cc", args...).CombinedOutput()
	require.NoError(t, err, string(out))
	return folder
}

// open returns a handle of the stand-in.
func open(t *testing.T) *cublaslt.Handle {
	t.Helper()
	cublaslt.Forget()
	library.SetFolders([]string{t.TempDir(), fake(t)})
	defer library.SetFolders(nil)
	require.NoError(t, cublaslt.Load())
	h, err := cublaslt.Open(nil)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

// A memory is a buffer on the host.
type memory struct {
	driver.Buffer
	bytes []byte
}

func (m *memory) address() uint64 { return uint64(uintptr(unsafe.Pointer(&m.bytes[0]))) }

func (m *memory) get(t core.DType, i int) float64 {
	b := m.bytes[i*t.Size():]
	switch t {
	case core.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case core.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case core.Float16:
		return float64(core.Float16Value(binary.LittleEndian.Uint16(b)))
	}
	return float64(core.BFloat16Value(binary.LittleEndian.Uint16(b)))
}

func (m *memory) put(t core.DType, i int, v float64) {
	b := m.bytes[i*t.Size():]
	switch t {
	case core.Float64:
		binary.LittleEndian.PutUint64(b, math.Float64bits(v))
	case core.Float32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
	case core.Float16:
		binary.LittleEndian.PutUint16(b, core.Float16Bits(float32(v)))
	default:
		binary.LittleEndian.PutUint16(b, core.BFloat16Bits(float32(v)))
	}
}

// at returns the index of an element of a matrix of the batch.
func at(m driver.Matrix, n, row, col int) int {
	if m.Columns {
		row, col = col, row
	}
	return n*m.Next + row*m.Step + col
}

// TestCommands runs products of every layout, type and epilogue by the stand-in.
func TestCommands(t *testing.T) {
	h := open(t)
	rng := rand.New(rand.NewPCG(1, 2))
	const m, n, k, count, offset = 3, 4, 5, 2, 8
	var pin runtime.Pinner
	defer pin.Unpin()
	room := func(t core.DType) *memory {
		b := &memory{bytes: make([]byte, 2048)}
		pin.Pin(&b.bytes[0])
		for i := range len(b.bytes) / t.Size() {
			b.put(t, i, float64(rng.IntN(9)-4))
		}
		return b
	}
	address := func(b driver.Buffer) uint64 { return b.(*memory).address() }
	for _, types := range [][2]core.DType{
		{core.Float32, core.Float32}, {core.Float16, core.Float16}, {core.BFloat16, core.BFloat16}, {core.Float64, core.Float64},
		{core.Float16, core.Float32}, {core.BFloat16, core.Float32},
	} {
		for i := range 64 {
			by := func(bit int) bool { return i>>bit&1 != 0 }
			in, out := types[0], types[1]
			a, b, c, bias := room(in), room(in), room(out), room(out)
			p := driver.Product{
				M: m, N: n, K: k, Count: 1, Alpha: 2, Factors: in, Result: out, WorkspaceSize: 4096, Workspace: driver.Range{Buffer: a},
				A: driver.Matrix{Range: driver.Range{Buffer: a, Offset: offset * in.Size()}, Columns: by(0), Step: 9},
				B: driver.Matrix{Range: driver.Range{Buffer: b}, Columns: by(1), Step: 7},
				C: driver.Matrix{Range: driver.Range{Buffer: c, Offset: offset * out.Size()}, Step: 6},
			}
			if by(2) {
				p.Beta = 0.5
			}
			if by(3) {
				p.Bias = driver.Range{Buffer: bias, Offset: out.Size()}
			}
			if by(4) {
				p.Count, p.A.Next, p.C.Next = count, 60, 24
			}
			p.Reduced = by(5) && in == core.Float32
			before := &memory{bytes: append([]byte(nil), c.bytes...)}
			command, ok, err := h.Command(&p, address)
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, h.Run(&command, nil))
			want := before.bytes
			wanted := &memory{bytes: want}
			old := &memory{bytes: append([]byte(nil), want...)}
			for z := range p.Count {
				for row := range m {
					for col := range n {
						sum := 0.0
						for q := range k {
							sum += a.get(in, offset+at(p.A, z, row, q)) * b.get(in, at(p.B, z, q, col))
						}
						to := offset + at(p.C, z, row, col)
						sum = 2*sum + p.Beta*old.get(out, to)
						if by(3) {
							sum += bias.get(out, 1+col)
						}
						wanted.put(out, to, sum)
					}
				}
			}
			require.Equal(t, want, c.bytes, fmt.Sprint(types, i))
		}
	}
}

// TestPlansAreShared checks that products of one shape share a plan, and that shapes without an algorithm are told from errors.
func TestPlansAreShared(t *testing.T) {
	h := open(t)
	b := &memory{bytes: make([]byte, 1024)}
	product := func(k, offset int) (cublaslt.Command, bool, error) {
		p := driver.Product{M: 2, N: 2, K: k, Count: 1, Factors: core.Float32, Result: core.Float32, WorkspaceSize: 4096}
		p.A, p.B, p.C = driver.Matrix{Step: 16}, driver.Matrix{Step: 2}, driver.Matrix{Step: 2}
		p.A.Buffer, p.B.Buffer, p.C.Buffer, p.A.Offset = b, b, b, offset
		return h.Command(&p, func(driver.Buffer) uint64 { return 4096 })
	}
	for _, offset := range []int{0, 256, 512, 16, 48, 4} {
		_, ok, err := product(3, offset)
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.Equal(t, 3, h.Plans(), "one for each alignment")
	_, ok, err := product(13, 0)
	require.NoError(t, err)
	require.False(t, ok, "the library has no algorithm")
	_, _, err = product(0, 0)
	require.ErrorContains(t, err, "2 x 2 x 0")
	_, _, err = product(17, 0)
	require.ErrorContains(t, err, "cannot choose an algorithm: invalid value (7)", "columns overlap")
}

// TestMissingLibrary checks that errors name what is missing.
func TestMissingLibrary(t *testing.T) {
	cublaslt.Forget()
	defer cublaslt.Forget()
	old := fake(t, "-DVERSION=110100")
	t.Setenv("VIRTUAL_ENV", "")
	library.SetFolders([]string{old})
	defer library.SetFolders(nil)
	err := cublaslt.Load()
	if path, _ := cublaslt.Version(); path != "" {
		t.Skip("this machine has the library")
	}
	require.ErrorContains(t, err, "version 11, want 12 or 13")
	require.ErrorContains(t, err, "nvidia-cublas")
	empty := filepath.Join(t.TempDir(), "libcublasLt.so.12")
	out, err := exec.Command("cc", "-shared", "-o", empty, "-x", "c", "/dev/null").CombinedOutput()
	require.NoError(t, err, string(out))
	library.SetFolders([]string{filepath.Dir(empty)})
	require.ErrorContains(t, cublaslt.Load(), "it has no function cublasLtGetVersion")
}

// TestLibraryTakesDescriptors gives the real library descriptors, which needs no GPU: it refuses an unknown attribute or size.
func TestLibraryTakesDescriptors(t *testing.T) {
	cublaslt.Forget()
	defer cublaslt.Forget()
	if err := cublaslt.Load(); err != nil {
		t.Skip(err)
	}
	for _, in := range []core.DType{core.Float32, core.Float64, core.Float16, core.BFloat16} {
		for i := range 16 {
			p := driver.Product{M: 8, N: 16, K: 24, Count: 1 + i&1, Factors: in, Result: in, Reduced: i&2 != 0, WorkspaceSize: 1 << 20}
			p.A, p.B, p.C = driver.Matrix{Step: 24, Columns: i&4 != 0}, driver.Matrix{Step: 24, Columns: i&8 != 0}, driver.Matrix{Step: 16}
			if i&8 != 0 {
				p.Bias.Buffer = &memory{}
			}
			require.NoError(t, cublaslt.Describe(&p), fmt.Sprint(in, i))
		}
	}
	if h, err := cublaslt.Open(nil); err == nil {
		h.Close()
	} else {
		require.ErrorContains(t, err, "cuBLASLt: cannot open: ")
	}
}
