package attention

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/matmul"
	"github.com/plait-ml/plait/gpu/shader"
)

// Programs of attention compute the scores block by block in registers and never store them. The block of a workgroup has 64 rows, which
// are queries or keys, and 32 columns, which are the other; an invocation has 4 x 4 scores. Factors pass through workgroup memory, of which
// a workgroup uses less than 16 KiB: with more, NVIDIA's driver runs one or two workgroups on a multiprocessor instead of four.

const (
	blockSide    = matmul.FoldedBlock
	blockSpan    = 32
	blockThreads = 128
	blockAcross  = blockSpan / 4 // invocations across a block
	blockK       = 16            // elements of K that are in workgroup memory at a time
)

// A headOperand is an operand [batch, heads, length, dim] of such a program. All fields but the last two are expressions.
type headOperand struct {
	name, first, batch, head, row string
	rows, dim                     string
	vec4                          bool // vectors can be accessed as vec4
	size                          int  // value of dim
}

// newHeadOperand binds an operand.
func newHeadOperand(s *shader.Builder, name string, o *core.Operand, rows, dim string, out bool) headOperand {
	v := headOperand{name: name, rows: rows, dim: dim, size: o.Shape[3]}
	v.vec4 = s.Flag(v.size%4 == 0 && s.Aligned(o, o.Strides[:3]...))
	switch { // the text depends on divisibility only
	case v.size == 0:
		s.Specialize(0)
	case v.size%blockSide == 0:
		s.Specialize(1)
	case v.size%(2*blockK) == 0:
		s.Specialize(2)
	default:
		s.Specialize(3)
	}
	if out {
		v.first = s.Out(name, o, expr.F32, expr.Number)
	} else {
		v.first = s.In(name, o, expr.F32, expr.Number)
	}
	s.Bindings[len(s.Bindings)-1].Vec4 = v.vec4
	v.batch, v.head, v.row = s.Uint(o.Strides[0]), s.Uint(o.Strides[1]), s.Uint(o.Strides[2])
	return v
}

// at returns the declaration of at_NAME, the index of a head's first element.
func (v *headOperand) at(batch, head string) string {
	return fmt.Sprintf("  let at_%s = %s + %s * %s + %s * %s;\n", v.name, v.first, batch, v.batch, head, v.head)
}

// fetch returns statements that load four elements of a vector to a register, from element col on, a multiple of four. Elements beyond the
// vector's end are zero. With bounded, so are those of rows beyond the last.
func (v *headOperand) fetch(register, row, col string, bounded bool) string {
	var tests []string
	if bounded {
		tests = append(tests, row+" < "+v.rows)
	}
	if v.size%blockSide != 0 {
		tests = append(tests, col+" < "+v.dim)
	}
	position := fmt.Sprintf("at_%s + (%s) * %s + %s", v.name, row, v.row, col)
	value := fmt.Sprintf("%s = %s[(%s) >> 2u];", register, v.name, position)
	if !v.vec4 {
		value = "let first = " + position + ";"
		for i := range 4 {
			value += fmt.Sprintf(" if (%s + %du < %s) { %s.%s = ld_%s(first + %du); }", col, i, v.dim, register, shader.Component(i), v.name, i)
		}
	}
	if len(tests) == 0 && v.vec4 {
		return fmt.Sprintf("    %s\n", value)
	}
	if len(tests) == 0 {
		return fmt.Sprintf("    %s = real4();\n    { %s }\n", register, value)
	}
	return fmt.Sprintf("    %s = real4();\n    if (%s) { %s }\n", register, strings.Join(tests, " && "), value)
}

// A blockText writes a program that iterates over blocks of scores.
type blockText struct {
	*shader.Text
	unroll bool
	groups int    // columns of the result, in groups of 64
	column string // the first column
}

// memory declares workgroup memory: sh_x and sh_y for the two factors of scores, and sh_p for a block of weights. sh_x is also used for the
// rows that the block is multiplied with.
func (b *blockText) memory() {
	b.Shared("sh_x", shader.Real4, blockK, b.width())
	b.Shared("sh_y", shader.Real4, blockK, blockSpan/4+1)
	b.Shared("sh_p", shader.Real4, blockSpan, blockSide/4)
}

