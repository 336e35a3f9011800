package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilesAreThoseOfTheSources(t *testing.T) {
	files, err := sources("../../..")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for name, want := range files {
		got, err := os.ReadFile(name)
		if want == "" {
			require.ErrorIs(t, err, os.ErrNotExist, name)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s: run `make generate`", name)
	}
}

// parsed returns a package of one file.
func parsed(t *testing.T, source string) *pkg {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(source), 0o644))
	p, err := parse(dir)
	require.NoError(t, err)
	return p
}

func TestAttributesKeepTheOrderOfTheirKind(t *testing.T) {
	text := attributes(parsed(t, `package contract
type PoolAttrs struct { Mode PoolMode; P float64; Dim int; Seed, Offset int64; Pad bool; Rest []float64 }
type OddAttrs struct { Dim int }
func OddOf(c *core.Call) OddAttrs { return OddAttrs{1} }
type PoolMode int64
`))
	require.Contains(t, text, "func (a PoolAttrs) AddTo(c *core.Call) *core.Call { "+
		"return c.Int(int64(a.Mode), int64(a.Dim), a.Seed, a.Offset, Flag(a.Pad)).Float(a.P, a.Rest...) }")
	require.Contains(t, text, "func PoolOf(c *core.Call) PoolAttrs { "+
		"return PoolAttrs{PoolMode(c.Ints[0]), c.Floats[0], int(c.Ints[1]), c.Ints[2], c.Ints[3], c.Ints[4] != 0, c.Floats[1:]} }")
	require.NotContains(t, text, "OddAttrs", "it has functions of its own")
}

func TestVariantsAreWrittenWhereARowNamesThem(t *testing.T) {
	text := inPlace(parsed(t, `package op
// Sin returns the sine of x.
func Sin(x *core.Tensor) *core.Tensor { return sinOp.apply(nil, x) }
func Cos(x *core.Tensor) *core.Tensor { return cosOp.apply(nil, x) }
func Neg(x *core.Tensor) *core.Tensor { return negOp.apply(nil, x) }
func NegInPlace(x *core.Tensor) *core.Tensor { return x }
func Abs(x *core.Tensor) *core.Tensor {
	check("abs")
	return absOp.apply(nil, x)
}
var rows = []any{Sin, SinInPlace, Cos, Neg, NegInPlace, Abs, AbsInPlace}
`))
	require.Contains(t, text, "// SinInPlace replaces x by what [Sin] returns, and returns it.\nfunc SinInPlace(x *core.Tensor) *core.Tensor")
	require.Contains(t, text, "sinOp.applyInPlace(nil, x)")
	for _, name := range []string{"Cos", "Neg", "Abs"} { // nobody names it; it is there; it does more
		require.NotContains(t, text, name+"InPlace")
	}
}
