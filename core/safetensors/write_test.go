package safetensors

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var sample = []Entry{
	{Name: "b.bias", DType: BF16, Shape: []int64{2}, Data: []byte{0x80, 0x3f, 0x00, 0x40}},
	{Name: "mask", DType: BOOL, Shape: []int64{3}, Data: []byte{1, 0, 1}},
	{Name: "a<weight>", DType: F32, Shape: []int64{1, 2}, Data: []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}},
	{Name: "step", DType: I64, Shape: nil, Data: []byte{7, 0, 0, 0, 0, 0, 0, 0}},
}

func TestGoldenBytes(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Write(&b, sample, map[string]string{"z": "1", "made by": "plait"}))

	const header = `{"__metadata__":{"made by":"plait","z":"1"},` +
		`"a<weight>":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},` +
		`"b.bias":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]},` +
		`"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[20,23]},` +
		`"step":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}     `
	want := "2001000000000000" + hex.EncodeToString([]byte(header)) +
		"0700000000000000" + "0000803f00000040" + "803f0040" + "010001"
	require.Equal(t, want, hex.EncodeToString(b.Bytes()))
}

func TestEqualInputGivesEqualBytes(t *testing.T) {
	var first, second bytes.Buffer
	require.NoError(t, Write(&first, sample, map[string]string{"a": "1", "b": "2", "c": "3"}))
	reversed := slices.Clone(sample)
	slices.Reverse(reversed)
	require.NoError(t, Write(&second, reversed, map[string]string{"c": "3", "b": "2", "a": "1"}))
	require.Equal(t, first.Bytes(), second.Bytes())
}

func TestRoundTripOfEveryDType(t *testing.T) {
	var entries []Entry
	for i, d := range []DType{BOOL, U8, I8, U16, I16, U32, I32, U64, I64, F4, F6_E2M3, F6_E3M2, F8_E4M3, F8_E5M2, F8_E8M0, F16, BF16, F32, F64, C64} {
		size := d.Bits() * 12 / 8
		data := make([]byte, size)
		for j := range data {
			data[j] = byte(i*31 + j)
		}
		entries = append(entries,
			Entry{Name: "full " + string(d), DType: d, Shape: []int64{3, 1, 4}, Data: data},
			Entry{Name: "empty " + string(d), DType: d, Shape: []int64{2, 0}})
	}
	metadata := map[string]string{"": "empty key", "quote\"\\\n": "<&>\u2028☃\x00"}
	var b bytes.Buffer
	require.NoError(t, Write(&b, entries, metadata))
	f, err := Parse(b.Bytes())
	require.NoError(t, err)
	require.Equal(t, metadata, f.Metadata())
	requireEntries(t, entries, f)

	length := b.Len()
	for info := range f.Infos() {
		if bits := int64(info.DType.Bits()); bits >= 8 {
			require.Zero(t, (int64(length)-f.header.tensors[f.Len()-1].End+info.Begin)%(bits/8), "%s is not aligned", info.Name)
		}
	}
	require.True(t, json.Valid(b.Bytes()[8:f.header.data]))
	require.Zero(t, f.header.data%8)
}

func requireEntries(t *testing.T, entries []Entry, f *File) {
	t.Helper()
	require.Equal(t, len(entries), f.Len())
	for _, e := range entries {
		info, ok := f.Info(e.Name)
		require.True(t, ok, e.Name)
		require.Equal(t, e.DType, info.DType)
		require.Equal(t, append([]int64{}, e.Shape...), info.Shape)
		data, err := f.Bytes(e.Name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(e.Data, data), e.Name)
	}
}

func TestStream(t *testing.T) {
	const pieces, size = 64, 1 << 12
	stream := func(w io.Writer) error {
		for i := range pieces {
			if _, err := w.Write(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
				return err
			}
		}
		return nil
	}
	path := filepath.Join(t.TempDir(), "streamed.safetensors")
	require.NoError(t, WriteFile(path, []Entry{{Name: "big", DType: U8, Shape: []int64{pieces, size}, Stream: stream}}, nil))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	data, err := f.Bytes("big")
	require.NoError(t, err)
	for i := range pieces {
		require.Equal(t, bytes.Repeat([]byte{byte(i)}, size), data[i*size:(i+1)*size])
	}
}