func (b *blockText) width() int { return max(blockSide/4+1, b.groups*blockSide/4) }

// workgroupBytes returns the bytes of workgroup memory that memory declares.
func (b *blockText) workgroupBytes() int {
	return 16*blockK*(b.width()+blockSpan/4+1) + 4*blockSide*blockSpan
}

// loadsX and loadsY are how many vec4 of each factor of scores an invocation loads at a time. loads is the number for the rows that a block
// is multiplied with.
const (
	loadsX = blockSide * blockK / 4 / blockThreads
	loadsY = blockSpan * blockK / 4 / blockThreads
)

func (b *blockText) loads() int { return b.groups * blockSide * blockK / 4 / blockThreads }

// vec4s returns how many vec4 of a row of the result an invocation accumulates.
func (b *blockText) vec4s() int { return b.groups * blockSide / 4 / blockAcross }

// registers declares the registers for loads.
func (b *blockText) registers() {
	for l := range loadsX {
		b.Add("  var x%d: real4;", l)
	}
	for l := range loadsY {
		b.Add("  var y%d: real4;", l)
	}
	for l := range b.loads() {
		b.Add("  var v%d: real4;", l)
	}
}

// outerFactors are the factors of a product of vectors by outer: the vectors of x from row x0 on and those of y from row y0 on. With
// bounded, vectors of y beyond the last row are zero instead of arbitrary.
type outerFactors struct {
	x, y           *headOperand
	x0, y0         string
	bounded        bool
	doubleBuffered bool // every second part uses the memory of sh_p
}

// fetchOuter starts the loads of the first part of a product by outer. It is called early, so that the latency of memory is hidden.
func (b *blockText) fetchOuter(f outerFactors) { b.fetchPart(f, "0u") }

func (b *blockText) fetchPart(f outerFactors, at string) {
	for l := range loadsX {
		row, along := position(blockSide, l)
		b.Put(f.x.fetch(fmt.Sprintf("x%d", l), f.x0+" + "+row, at+" + "+along, false))
	}
	for l := range loadsY {
		row, along := position(blockSpan, l)
		b.Put(f.y.fetch(fmt.Sprintf("y%d", l), f.y0+" + "+row, at+" + "+along, f.bounded))
	}
}

// position returns expressions for the vector that load l of an invocation belongs to, and for the element in it. Two neighbouring
// invocations read 32 contiguous bytes.
func position(vectors, l int) (row, along string) {
	e := fmt.Sprintf("(li + %du)", l*blockThreads)
	return fmt.Sprintf("%s / 2u %% %du", e, vectors), fmt.Sprintf("(%s / %du * 8u + li %% 2u * 4u)", e, 2*vectors)
}

// open opens the main function. It defines tx and ty: an invocation has rows 4 ty + i and columns 4 tx + j of a block.
func (b *blockText) open() {
	b.Main(blockThreads)
	matmul.Lanes(b.Text, blockAcross)
}

// accumulators declares registers NAME_I_H, set to zero, for a number of vec4 of each row I.
func (b *blockText) accumulators(name string, vec4s int) {
	for i := range 4 {
		for h := range vec4s {
			b.Add("  var %s_%d_%d = real4();", name, i, h)
		}
	}
}

// eachRow writes text once for each of the four rows of an invocation. $i in it is replaced by the row, and $c by the vec4 component of
// that number.
func (b *blockText) eachRow(text string) {
	for i := range 4 {
		b.Put(strings.NewReplacer("$i", strconv.Itoa(i), "$c", shader.Component(i)).Replace(text))
	}
}

