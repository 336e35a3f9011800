package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/op"
)

// entries returns the reference by operation.
func entries(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	python, err := os.ReadFile(filepath.Join(root, "internal/coverage/python.txt"))
	require.NoError(t, err)
	m := &manual{python: pythonSignatures(string(python))}
	m.sources, err = parseSources(filepath.Join(root, "core/op"))
	require.NoError(t, err)
	out := map[string]string{}
	for _, page := range m.pages(families(op.Rows())) {
		for _, entry := range strings.Split(page, "\n## ")[1:] {
			name, text, _ := strings.Cut(entry, "\n")
			require.Empty(t, out[name], "%s stands twice in the reference", name)
			out[name] = text
		}
	}
	return out
}

// TestTheReferenceSaysEverything wants each part of each operation's entry.
func TestTheReferenceSaysEverything(t *testing.T) {
	all := entries(t)
	for _, r := range op.Rows() {
		parts := []string{"- Go: `op.", "- C: `plait_", "- Gradient: "}
		if r.InPlace != nil && r.Func != nil {
			parts = append(parts, "- In place: ")
		}
		if r.Func != nil {
			parts = append(parts, "- Shapes: `(")
			if len(r.Args) > 0 && r.Args[0].Name == "input" && r.Family != "creation" && r.Family != "random" {
				parts = append(parts, "- Dtypes: ")
			}
		}
		for _, part := range parts {
			require.Contains(t, all[r.Name], part, r.Name)
		}
		require.NotRegexp(t, `0x[0-9a-f]{6}|<nil>|map\[|&\{`, all[r.Name], "%s: an argument that is printed raw", r.Name)
	}
	require.Equal(t, all, entries(t), "made again, it is the same")
	require.Len(t, all, len(op.Rows()))
}

func TestEntriesOfTheReference(t *testing.T) {
	all := entries(t)
	for name, lines := range map[string][]string{
		"cumsum": {
			"- Python: `plait.cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor`",
			"- Python: `Tensor.cumsum(dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor`",
			"- Go: `op.CumSumWith(x *core.Tensor, dim int, o ScanOptions) *core.Tensor`",
			"- In place: `Tensor.cumsum_(dim: int, *, dtype: DType | None = None) -> Tensor`", "- In place: `op.CumSumInPlace`, `plait_cumsum_in_place`",
			"`([3, 4], -1)` → `[3, 4]`",
			"- Dtypes: float16, bfloat16, float32, float64, int64, complex64, complex128 → the same; bool, uint8, uint16, int8, int16, int32 → int64",
			"- Autocast: to float32 on a GPU",
		},
		"float_power":     {"- GPU: none: the result is float64"},
		"cross_entropy":   {"- Python: `plait.nn.functional.cross_entropy(input: Tensor, target", "An index that is no class"},
		"special_i1":      {"- Python: `plait.special.i1(input: Tensor"},
		"gather":          {"- Gradient: of `input`"},
		"unique":          {"- Waits: ", "- Gradient: none: "},
		"special_airy_ai": {"- Gradient: none: its derivative"},
	} {
		for _, line := range lines {
			require.Contains(t, all[name], line, name)
		}
	}
}
