package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/stretchr/testify/require"
)

// patient is a timeout that no rank should reach.
var patient = collective.Options{Timeout: 2 * time.Minute}

// shapes are the whole tensors of the tests: divisible, not divisible, smaller than the world size, empty, and 0-d.
var shapes = map[string][]int{"even": {8, 3}, "odd": {7, 2, 2}, "few": {2, 5}, "none": {0, 4}, "scalar": {}, "vector": {5}}

var dtypesOf = map[string]core.DType{"even": core.Float32, "odd": core.Float64, "few": core.BFloat16, "none": core.Float32, "scalar": core.Int64, "vector": core.Bool}

// number returns a whole tensor whose elements are their own indices.
func number(name string) *core.Tensor {
	n := box{Shape: shapes[name]}.count()
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i%2 + len(name)*(1-i%2))
	}
	return op.To(op.Reshape(core.FromSlice(v), shapes[name]...), dtypesOf[name])
}

// span returns the rows of dimension 0 that rank r of n holds in an FSDP shard.
func span(rows, r, n int) (begin, end int) {
	size := (rows + n - 1) / n
	return min(r*size, rows), min((r+1)*size, rows)
}

// A layout gives a rank its pieces of a tensor.
type layout func(name string, r, n int) []Piece

func replicated(name string, r, n int) []Piece {
	return []Piece{{Name: name, Tensor: number(name)}}
}

func byRows(name string, r, n int) []Piece {
	whole := number(name)
	if whole.Dim() == 0 {
		return replicated(name, r, n)
	}
	begin, end := span(whole.Shape()[0], r, n)
	offset := make([]int, whole.Dim())
	offset[0] = begin
	return []Piece{{Name: name, Tensor: op.Narrow(whole, 0, begin, end-begin), Shape: whole.Shape(), Offset: offset}}
}

func byColumns(name string, r, n int) []Piece {
	whole := number(name)
	d := whole.Dim() - 1
	if d < 1 {
		return byRows(name, r, n)
	}
	begin, end := span(whole.Shape()[d], r, n)
	offset := make([]int, whole.Dim())
	offset[d] = begin
	return []Piece{{Name: name, Tensor: op.Narrow(whole, d, begin, end-begin), Shape: whole.Shape(), Offset: offset}}
}

// oneEach gives every tensor to one rank, as pipeline stages hold them.
func oneEach(name string, r, n int) []Piece {
	if len(name)%n != r {
		return nil
	}
	return replicated(name, r, n)
}

// rowsOfPairs shards within pairs of ranks and replicates across the pairs, as hybrid sharding does.
func rowsOfPairs(name string, r, n int) []Piece { return byRows(name, r%2, min(n, 2)) }

var layouts = map[string]layout{"replicated": replicated, "rows": byRows, "columns": byColumns, "one each": oneEach, "pairs": rowsOfPairs}

func piecesOf(l layout, r, n int) (all []Piece) {
	for name := range shapes {
		all = append(all, l(name, r, n)...)
	}
	return all
}

// blank replaces the pieces' tensors by zeros.
func blank(pieces []Piece) []Piece {
	out := slices.Clone(pieces)
	for i, p := range out {
		out[i].Tensor = op.ZerosLike(p.Tensor, op.TensorOptions{})
	}
	return out
}

func equalPieces(got, want []Piece) error {
	for i, p := range want {
		g, err := core.Values[float64](op.To(got[i].Tensor, core.Float64))
		if err != nil {
			return err
		}
		w, err := core.Values[float64](op.To(p.Tensor, core.Float64))
		if err != nil {
			return err
		}
		if !slices.Equal(g, w) {
			return fmt.Errorf("tensor %s: got %v, want %v", p.Name, g, w)
		}
	}
	return nil
}

// ranks runs fn on n ranks.
func ranks(n int, fn func(r *collective.Rank) error) error {
	return collective.Spawn(n, []string{"cpu:0"}, patient, fn)
}

func saveAs(t *testing.T, dir string, l layout, n int) {
	require.NoError(t, ranks(n, func(r *collective.Rank) error {
		return Save(dir, State{Pieces: piecesOf(l, r.Rank, n), Values: map[string]json.RawMessage{"step": json.RawMessage(`{"n": 3}`)}}, r.World)
	}))
}
