package op_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// naiveEinsum adds up the products for every value of every letter. Its equation has no ellipsis and an explicit result.
func naiveEinsum(t *testing.T, equation string, operands ...*core.Tensor) (shape []int, out []float64) {
	in, result, _ := strings.Cut(equation, "->")
	subscripts := strings.Split(in, ",")
	size := map[rune]int{}
	var letters []rune
	data := make([][]float64, len(operands))
	for i, x := range operands {
		data[i] = values(t, x)
		for d, l := range subscripts[i] {
			if !slices.Contains(letters, l) {
				letters = append(letters, l)
			}
			size[l] = max(size[l], x.Size(d))
		}
	}
	shape = []int{}
	for _, l := range result {
		shape = append(shape, size[l])
	}
	out = make([]float64, core.Numel(shape))
	at := map[rune]int{}
	var walk func(i int)
	walk = func(i int) {
		if i < len(letters) {
			for v := range size[letters[i]] {
				at[letters[i]] = v
				walk(i + 1)
			}
			return
		}
		product := 1.0
		for k, x := range operands {
			index := 0
			for d, l := range subscripts[k] {
				index = index*x.Size(d) + at[l]%x.Size(d) // a size of 1 broadcasts
			}
			product *= data[k][index]
		}
		index := 0
		for d, l := range result {
			index = index*shape[d] + at[l]
		}
		out[index] += product
	}
	walk(0)
	return shape, out
}

// alone reports whether there is summation over a dimension that one operand alone has.
func alone(equation string, operands []*core.Tensor) bool {
	left, result, _ := strings.Cut(equation, "->")
	count := map[rune]int{}
	for i, term := range strings.Split(left, ",") {
		seen := map[rune]bool{}
		for d, l := range []rune(term) {
			if n := operands[i].Size(d); !seen[l] && (n != 1 || len(operands) == 1) {
				seen[l] = true
				count[l]++
			}
		}
	}
	for l, n := range count {
		if n == 1 && !strings.ContainsRune(result, l) {
			return true
		}
	}
	return false
}

func TestEinsumAgreesWithItsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, c := range []struct {
		equation, explicit string // explicit is the same without ellipsis and with a result
		shapes             [][]int
	}{
		{"ij,jk->ik", "ij,jk->ik", [][]int{{2, 3}, {3, 4}}},
		{" i j , j k -> k i ", "ij,jk->ki", [][]int{{2, 3}, {3, 4}}},
		{"ij,jk", "ij,jk->ik", [][]int{{2, 3}, {3, 4}}},
		{"ba", "ba->ab", [][]int{{2, 3}}},
		{"ij", "ij->ij", [][]int{{2, 3}}},
		{"ii", "ii->", [][]int{{3, 3}}},
		{"ii->i", "ii->i", [][]int{{3, 3}}},
		{"iji->j", "iji->j", [][]int{{3, 2, 3}}},
		{"iiii->i", "iiii->i", [][]int{{2, 2, 2, 2}}},
		{"ijij->ji", "ijij->ji", [][]int{{2, 3, 2, 3}}},
		{"...ii->...i", "abii->abi", [][]int{{2, 3, 4, 4}}},
		{"ijk,kj,ii->ij", "ijk,kj,ii->ij", [][]int{{2, 3, 4}, {4, 3}, {2, 2}}},
		{"i,i,i->i", "i,i,i->i", [][]int{{3}, {3}, {3}}},
		{"i,i,i", "i,i,i->", [][]int{{3}, {3}, {3}}},
		{"a,b,c->cab", "a,b,c->cab", [][]int{{2}, {3}, {4}}},
		{"...ij,...jk", "abij,bjk->abik", [][]int{{2, 3, 2, 4}, {3, 4, 5}}},
		{"...ij,...jk->...ik", "abij,abjk->abik", [][]int{{2, 1, 2, 4}, {1, 3, 4, 5}}},
		{"...,...->...", "abc,bc->abc", [][]int{{2, 3, 4}, {3, 4}}},
		{"...i->i", "abi->i", [][]int{{2, 3, 4}}},
		{"i...->...i", "iab->abi", [][]int{{2, 3, 4}}},
		{"i...", "iab->abi", [][]int{{2, 3, 4}}},
		{"...i,...i->...", "i,i->", [][]int{{4}, {4}}},
		{"Ab,bC", "Ab,bC->AC", [][]int{{2, 3}, {3, 4}}},
		{"bA", "bA->Ab", [][]int{{2, 3}}},
		{"ij,ij->ij", "ij,ij->ij", [][]int{{1, 3}, {2, 1}}},
		{"ij,jk->ik", "ij,jk->ik", [][]int{{2, 1}, {3, 4}}},
		{"ij,jk->ik", "ij,jk->ik", [][]int{{2, 3}, {1, 4}}},
		{"ij,kl->", "ij,kl->", [][]int{{2, 3}, {2, 2}}},
		{"ij->j", "ij->j", [][]int{{0, 3}}},
		{"ij,jk->ik", "ij,jk->ik", [][]int{{2, 0}, {0, 3}}},
		{"bqhd,bkhd->bhqk", "bqhd,bkhd->bhqk", [][]int{{2, 3, 2, 4}, {2, 5, 2, 4}}},
		{"bhqk,bkhd->bqhd", "bhqk,bkhd->bqhd", [][]int{{2, 2, 3, 5}, {2, 5, 2, 4}}},
		{"abcd,bd,adc->ac", "abcd,bd,adc->ac", [][]int{{2, 3, 2, 3}, {3, 3}, {2, 3, 2}}},
	} {
		for _, d := range []core.DType{core.Float64, core.Float16, core.Int32} {
			t.Run(fmt.Sprint(c.equation, c.shapes, d), func(t *testing.T) {
				var operands []*core.Tensor
				for _, s := range c.shapes {
					operands = append(operands, integral(r, d, s...))
				}
				got := op.Einsum(c.equation, operands...)
				require.NoError(t, got.Err())
				shape, want := naiveEinsum(t, c.explicit, operands...)
				require.Equal(t, shape, append([]int{}, got.Shape()...))
				if d == core.Int32 && alone(c.explicit, operands) {
					require.Equal(t, core.Int64, got.DType()) // as sums are
				} else {
					require.Equal(t, d, got.DType())
				}
				if len(want) > 0 {
					require.Equal(t, want, values(t, got))
				}
			})
		}
	}
}

