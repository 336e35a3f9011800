package safetensors

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func values(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	if x.DType().IsComplex() {
		x = op.ViewAsReal(x)
	}
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

// layouts returns tensors of every dtype and layout.
func layouts() map[string]*core.Tensor {
	tensors := map[string]*core.Tensor{}
	for _, d := range append(core.RealDTypes(), core.Complex64) {
		raw := make([]byte, 24*d.Size())
		for i := range raw {
			raw[i] = byte(i*7 + int(d))
			if d == core.Bool {
				raw[i] = byte(i % 2)
			} else if size := d.Part().Size(); d.Part().IsFloat() && i%size == size-1 {
				raw[i] = 0x40 // neither NaN nor infinite, which would not compare equal
			}
		}
		x := core.FromBytes(d, raw, 2, 3, 4)
		name := d.String()
		tensors[name] = x
		tensors[name+" transposed"] = op.AsStrided(x, []int{4, 3, 2}, []int{1, 4, 12}, 0)
		tensors[name+" sliced"] = op.AsStrided(x, []int{2, 2}, []int{12, 2}, 5)
		tensors[name+" expanded"] = op.AsStrided(x, []int{3, 4}, []int{0, 1}, 4)
		tensors[name+" scalar"] = op.AsStrided(x, []int{}, []int{}, 7)
		tensors[name+" empty"] = core.FromBytes(d, nil, 3, 0)
	}
	return tensors
}

func TestTensorRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.safetensors")
	want := layouts()
	require.NoError(t, Save(path, want, map[string]string{"k": "v"}))
	got, err := Load(path)
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for name, w := range want {
		g := got[name]
		require.NotNil(t, g, name)
		require.Equal(t, w.DType(), g.DType(), name)
		require.Equal(t, w.Shape(), g.Shape(), name)
		require.True(t, g.Contiguous(), name)
		wantBytes, err := w.Bytes()
		require.NoError(t, err)
		gotBytes, err := g.Bytes()
		require.NoError(t, err)
		require.Equal(t, wantBytes, gotBytes, name)
	}

	// Saving what was loaded, over the file it lies in, gives the same file.
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, Save(path, got, map[string]string{"k": "v"}))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestTensorsShareTheMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, Save(path, map[string]*core.Tensor{"w": core.FromSlice([]float32{1, 2, 3}), "v": core.FromSlice([]float32{4})}, nil))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	device, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	used := coretest.Settle(t, device)

	f, err := Open(path)
	require.NoError(t, err)
	m := f.mapping
	w := f.Tensor("w")
	require.NoError(t, w.Err())
	bytes, err := f.Bytes("w")
	require.NoError(t, err)
	require.Equal(t, unsafe.Pointer(&bytes[0]), w.Storage().Memory().Ptr)
	require.Equal(t, used, core.MemoryUsage(device).Current, "mapped memory is not the device's")
	require.NoError(t, f.Close())

	// The tensor outlives the file, may be changed, and leaves the file as it is.
	require.NoError(t, op.UniformInPlace(w, 5, 6, op.RandomOptions{}).Wait())
	for _, x := range values(t, w) {
		require.GreaterOrEqual(t, x, 5.0)
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)

	require.Equal(t, int32(1), m.refs.Load())
	w.Release()
	require.NoError(t, core.Synchronize())
	require.Eventually(t, func() bool { return m.refs.Load() == 0 }, time.Minute, time.Millisecond)
}

// Headers of other programs may leave the data at odd places, where kernels cannot read it.
func TestUnalignedTensorsAreCopied(t *testing.T) {
	header := `{"a":{"dtype":"F64","shape":[1],"data_offsets":[1,9]},"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}`
	for len(header)%8 != 0 {
		header += " "
	}
	path := filepath.Join(t.TempDir(), "odd")
	require.NoError(t, os.WriteFile(path, build(header, "\x01\x00\x00\x00\x00\x00\x00\x04\x40"), 0o644))
	tensors, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, []float64{2.5}, values(t, tensors["a"]))
	require.Equal(t, []float64{1}, values(t, tensors["b"]))
}

func TestTensorsThatCannotBe(t *testing.T) {
	shape := "[1,1,1,1,1,1,1,1,1,1,1,1,1]"
	header := `{"eight":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]},"truth":{"dtype":"BOOL","shape":[3],"data_offsets":[1,4]},` +
		`"deep":{"dtype":"U8","shape":` + shape + `,"data_offsets":[4,5]}}`
	file := build(header, "x\x01\x00\x02y")
	path := filepath.Join(t.TempDir(), "bad")
	require.NoError(t, os.WriteFile(path, file, 0o644))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	for name, c := range map[string]struct {
		reason string
		kind   core.Kind
	}{
		"eight":   {`tensor "eight": no tensors have dtype F8_E4M3`, core.DTypeError},
		"truth":   {fmt.Sprintf(`tensor "truth": got 2 for a BOOL, want 0 or 1 (at byte %d)`, len(file)-2), core.ValueError},
		"deep":    {"13 dimensions", core.ShapeError},
		"missing": {`no tensor "missing" among 3`, core.ValueError},
	} {
		err := f.Tensor(name).Err()
		require.ErrorContains(t, err, c.reason)
		kind, ok := core.KindOf(err)
		require.True(t, ok)
		require.Equal(t, c.kind, kind)
	}
	_, err = Load(path)
	require.Error(t, err)
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Tensor("eight").Err(), os.ErrClosed)
}

func TestKindsOfErrors(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "missing"))
	kind, _ := core.KindOf(err)
	require.Equal(t, core.IOError, kind)
	require.ErrorIs(t, err, os.ErrNotExist)

	_, err = Parse(nil)
	kind, ok := core.KindOf(err)
	require.True(t, ok)
	require.Equal(t, core.ValueError, kind)
}

func TestSaveRefuses(t *testing.T) {
	dir := t.TempDir()
	released := core.FromSlice([]float32{1})
	released.Release()
	for _, x := range []*core.Tensor{nil, released, core.Num(2), core.ErrorTensor(os.ErrInvalid)} {
		err := Save(filepath.Join(dir, "file"), map[string]*core.Tensor{"w": x}, nil)
		require.ErrorContains(t, err, `safetensors: write tensor "w": `)
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

// More than one piece, from the middle of a storage.
func TestSaveBigTensor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big")
	const n = chunk/4*2 + 17
	x := op.Rand(n + 5)
	part := op.AsStrided(x, []int{n}, []int{1}, 5)
	require.NoError(t, Save(path, map[string]*core.Tensor{"x": part}, nil))
	tensors, err := Load(path)
	require.NoError(t, err)
	want, err := part.Bytes()
	require.NoError(t, err)
	got, err := tensors["x"].Bytes()
	require.NoError(t, err)
	require.True(t, string(want) == string(got))
}