// outer adds to block NAME the products of vectors, whose first part fetchOuter has loaded. It begins with a barrier. With double
// buffering, parts are written while others are read, which needs half the barriers. It makes the forward pass 4 % faster; programs that
// need more registers get as much slower.
func (b *blockText) outer(name string, f outerFactors) {
	if f.x.size == 0 {
		b.Barrier()
		return
	}
	part := func(x, y, at string) {
		f.x.storePart(b, x, "x", blockSide, loadsX)
		f.y.storePart(b, y, "y", blockSpan, loadsY)
		b.Barrier()
		b.Add("    if (%s + %du < %s) {", at, blockK, f.x.dim)
		b.fetchPart(f, fmt.Sprintf("%s + %du", at, blockK))
		b.Add("    }")
		b.loop(blockK, func(k string) {
			turn := ""
			if x == "" {
				turn = " ^ " + partSwizzle(k)
			}
			b.Add(`      let a = %s[ty%s];
      let b0 = %s[tx%s];`, partRow(x, "x", k), turn, partRow(x, "y", k), turn)
			b.eachRow(fmt.Sprintf("      %s_$i_0 = fma(real4(a.$c), b0, %s_$i_0);\n", name, name))
		})
	}
	if f.x.size%(2*blockK) != 0 || !f.doubleBuffered {
		b.Add("  for (var d = 0u; d < %s; d += %du) {", f.x.dim, blockK)
		b.Barrier()
		part("sh_x", "sh_y", "d")
		b.Add("  }")
		return
	}
	b.Barrier()
	b.Add(`  for (var d = 0u; d < %s; d += %du) {
    {`, f.x.dim, 2*blockK)
	part("", "", "d")
	b.Add(`    }
    {`)
	part("sh_x", "sh_y", fmt.Sprintf("d + %du", blockK))
	b.Add(`    }
  }`)
}

// storePart writes the registers that fetchPart loaded to array in workgroup memory, or to sh_p if array is empty.
func (v *headOperand) storePart(b *blockText, array, register string, vectors, loads int) {
	for l := range loads {
		row, along := position(vectors, l)
		turn := ""
		if array == "" {
			turn = " ^ " + partSwizzle(along)
		}
		for i := range 4 {
			b.Add("    %s[((%s) >> 2u)%s][(li >> 1u) & 3u] = %s%d.%s;", partRow(array, register, sum(along, strconv.Itoa(i)+"u")), row, turn, register, l, shader.Component(i))
		}
	}
}

// partRow returns the expression for row along of a part of x or y in workgroup memory.
func partRow(array, of, along string) string {
	switch {
	case array != "":
		return "sh_" + of + "[" + along + "]"
	case of == "x":
		return "sh_p[" + along + "]"
	}
	return "sh_p[" + sum(along, fmt.Sprintf("%du", blockK)) + "]"
}

// partSwizzle returns the expression that the columns of row along are XORed with in sh_p, whose rows are not padded.
func partSwizzle(along string) string {
	if k, err := strconv.Atoi(strings.TrimSuffix(along, "u")); err == nil {
		return fmt.Sprintf("%du", k>>2&1<<2)
	}
	return "((" + along + ") & 4u)"
}

// loop writes a loop over k from 0 to n, or its unrolled iterations.
func (b *blockText) loop(n int, body func(k string)) {
	if !b.unroll {
		b.Add("    for (var k = 0u; k < %s; k++) {", shader.NoUnroll(n))
		body("k")
		b.Add("    }")
		return
	}
	for k := range n {
		b.Add("    {")
		body(fmt.Sprintf("%du", k))
		b.Add("    }")
	}
}

// storeBlock writes block NAME to sh_p, column by column. The rows in a column are swizzled, so that concurrent writes go to different
// banks.
func (b *blockText) storeBlock(name string) {
	b.Add(`  {
  let turn = %s;`, blockSwizzle("tx"))
	for j := range 4 {
		c := shader.Component(j)
		b.Add("  sh_p[tx * 4u + %du][ty ^ turn] = real4(%s_0_0.%s, %s_1_0.%s, %s_2_0.%s, %s_3_0.%s);", j, name, c, name, c, name, c, name, c)
	}
	b.Add("  }")
}

// blockSwizzle returns the expression that the rows in vec4 column n of a block are XORed with.
func blockSwizzle(n string) string {
	return fmt.Sprintf("(((%s & 1u) << 2u) | ((%s >> 1u) & 3u))", n, n)
}

// storeRows writes one number for each row of an invocation, NAME_I, to workgroup memory. sh_p[tx][ty] has four rows.
func (b *blockText) storeRows(name string) {
	b.Add("  sh_p[tx][ty] = real4(%s_0, %s_1, %s_2, %s_3);", name, name, name, name)
}

