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

// Programs of attention compute the scores by blocks, in registers. A workgroup holds a block of 64 rows, queries or keys, and 32 columns
// of the other; each invocation has 4 x 4 scores. The columns come through workgroup memory. They take less than 16 KiB: with more,
// NVIDIA's driver runs only one or two workgroups per multiprocessor instead of four. Scores are never stored.

const (
	blockSide    = matmul.FoldedBlock
	blockSpan    = 32
	blockThreads = 128
	blockAcross  = blockSpan / 4 // invocations along the columns of a block
	blockK       = 16            // how many elements of K are in workgroup memory at a time
)

// A headOperand is an operand [batch, heads, length, dim] of such a program. All but the last two fields are expressions.
type headOperand struct {
	name, first, batch, head, row string
	rows, dim                     string
	vec4                          bool // elements can be accessed as vec4
	size                          int  // dim
}

// newHeadOperand binds an operand. The program declares at_NAME, the index of the head's first element.
func newHeadOperand(s *shader.Builder, name string, o *core.Operand, rows, dim string, out bool) headOperand {
	v := headOperand{name: name, rows: rows, dim: dim, size: o.Shape[3]}
	v.vec4 = s.Flag(v.size%4 == 0 && shader.Aligned(o, o.Strides[:3]...))
	switch { // what the text depends on
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

// at declares the index of the first element of a head.
func (v *headOperand) at(batch, head string) string {
	return fmt.Sprintf("  let at_%s = %s + %s * %s + %s * %s;\n", v.name, v.first, batch, v.batch, head, v.head)
}

// fetch returns statements that set a register to four elements from a multiple of four on, zeros beyond the vector's end, and
// beyond the last row where bounded says so.
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

// A blockText is the text of a program of blocks.
type blockText struct {
	*shader.Text
	unroll bool
	groups int    // of 64 columns of what add adds to
	column string // the first of them
}

// memory declares workgroup memory: parts of the two factors of a product of vectors, the first of which makes place for rows
// of what a block is multiplied with, and the block.
func (b *blockText) memory() {
	b.Shared("sh_x", shader.Real4, blockK, b.width())
	b.Shared("sh_y", shader.Real4, blockK, blockSpan/4+1)
	b.Shared("sh_p", shader.Real4, blockSpan, blockSide/4)
}

func (b *blockText) width() int { return max(blockSide/4+1, b.groups*blockSide/4) }

// room returns how many bytes memory declares.
func (b *blockText) room() int {
	return 16*blockK*(b.width()+blockSpan/4+1) + 4*blockSide*blockSpan
}

// How many vec4 an invocation loads of the parts of the factors of a product of vectors; loads returns how many of the rows of
// what a block is multiplied with.
const (
	loadsX = blockSide * blockK / 4 / blockThreads
	loadsY = blockSpan * blockK / 4 / blockThreads
)

func (b *blockText) loads() int { return b.groups * blockSide * blockK / 4 / blockThreads }

// vec4s returns how many vec4 of a row of the results an invocation has.
func (b *blockText) vec4s() int { return b.groups * blockSide / 4 / blockAcross }

// registers defines those that the factors go through.
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

// An outerFactors is what outer multiplies: vectors of x from row x0 on, and of y from y0 on. bounded makes those of y beyond the last
// row zero instead of whatever is there.
type outerFactors struct {
	x, y    *headOperand
	x0, y0  string
	bounded bool
	paired  bool // every other part goes to where blocks are put
}

// fetchOuter loads the first part of what outer is to multiply. It comes some time before, so that nobody waits for memory.
func (b *blockText) fetchOuter(f outerFactors) { b.fetchPart(f, "0u") }

func (b *blockText) fetchPart(f outerFactors, at string) {
	for l := range loadsX {
		row, along := place(blockSide, l)
		b.Put(f.x.fetch(fmt.Sprintf("x%d", l), f.x0+" + "+row, at+" + "+along, false))
	}
	for l := range loadsY {
		row, along := place(blockSpan, l)
		b.Put(f.y.fetch(fmt.Sprintf("y%d", l), f.y0+" + "+row, at+" + "+along, f.bounded))
	}
}

// place returns an expression for which of so many vectors, and where along it, load l of an invocation is of. Two neighbours read 32
// bytes of one.
func place(vectors, l int) (row, along string) {
	e := fmt.Sprintf("(li + %du)", l*blockThreads)
	return fmt.Sprintf("%s / 2u %% %du", e, vectors), fmt.Sprintf("(%s / %du * 8u + li %% 2u * 4u)", e, 2*vectors)
}

// open begins main and defines an invocation's place: rows 4 ty + i and columns 4 tx + j of a block.
func (b *blockText) open() {
	b.Main(blockThreads)
	matmul.Lanes(b.Text, blockAcross)
}

// accumulators defines registers NAME_I_H, zero: so many vec4 of row I.
func (b *blockText) accumulators(name string, vec4s int) {
	for i := range 4 {
		for h := range vec4s {
			b.Add("  var %s_%d_%d = real4();", name, i, h)
		}
	}
}

// eachRow writes text for the rows of an invocation: $i in it stands for a row, $c for its component of a vec4.
func (b *blockText) eachRow(text string) {
	for i := range 4 {
		b.Put(strings.NewReplacer("$i", strconv.Itoa(i), "$c", shader.Component(i)).Replace(text))
	}
}

// outer adds to block NAME the products of vectors that fetchOuter began to load. It begins with a barrier. Paired parts are
// written while others are read, between half the barriers: forward gains 4 % by that, and where more registers are in use as much is
// lost.
func (b *blockText) outer(name string, f outerFactors) {
	if f.x.size == 0 {
		b.Barrier()
		return
	}
	part := func(x, y, at string) {
		f.x.stage(b, x, "x", blockSide, loadsX)
		f.y.stage(b, y, "y", blockSpan, loadsY)
		b.Barrier()
		b.Add("    if (%s + %du < %s) {", at, blockK, f.x.dim)
		b.fetchPart(f, fmt.Sprintf("%s + %du", at, blockK))
		b.Add("    }")
		b.steps(blockK, func(k string) {
			turn := ""
			if x == "" {
				turn = " ^ " + turnedAlong(k)
			}
			b.Add(`      let a = %s[ty%s];
      let b0 = %s[tx%s];`, partRow(x, "x", k), turn, partRow(x, "y", k), turn)
			b.eachRow(fmt.Sprintf("      %s_$i_0 = fma(real4(a.$c), b0, %s_$i_0);\n", name, name))
		})
	}
	if f.x.size%(2*blockK) != 0 || !f.paired {
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

// stage writes registers of vectors, which fetchPart loaded, to workgroup memory ARRAY, or for "" to where blocks are put.
func (v *headOperand) stage(b *blockText, array, register string, vectors, loads int) {
	for l := range loads {
		row, along := place(vectors, l)
		turn := ""
		if array == "" {
			turn = " ^ " + turnedAlong(along)
		}
		for i := range 4 {
			b.Add("    %s[((%s) >> 2u)%s][(li >> 1u) & 3u] = %s%d.%s;", partRow(array, register, sum(along, strconv.Itoa(i)+"u")), row, turn, register, l, shader.Component(i))
		}
	}
}

// partRow returns an expression for the elements of the vectors x or y at a position along K of a part.
func partRow(array, of, along string) string {
	switch {
	case array != "":
		return "sh_" + of + "[" + along + "]"
	case of == "x":
		return "sh_p[" + along + "]"
	}
	return "sh_p[" + sum(along, fmt.Sprintf("%du", blockK)) + "]"
}

// turnedAlong returns an expression for what places at a position along K of a part are turned by where rows are not padded.
func turnedAlong(along string) string {
	if k, err := strconv.Atoi(strings.TrimSuffix(along, "u")); err == nil {
		return fmt.Sprintf("%du", k>>2&1<<2)
	}
	return "((" + along + ") & 4u)"
}

// steps writes a loop over k from 0 to n, or its iterations one after the other.
func (b *blockText) steps(n int, body func(k string)) {
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

// put writes a block to workgroup memory, column by column. Columns are turned so that what invocations write at a time lies in
// different banks.
func (b *blockText) put(name string) {
	b.Add(`  {
  let turn = %s;`, turned4("tx"))
	for j := range 4 {
		c := shader.Component(j)
		b.Add("  sh_p[tx * 4u + %du][ty ^ turn] = real4(%s_0_0.%s, %s_1_0.%s, %s_2_0.%s, %s_3_0.%s);", j, name, c, name, c, name, c, name, c)
	}
	b.Add("  }")
}

// turned4 returns an expression for what the places of rows are turned by in the columns of vec4 number n.
func turned4(n string) string { return fmt.Sprintf("(((%s & 1u) << 2u) | ((%s >> 1u) & 3u))", n, n) }

// rows writes one number for each row of an invocation, NAME_I, to workgroup memory: sh_p[tx] has four rows in each place.
func (b *blockText) rows(name string) {
	b.Add("  sh_p[tx][ty] = real4(%s_0, %s_1, %s_2, %s_3);", name, name, name, name)
}

// fetchAdd loads the first of the rows of v, from row0 on, that add is to multiply with.
func (b *blockText) fetchAdd(v *headOperand, row0 string) { b.fetchRows(v, row0, "0u") }

func (b *blockText) fetchRows(v *headOperand, row0, at string) {
	wide := b.groups * blockSide / 4
	for l := range b.loads() {
		e := fmt.Sprintf("(li + %du)", l*blockThreads)
		b.Put(v.fetch(fmt.Sprintf("v%d", l), fmt.Sprintf("%s + %s + %s / %du", row0, at, e, wide), fmt.Sprintf("%s + %s %% %du * 4u", b.column, e, wide), true))
	}
}

// add adds to registers NAME the product of the block that was put and the rows of v from row0 on, which fetchAdd began to
// load. Where it is unrolled, places in workgroup memory are constants, which are not checked.
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
		b.steps(blockK, func(k string) {
			row := sum(c, k)
			b.Add("      let turn = %s;", turned4("("+row+" >> 2u)"))
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

// sum returns an expression for the sum of two numbers: a constant if both are.
func sum(a, b string) string {
	x, notX := strconv.Atoi(strings.TrimSuffix(a, "u"))
	y, notY := strconv.Atoi(strings.TrimSuffix(b, "u"))
	if notX == nil && notY == nil {
		return fmt.Sprintf("%du", x+y)
	}
	return a + " + " + b
}

// store writes registers NAME, times what factor says for a row, to rows of v from row0 on.
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