func TestWriteRefuses(t *testing.T) {
	entry := func(change func(*Entry)) []Entry {
		e := Entry{Name: "w", DType: F32, Shape: []int64{2}, Data: make([]byte, 8)}
		change(&e)
		return []Entry{e}
	}
	streamOf := func(n int) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := w.Write(make([]byte, n))
			return err
		}
	}
	var huge []Entry // each fits, their sum does not
	for i := range 9 {
		huge = append(huge, Entry{Name: fmt.Sprint(i), DType: U8, Shape: []int64{1<<60 - 1}, Stream: streamOf(0)})
	}
	for name, c := range map[string]struct {
		entries  []Entry
		metadata map[string]string
		reason   string
	}{
		"reserved name":     {entry(func(e *Entry) { e.Name = "__metadata__" }), nil, "the name is reserved"},
		"name not UTF-8":    {entry(func(e *Entry) { e.Name = "\xff" }), nil, "not UTF-8"},
		"name twice":        {append(entry(func(*Entry) {}), entry(func(*Entry) {})...), nil, `tensor "w": the name comes twice`},
		"unknown dtype":     {entry(func(e *Entry) { e.DType = "F33" }), nil, `unknown dtype "F33"`},
		"negative":          {entry(func(e *Entry) { e.Shape = []int64{-2} }), nil, "negative dimension"},
		"overflow":          {entry(func(e *Entry) { e.Shape = []int64{1 << 40, 1 << 40} }), nil, "too many elements"},
		"byte count":        {entry(func(e *Entry) { e.Data = make([]byte, 7) }), nil, "got 7, want 8"},
		"short stream":      {entry(func(e *Entry) { e.Stream = streamOf(7) }), nil, "got 7, want 8"},
		"long stream":       {entry(func(e *Entry) { e.Stream = streamOf(9) }), nil, "1 bytes more than the tensor holds"},
		"metadata encoding": {nil, map[string]string{"a": "\xff"}, "not UTF-8"},
		"total overflow":    {huge, nil, "more than 2^63-1 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, Write(io.Discard, c.entries, c.metadata), c.reason)
		})
	}
}

func TestFailedWriteChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kept.safetensors")
	require.NoError(t, WriteFile(path, sample, nil))
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	broken := errors.New("source broke")
	err = WriteFile(path, []Entry{{Name: "w", DType: U8, Shape: []int64{9}, Stream: func(w io.Writer) error {
		_, err := w.Write([]byte("half"))
		return errors.Join(err, broken)
	}}}, nil)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, `tensor "w"`)

	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "the unfinished file must be gone")

	require.ErrorIs(t, WriteFile(filepath.Join(dir, "no", "folder"), sample, nil), os.ErrNotExist)
	require.Error(t, WriteFile(dir, sample, nil))
}

func TestWriteFileKeepsPermissionsAndLinks(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Symlink("file", link))
	require.NoError(t, WriteFile(link, sample, nil))

	stat, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, stat.Mode()&os.ModeSymlink)
	stat, err = os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), stat.Mode())
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	requireEntries(t, sample, f)
}

// A file that parses survives being written again, and one that does not gives an error of the right kind.
func FuzzParse(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, Write(&b, sample, map[string]string{"key": "value"}))
	f.Add(b.Bytes())
	f.Add(build("{}", ""))
	f.Add(build(twoTensors, "aaaabbbbccc"))
	f.Add(build(twoTensors, "aaaabbbbcc"))
	f.Add(build(strings.Replace(twoTensors, "[8,11]", "[7,10]", 1), "aaaabbbbccc"))
	f.Add(build(`{"e":{"dtype":"F6_E2M3","shape":[0,4294967296],"data_offsets":[0,0]}}`, ""))
	f.Add(build(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "x"))
	f.Fuzz(func(t *testing.T, file []byte) {
		first, err := Parse(file)
		if err != nil {
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.NotEmpty(t, format.Reason)
			require.True(t, format.Offset >= 0 && format.Offset <= int64(len(file)), "offset %d of %d", format.Offset, len(file))
			return
		}
		total := 0
		var entries []Entry
		for info := range first.Infos() {
			data, err := first.Bytes(info.Name)
			require.NoError(t, err)
			total += len(data)
			entries = append(entries, Entry{Name: info.Name, DType: info.DType, Shape: info.Shape, Data: data})
		}
		require.Equal(t, len(file)-int(first.header.data), total)

		var again bytes.Buffer
		require.NoError(t, Write(&again, entries, first.Metadata()))
		second, err := Parse(again.Bytes())
		require.NoError(t, err, "%q", again.Bytes())
		requireEntries(t, entries, second)
		require.True(t, maps.Equal(first.Metadata(), second.Metadata()))
	})
}