// fetchAdd starts the loads of the first rows of v that add multiplies with, from row0 on.
func (b *blockText) fetchAdd(v *headOperand, row0 string) { b.fetchRows(v, row0, "0u") }

func (b *blockText) fetchRows(v *headOperand, row0, at string) {
	wide := b.groups * blockSide / 4
	for l := range b.loads() {
		e := fmt.Sprintf("(li + %du)", l*blockThreads)
		b.Put(v.fetch(fmt.Sprintf("v%d", l), fmt.Sprintf("%s + %s + %s / %du", row0, at, e, wide), fmt.Sprintf("%s + %s %% %du * 4u", b.column, e, wide), true))
	}
}

// add adds to registers NAME the product of the block in sh_p and the rows of v from row0 on, the first of which fetchAdd has loaded. If it
// is unrolled, indices of workgroup memory are constants and need no bounds checks.
func (b *blockText) add(name string, v *headOperand, row0 string) {
	wide := b.groups * blockSide / 4
	part := func(c string, next func()) {
		b.Barrier()
		for l := range b.loads() {
			e := fmt.Sprintf("(li + %du)", l*blockThreads)
			b.Add("    sh_x[%s / %du][%s %% %du] = v%d;", e, wide, e, wide, l)
		}
		b.Barrier()
		next()
		b.loop(blockK, func(k string) {
			row := sum(c, k)
			b.Add("      let turn = %s;", blockSwizzle("("+row+" >> 2u)"))
			b.Add("      let a = sh_p[%s][ty ^ turn];", row)
			for h := range b.vec4s() {
				b.Add("      let b%d = sh_x[%s][%du + tx];", h, k, h*blockAcross)
			}
			for h := range b.vec4s() {
				b.eachRow(fmt.Sprintf("      %s_$i_%d = fma(real4(a.$c), b%d, %s_$i_%d);\n", name, h, h, name, h))
			}
		})
	}
	if !b.unroll {
		b.Add("    for (var c = 0u; c < %s; c += %du) {", shader.NoUnroll(blockSpan), blockK)
		part("c", func() {
			b.Add("    if (c + %du < %du) {", blockK, blockSpan)
			b.fetchRows(v, row0, fmt.Sprintf("c + %du", blockK))
			b.Add("    }")
		})
		b.Add("    }")
		return
	}
	for c := 0; c < blockSpan; c += blockK {
		part(fmt.Sprintf("%du", c), func() {
			if c+blockK < blockSpan {
				b.fetchRows(v, row0, fmt.Sprintf("%du", c+blockK))
			}
		})
	}
}

// sum returns the expression for the sum of two numbers, folded if both are constants.
func sum(a, b string) string {
	x, notX := strconv.Atoi(strings.TrimSuffix(a, "u"))
	y, notY := strconv.Atoi(strings.TrimSuffix(b, "u"))
	if notX == nil && notY == nil {
		return fmt.Sprintf("%du", x+y)
	}
	return a + " + " + b
}

// store writes registers NAME, times the expression factor, to rows of v from row0 on.
func (b *blockText) store(name string, v *headOperand, row0, factor string) {
	for h := range b.vec4s() {
		text := fmt.Sprintf("  {\n    let row = %s + ty * 4u + $iu;\n    let col = %s + (%du + tx) * 4u;\n    let v = %s_$i_%d * %s;\n    let at = at_%s + row * %s + col;\n",
			row0, b.column, h*blockAcross, name, h, factor, v.name, v.row)
		if v.vec4 {
			text += fmt.Sprintf("    if (row < %s && col < %s) { %s[at >> 2u] = v; }\n  }\n", v.rows, v.dim, v.name)
		} else {
			text += fmt.Sprintf("    if (row < %s) {\n", v.rows)
			for j := range 4 {
				text += fmt.Sprintf("      if (col + %du < %s) { st_%s(at + %du, v.%s); }\n", j, v.dim, v.name, j, shader.Component(j))
			}
			text += "    }\n  }\n"
		}
		b.eachRow(text)
	}
}
