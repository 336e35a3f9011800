package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// build makes a file of a header and data.
func build(header string, data string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

const twoTensors = `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}`

func TestParse(t *testing.T) {
	f, err := Parse(build(`{"__metadata__":{"made by":"hand"},"b":{"shape":[3],"data_offsets":[8,11],"dtype":"U8"},`+
		`"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"none":{"dtype":"I64","shape":[0,7],"data_offsets":[8,8]},`+
		`"scalar":{"dtype":"BF16","shape":[],"data_offsets":[11,13]},"packed":{"dtype":"F4","shape":[3,2],"data_offsets":[13,16]}}   `,
		"aaaabbbbcccddeee"))
	require.NoError(t, err)
	require.Equal(t, 5, f.Len())
	require.Equal(t, []string{"a", "b", "none", "packed", "scalar"}, f.Names())
	require.Equal(t, map[string]string{"made by": "hand"}, f.Metadata())

	info, ok := f.Info("a")
	require.True(t, ok)
	require.Equal(t, Info{Name: "a", DType: F32, Shape: []int64{2, 1}, Begin: 0, End: 8}, info)
	info.Shape[0] = 9
	again, _ := f.Info("a")
	require.Equal(t, int64(2), again.Shape[0], "a caller's change must not reach the file")
	_, ok = f.Info("missing")
	require.False(t, ok)

	for name, want := range map[string]string{"a": "aaaabbbb", "b": "ccc", "none": "", "scalar": "dd", "packed": "eee"} {
		got, err := f.Bytes(name)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	var order []string
	for info := range f.Infos() {
		order = append(order, info.Name)
	}
	require.Equal(t, []string{"a", "none", "b", "scalar", "packed"}, order)

	_, err = f.Bytes("missing")
	require.ErrorContains(t, err, `no tensor "missing" among 5`)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	_, err = f.Bytes("a")
	require.ErrorIs(t, err, os.ErrClosed)
}

func TestEmptyFileOfNoTensors(t *testing.T) {
	f, err := Parse(build("{}", ""))
	require.NoError(t, err)
	require.Zero(t, f.Len())
	require.Nil(t, f.Metadata())
}

func TestHostileFiles(t *testing.T) {
	one := func(entry string) []byte { return build(`{"w":`+entry+`}`, "12345678") }
	const data = 8 + int64(len(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`))
	for name, c := range map[string]struct {
		file   []byte
		tensor string
		offset int64 // -1 where the place inside the JSON is the decoder's affair
		reason string
	}{
		"no bytes":               {nil, "", 0, "got 0 bytes"},
		"seven bytes":            {make([]byte, 7), "", 0, "got 7 bytes"},
		"header past the end":    {build("{}", "")[:9], "", 0, "header runs past the end of the file, got 2 bytes, want at most 1"},
		"huge header":            {binary.LittleEndian.AppendUint64(nil, MaxHeaderBytes+1), "", 0, "header too long, got 100000001 bytes"},
		"negative length":        {binary.LittleEndian.AppendUint64(nil, 1<<64-1), "", 0, "header too long"},
		"header of no bytes":     {build("", ""), "", 8, "not a JSON object"},
		"list":                   {build("[]", ""), "", 8, "not a JSON object"},
		"leading space":          {build(" {}", ""), "", 8, "not a JSON object"},
		"not UTF-8":              {build("{\"\xff\":1}", ""), "", 8, "not UTF-8"},
		"unfinished":             {build(`{"a":`, ""), "a", -1, "ends inside its JSON"},
		"not JSON":               {build(`{"a";1}`, ""), "a", -1, "not JSON"},
		"missing comma":          {build(`{"a":{"dtype":"U8" "shape":[0]}}`, ""), "a", -1, "not JSON"},
		"text after":             {build(`{}x`, ""), "", 10, `got 'x' after the header's JSON`},
		"second object after":    {build(`{} {}`, ""), "", 11, `got '{' after the header's JSON`},
		"duplicate tensor":       {build(twoTensors[:len(twoTensors)-1]+`,"a":{"dtype":"U8","shape":[0],"data_offsets":[11,11]}}`, strings.Repeat("x", 11)), "", -1, `key "a" comes twice`},
		"duplicate field":        {one(`{"dtype":"F32","dtype":"F64","shape":[2],"data_offsets":[0,8]}`), "w", -1, `key "dtype" comes twice`},
		"escaped duplicate":      {one(`{"dtype":"F32","\u0064type":"F64","shape":[2],"data_offsets":[0,8]}`), "w", -1, `key "dtype" comes twice`},
		"duplicate metadata":     {build(`{"__metadata__":{"a":"1","a":"2"}}`, ""), "", -1, `key "a" comes twice`},
		"metadata twice":         {build(`{"__metadata__":{},"__metadata__":{}}`, ""), "", -1, `key "__metadata__" comes twice`},
		"metadata not text":      {build(`{"__metadata__":{"a":1}}`, ""), "", -1, `__metadata__ "a": got "1", want a string`},
		"metadata null":          {build(`{"__metadata__":null}`, ""), "", -1, "__metadata__: got null"},
		"entry not an object":    {one(`[1]`), "w", -1, `entry: got "["`},
		"unknown field":          {one(`{"dtype":"F32","shape":[2],"data_offsets":[0,8],"Dtype":"F32"}`), "w", -1, `unknown key "Dtype"`},
		"missing field":          {one(`{"dtype":"F32","shape":[2]}`), "w", -1, "incomplete entry"},
		"dtype null":             {one(`{"dtype":null,"shape":[2],"data_offsets":[0,8]}`), "w", -1, "dtype: got null, want a string"},
		"dtype unknown":          {one(`{"dtype":"F33","shape":[2],"data_offsets":[0,8]}`), "w", data, `unknown dtype "F33"`},
		"shape a number":         {one(`{"dtype":"F32","shape":2,"data_offsets":[0,8]}`), "w", -1, `shape: got "2", want "["`},
		"negative dimension":     {one(`{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}`), "w", -1, `shape: got "-2", want an integer`},
		"minus zero":             {one(`{"dtype":"F32","shape":[-0],"data_offsets":[0,8]}`), "w", -1, `shape: got "-0"`},
		"fraction":               {one(`{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}`), "w", -1, `shape: got "2.0"`},
		"exponent":               {one(`{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}`), "w", -1, `shape: got "2e0"`},
		"dimension too big":      {one(`{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}`), "w", -1, "want an integer"},
		"shape overflows":        {one(`{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}`), "w", -1, "holds too many elements"},
		"shape overflows to 0":   {one(`{"dtype":"U8","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,8]}`), "w", -1, "holds too many elements"},
		"empty shape overflows":  {one(`{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}`), "w", -1, "holds too many elements"},
		"bytes overflow":         {one(`{"dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,8]}`), "w", -1, "holds too many bytes"},
		"half a byte":            {one(`{"dtype":"F4","shape":[15],"data_offsets":[0,8]}`), "w", -1, "does not fill whole bytes"},
		"one offset":             {one(`{"dtype":"F32","shape":[2],"data_offsets":[8]}`), "w", -1, "data_offsets: got 1 numbers, want 2"},
		"offsets nested":         {one(`{"dtype":"F32","shape":[2],"data_offsets":[[0],8]}`), "w", -1, `data_offsets: got "["`},
		"offsets backwards":      {one(`{"dtype":"F32","shape":[2],"data_offsets":[8,0]}`), "w", -1, "run backwards, got [8, 0]"},
		"too few bytes":          {one(`{"dtype":"F32","shape":[1],"data_offsets":[0,8]}`), "w", -1, "wrong byte count for shape [1] of F32, got 8, want 4"},
		"too many bytes":         {build(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, "1234567"), "a", data, "run past the end of the file, got [0, 8], want at most 7"},
		"trailing data":          {build(twoTensors, strings.Repeat("x", 12)), "", 8 + int64(len(twoTensors)) + 11, "1 bytes after the last tensor"},
		"only trailing data":     {build("{}", "x"), "", 10, "1 bytes after the last tensor"},
		"gap before the first":   {build(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, "12"), "w", -1, "gap after the header, got begin 1, want 0"},
		"gap":                    {build(strings.Replace(twoTensors, "[8,11]", "[9,12]", 1), strings.Repeat("x", 12)), "b", -1, `gap after tensor "a", got begin 9, want 8`},
		"overlap":                {build(strings.Replace(twoTensors, "[8,11]", "[7,10]", 1), strings.Repeat("x", 11)), "b", -1, `overlap those of tensor "a", got begin 7, want 8`},
		"same bytes twice":       {build(strings.Replace(twoTensors, `"U8","shape":[3],"data_offsets":[8,11]`, `"U8","shape":[8],"data_offsets":[0,8]`, 1), "12345678"), "b", -1, "overlap"},
		"very deep":              {build(`{"w":`+strings.Repeat("[", 100000), ""), "w", -1, `entry: got "["`},
		"long name in the error": {build(`{"`+strings.Repeat("n", 1000)+`":1}`, ""), strings.Repeat("n", 1000), -1, `entry: got "1"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.file)
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.Equal(t, c.tensor, format.Tensor)
			require.Contains(t, format.Reason, c.reason)
			require.LessOrEqual(t, format.Offset, int64(len(c.file)))
			if c.offset >= 0 {
				require.Equal(t, c.offset, format.Offset)
			}
			require.Contains(t, err.Error(), fmt.Sprintf("(at byte %d)", format.Offset))
			require.Less(t, len(err.Error()), 400)
		})
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "two.safetensors")
	require.NoError(t, os.WriteFile(path, build(twoTensors, "aaaabbbbccc"), 0o644))
	f, err := Open(path)
	require.NoError(t, err)
	got, err := f.Bytes("b")
	require.NoError(t, err)
	require.Equal(t, "ccc", string(got))

	// What was opened stays readable when the file is replaced.
	require.NoError(t, WriteFile(path, []Entry{{Name: "c", DType: U8, Shape: []int64{1}, Data: []byte{1}}}, nil))
	require.Equal(t, "ccc", string(got))
	require.NoError(t, f.Close())

	_, err = f.Bytes("b")
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorContains(t, err, path)
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(dir)
	require.Error(t, err)

	for name, content := range map[string][]byte{"empty": nil, "cut": build(twoTensors, "aaaabbbbcc")} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o644))
		_, err = Open(path)
		var format *FormatError
		require.True(t, errors.As(err, &format))
		require.Equal(t, path, format.Path)
		require.ErrorContains(t, err, path)
	}
}
