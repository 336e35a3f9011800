package checkpoint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDamagedIndex(t *testing.T) {
	dir := t.TempDir()
	saveAs(t, dir, byRows, 2)
	path := filepath.Join(dir, indexName)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, c := range []struct{ old, new, wants string }{
		{`"version": 1`, `"version": 2`, "has version 2, this program reads 1"},
		{indexKind, "other", "is no index of a checkpoint"},
		{"{", "", "is damaged or no index"},
		{`"dtype": "F32"`, `"dtype": "F33"`, "has the unknown dtype"},
		{`"file": 1`, `"file": 2`, "has the wrong number of dimensions or an unknown file"},
		{`.safetensors"`, `/../x.safetensors"`, "lists the invalid file name"},
		{`"n": 3`, `"n": 2`, "its checksum does not match"},
		{`"crc32c": "`, `"crc32c": "0`, "its checksum does not match"},
	} {
		require.Contains(t, string(text), c.old)
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o666))
		_, err := Load(dir, State{}, nil)
		assert.ErrorContains(t, err, c.wants)
		assert.ErrorContains(t, err, path)
	}
}

func FuzzIndex(f *testing.F) {
	dir := f.TempDir()
	if err := Save(dir, State{Pieces: []Piece{{Name: "w", Tensor: op.Ones(3)}}}, nil); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, indexName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, indexName), text, 0o666); err != nil {
			t.Fatal(err)
		}
		w := op.Zeros(3)
		_, _ = Load(dir, State{Pieces: []Piece{{Name: "w", Tensor: w}}}, nil) // must not panic or read outside
		w.Release()
	})
}

// Case 53: the files of the old checkpoint stay until the new index is in place.
func TestCase53IndexCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	saveAs(t, dir, byRows, 2)
	sv, err := beginSave(dir, State{Pieces: []Piece{{Name: "new", Tensor: op.Ones(3)}}}, world{})
	require.NoError(t, err)
	sv.index.Values["broken"] = json.RawMessage("{")
	require.ErrorContains(t, sv.finish(world{}), "JSON")
	want := piecesOf(byRows, 0, 1)
	got := blank(want)
	_, err = Load(dir, State{Pieces: got}, nil)
	require.NoError(t, err)
	require.NoError(t, equalPieces(got, want))
}