func TestEinsumResultIsNotItsOperand(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	y := op.Einsum("ij->ij", x)
	require.NotSame(t, x, y)
	y.Release()
	require.Equal(t, []float64{1, 2, 3, 4}, values(t, x))
}

func TestEinsumErrors(t *testing.T) {
	f := func(shape ...int) *core.Tensor { return core.FromSlice(make([]float32, core.Numel(shape)), shape...) }
	for want, got := range map[string]*core.Tensor{
		`einsum: "ij,jk" has 2 operands, got 1`:                          op.Einsum("ij,jk", f(2, 3)),
		`einsum: "ij" has 2 dimensions for operand 0, got [2 3 4]`:       op.Einsum("ij", f(2, 3, 4)),
		`einsum: "...ijk" has 3 dimensions for operand 0, got [2 3]`:     op.Einsum("...ijk", f(2, 3)),
		`einsum: sizes of 'j' differ in "ij,jk", got 3 and 4`:            op.Einsum("ij,jk", f(2, 3), f(4, 2)),
		`einsum: sizes of 'i' differ in "ii", got 2 and 3`:               op.Einsum("ii", f(2, 3)),
		`einsum: sizes of the ellipsis differ in "...,...", got 3 and 2`: op.Einsum("...,...", f(3), f(2)),
		`einsum: 'k' in the result of "ij->ik" is in no operand`:         op.Einsum("ij->ik", f(2, 3)),
		`einsum: 'i' appears twice in the result of "ij->ii"`:            op.Einsum("ij->ii", f(2, 3)),
		`einsum: dtypes differ, got float32 and int64`:                   op.Einsum("i,i", f(1), core.FromSlice([]int64{1}, 1)),
		`einsum: "" has 1 operands, got 0`:                               op.Einsum(""),
		`einsum: tensor 0 of the list is nil`:                            op.Einsum("i", nil),
	} {
		require.EqualError(t, got.Err(), want)
	}
	for _, equation := range []string{"i.j", "i1", "......", "i->j->k", "i,,j", "..i", "i-j", "i(j)"} {
		got := op.Einsum(equation, f(2, 2))
		require.ErrorContains(t, got.Err(), "einsum: ", equation)
	}
}
