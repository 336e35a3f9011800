package op

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// Labels of einsum: letters are themselves, and the dimensions that an ellipsis stands for count from dots on.
const dots = 256

// Einsum returns the sum of products that equation describes in Einstein's notation: "ij,jk->ik" is the matrix product.
// Each operand has a letter for each dimension. Letters that the result does not have are summed over; a letter that an
// operand has twice takes its diagonal; an ellipsis stands for dimensions that broadcast. Without "->" the result has the
// dimensions of the ellipsis and then, sorted, the letters that appear once. Operands are contracted from left to right. Of
// integers, what is summed over letters that one operand alone has is int64.
func Einsum(equation string, operands ...*core.Tensor) *core.Tensor {
	if parts := distributed(operands...); parts != nil {
		return handOn(parts, "einsum", equation, operands)
	}
	op := begin("einsum")
	if len(operands) == 1 { // it is not multiplied, and so not cast
		op.mode = op.mode.WithoutAutocast()
	}
	op = op.list(&operands)
	if len(operands) > 1 {
		op.multipliable(operands...)
	}
	left, right, explicit := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	terms := op.einsumOperands(equation, strings.Split(left, ","), operands)
	result := op.einsumResult(equation, right, explicit, terms)
	return op.compose(func() *core.Tensor { return sumProducts(terms, result) })
}

// einsumOperands gives the operands their labels.
func (op *opContext) einsumOperands(equation string, subscripts []string, operands []*core.Tensor) []labelled {
	if op.err == nil && (len(operands) == 0 || len(subscripts) != len(operands)) {
		op.failf(core.ValueError, "%q has %d operands, got %d", equation, len(subscripts), len(operands))
	}
	if op.err != nil {
		return nil
	}
	terms := make([]labelled, len(operands))
	sizes := map[int]int{}
	for i, t := range operands {
		terms[i] = labelled{t, op.subscripts(equation, subscripts[i], t.Dim())}
		if op.err == nil && len(terms[i].labels) != t.Dim() {
			op.failf(core.ShapeError, "%q has %d dimensions for operand %d, got %v", equation, len(terms[i].labels), i, t.Shape())
		}
		if op.err != nil {
			return nil
		}
		for d, l := range terms[i].labels {
			n := t.Size(d)
			if known, ok := sizes[l]; ok && known != n && known != 1 && n != 1 {
				op.failf(core.ShapeError, "sizes of %s differ in %q, got %d and %d", labelName(l), equation, known, n)
				return nil
			}
			if sizes[l] = max(sizes[l], n); n == 0 {
				sizes[l] = 0
			}
		}
	}
	return terms
}

func labelName(l int) string {
	if l >= dots {
		return "the ellipsis"
	}
	return "'" + string(rune(l)) + "'"
}

// subscripts returns the labels that text gives to a tensor of ndim dimensions. An ellipsis takes those without a letter;
// its labels are such that the last dimensions of all of them agree.
func (op *opContext) subscripts(equation, text string, ndim int) []int {
	var labels []int
	ellipsis := false
	letters := len(text)
	if strings.Contains(text, "...") {
		letters -= 3
	}
	for len(text) > 0 {
		c := text[0]
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			labels = append(labels, int(c))
			text = text[1:]
		case strings.HasPrefix(text, "...") && !ellipsis:
			ellipsis = true
			for i := ndim - letters; i > 0; i-- {
				labels = append(labels, dots+i-1)
			}
			text = text[3:]
		default:
			op.failf(core.ValueError, "unexpected %q in %q, want letters and at most one ellipsis for each operand", text, equation)
			return nil
		}
	}
	return labels
}

// einsumResult returns the labels of the result.
func (op *opContext) einsumResult(equation, text string, explicit bool, terms []labelled) []int {
	if op.err != nil {
		return nil
	}
	count, rank := map[int]int{}, 0
	for _, t := range terms {
		for _, l := range t.labels {
			count[l]++
			rank = max(rank, l-dots+1)
		}
	}
	if !explicit {
		var result []int
		for l := dots + rank - 1; l >= dots; l-- {
			result = append(result, l)
		}
		for l := range dots {
			if count[l] == 1 {
				result = append(result, l)
			}
		}
		return result
	}
	letters := len(strings.ReplaceAll(text, "...", ""))
	result := op.subscripts(equation, text, letters+rank)
	for i, l := range result {
		switch {
		case op.err != nil:
		case slices.Contains(result[:i], l):
			op.failf(core.ValueError, "%s appears twice in the result of %q", labelName(l), equation)
		case count[l] == 0:
			op.failf(core.ValueError, "%s in the result of %q is in no operand", labelName(l), equation)
		}
	}
	return result
}

// sumProducts contracts the terms from left to right.
func sumProducts(terms []labelled, result []int) *core.Tensor {
	for i, t := range terms {
		terms[i] = t.diagonals()
		if err := terms[i].Err(); err != nil {
			return core.ErrorTensor(err)
		}
	}
	acc := terms[0]
	for i, t := range terms[1:] {
		later := terms[i+2:]
		acc = contraction(acc, t, func(l int) bool {
			return slices.Contains(result, l) || slices.ContainsFunc(later, func(u labelled) bool { return u.has(l) })
		})
		if acc.Err() != nil {
			return acc.Tensor
		}
	}
	_, summed := acc.split(func(l int) bool { return slices.Contains(result, l) })
	acc = acc.sumOver(summed)
	if acc.Err() != nil {
		return acc.Tensor
	}
	// Labels of size 1 that broadcast within one operand's diagonal or to nothing keep their dimension.
	out := acc.order(result)
	if out == terms[0].Tensor {
		return out.Alias(true)
	}
	return out
}

// diagonals takes the diagonal of every label that appears more than once.
func (x labelled) diagonals() labelled {
	for i := 0; i < len(x.labels); i++ {
		for j := len(x.labels) - 1; j > i; j-- {
			if x.labels[j] != x.labels[i] {
				continue
			}
			l := x.labels[i]
			rest := slices.Delete(slices.Clone(x.labels), j, j+1)
			rest = slices.Delete(rest, i, i+1)
			t := x.Tensor
			// A size of 1 broadcasts to the other one.
			if n := max(t.Size(i), t.Size(j)); t.Size(i) != t.Size(j) {
				shape := slices.Clone(t.Shape())
				shape[i], shape[j] = n, n
				t = Expand(t, shape...)
			}
			x = labelled{Diagonal(t, 0, i, j), append(rest, l)}
			if x.Err() != nil {
				return x
			}
			return x.diagonals()
		}
	}
	return x
}
