package gpu

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// Programs of attention go through the scores by blocks, in registers: a workgroup of 256 invocations holds a block of 64
// rows, queries or keys, and 64 columns of the other, each invocation 4 x 4 of them. What is not the block's own comes
// through workgroup memory. Nothing of the size of the scores is ever stored.

const (
	blockSide    = 64
	blockThreads = 256
)

// A vectors is an operand [batch, heads, length, dim] of a program of blocks. Its fields are WGSL but for the last.
type vectors struct {
	name, first, batch, head, row string
	rows, dim                     string
	four                          bool // elements can be accessed by fours
	size                          int  // dim
}

// vectors binds an operand. The program declares at_NAME, the index of the head's first element.
func (s *shader) vectors(name string, o *core.Operand, rows, dim string, out bool) vectors {
	v := vectors{name: name, rows: rows, dim: dim, size: o.Shape[3]}
	v.four = s.flag(v.size%4 == 0 && aligned(o, o.Strides[:3]...))
	s.flag(v.size%blockSide != 0)
	s.flag(v.size == 0)
	if out {
		v.first = s.out(name, o, expr.F32, expr.Number)
	} else {
		v.first = s.in(name, o, expr.F32, expr.Number)
	}
	s.binds[len(s.binds)-1].four = v.four
	v.batch, v.head, v.row = s.uint(o.Strides[0]), s.uint(o.Strides[1]), s.uint(o.Strides[2])
	return v
}

// at declares the index of the first element of a head.
func (v *vectors) at(batch, head string) string {
	return fmt.Sprintf("  let at_%s = %s + %s * %s + %s * %s;\n", v.name, v.first, batch, v.batch, head, v.head)
}

// fetch returns statements that set a register to four elements from a multiple of four on, zeros beyond the vector's end, and
// beyond the last row where bounded says so.
func (v *vectors) fetch(register, row, col string, bounded bool) string {
	var tests []string
	if bounded {
		tests = append(tests, row+" < "+v.rows)
	}
	if v.size%blockSide != 0 {
		tests = append(tests, col+" < "+v.dim)
	}
	position := fmt.Sprintf("at_%s + (%s) * %s + %s", v.name, row, v.row, col)
	value := fmt.Sprintf("%s = %s[(%s) >> 2u];", register, v.name, position)
	if !v.four {
		value = "let first = " + position + ";"
		for i := range 4 {
			value += fmt.Sprintf(" if (%s + %du < %s) { %s.%c = ld_%s(first + %du); }", col, i, v.dim, register, "xyzw"[i], v.name, i)
		}
	}
	if len(tests) == 0 && v.four {
		return "    " + value + "\n"
	}
	if len(tests) == 0 {
		return fmt.Sprintf("    %s = vec4<f32>();\n    { %s }\n", register, value)
	}
	return fmt.Sprintf("    %s = vec4<f32>();\n    if (%s) { %s }\n", register, strings.Join(tests, " && "), value)
}

// A blockText is the text of a program of blocks.
type blockText struct {
	strings.Builder
	unroll bool
	depth  int    // of vectors, of which outer has in workgroup memory at a time
	deep   int    // rows of the second factor that add has in workgroup memory at a time
	groups int    // of 64 columns of what add adds to
	column string // the first of them
}

// memory declares workgroup memory: parts of two factors of a product of vectors, a block of weights, and rows that they are
// multiplied with.
func (b *blockText) memory() {
	fmt.Fprintf(b, "var<workgroup> sh_x: array<array<vec4<f32>, %d>, %d>;\nvar<workgroup> sh_y: array<array<vec4<f32>, %d>, %d>;\n",
		blockSide/4+1, b.depth, blockSide/4+1, b.depth)
	fmt.Fprintf(b, "var<workgroup> sh_p: array<array<vec4<f32>, %d>, %d>;\n", blockSide/4, blockSide)
	fmt.Fprintf(b, "var<workgroup> sh_v: array<array<vec4<f32>, %d>, %d>;\n", b.groups*blockSide/4, b.deep)
}

// room chooses how much is in workgroup memory at a time, and reports whether there is any way.
func (b *blockText) room(limit int) bool {
	for b.depth = 32; b.depth >= 16; b.depth /= 2 {
		for b.deep = b.depth; b.deep >= 4; b.deep /= 2 {
			used := 4*2*b.depth*(blockSide+4) + 4*blockSide*blockSide + 4*b.deep*b.groups*blockSide
			if used <= limit && b.deep*b.groups*blockSide/4 >= blockThreads && (b.deep == b.depth || b.depth == 16) {
				return true
			}
		}
	}
	return false
}

// loads returns how many fours an invocation loads of what outer has of each factor, and of what add has.
func (b *blockText) loads() (outer, add int) {
	return blockSide * b.depth / 4 / blockThreads, b.deep * b.groups * blockSide / 4 / blockThreads
}

// registers defines those that the factors go through.
func (b *blockText) registers() {
	outer, add := b.loads()
	for l := range outer {
		fmt.Fprintf(b, "  var x%d: vec4<f32>;\n  var y%d: vec4<f32>;\n", l, l)
	}
	for l := range add {
		fmt.Fprintf(b, "  var v%d: vec4<f32>;\n", l)
	}
}

// A factors is what outer multiplies: vectors of x from row x0 on, and of y from y0 on. bounded makes those of y beyond the last
// row zero instead of whatever is there.
type factors struct {
	x, y    *vectors
	x0, y0  string
	bounded bool
}

// fetchOuter loads the first part of what outer is to multiply. It comes some time before, so that nobody waits for memory.
func (b *blockText) fetchOuter(f factors) { b.fetchPart(f, "0u") }

func (b *blockText) fetchPart(f factors, at string) {
	outer, _ := b.loads()
	for l := range outer {
		row, col := fmt.Sprintf(" + li / 2u %% %du", blockSide), fmt.Sprintf("%s + %s", at, b.deepPlace(l))
		b.WriteString(f.x.fetch(fmt.Sprintf("x%d", l), f.x0+row, col, false))
		b.WriteString(f.y.fetch(fmt.Sprintf("y%d", l), f.y0+row, col, f.bounded))
	}
}

// open begins main and defines an invocation's place: rows 4 ty + i and columns 4 tx + j of a block.
func (b *blockText) open() {
	fmt.Fprintf(b, entry, blockThreads)
	b.WriteString("  let tx = li / 32u % 2u * 8u + li % 8u;\n  let ty = li / 64u * 4u + li / 8u % 4u;\n")
}

// accumulators defines registers NAME_I_H, zero: four of row I.
func (b *blockText) accumulators(name string, groups int) {
	for i := range 4 {
		for h := range groups {
			fmt.Fprintf(b, "  var %s_%d_%d = vec4<f32>();\n", name, i, h)
		}
	}
}

// eachRow writes text for the rows of an invocation: $i in it stands for a row, $c for its component of a four.
func (b *blockText) eachRow(text string) {
	for i := range 4 {
		b.WriteString(strings.NewReplacer("$i", itoa(i), "$c", string("xyzw"[i])).Replace(text))
	}
}

// deepPlace returns WGSL for where along the vectors load l of an invocation goes.
func (b *blockText) deepPlace(l int) string {
	return fmt.Sprintf("(%du + li / 128u * 8u + li %% 2u * 4u)", l*blockThreads/16)
}

// outer adds to block NAME the products of vectors that fetchOuter began to load. It begins with a barrier.
func (b *blockText) outer(name string, f factors) {
	if f.x.size == 0 {
		b.WriteString("  workgroupBarrier();\n")
		return
	}
	loads, _ := b.loads()
	fmt.Fprintf(b, "  for (var d = 0u; d < %s; d += %du) {\n    workgroupBarrier();\n", f.x.dim, b.depth)
	for l := range loads {
		for i := range 4 {
			for _, n := range []string{"x", "y"} {
				fmt.Fprintf(b, "    sh_%s[%s + %du][(li >> 3u) & 15u][(li >> 1u) & 3u] = %s%d.%c;\n", n, b.deepPlace(l), i, n, l, "xyzw"[i])
			}
		}
	}
	b.WriteString("    workgroupBarrier();\n") // past the end, loads are harmless and not used
	b.fetchPart(f, fmt.Sprintf("d + %du", b.depth))
	b.steps(b.depth, 1, func(k string) {
		fmt.Fprintf(b, "      let a = sh_x[%s][ty];\n      let b0 = sh_y[%s][tx];\n", k, k)
		b.eachRow("      " + name + "_$i_0 = fma(vec4<f32>(a.$c), b0, " + name + "_$i_0);\n")
	})
	b.WriteString("  }\n")
}

// steps writes a loop over k from 0 to n, by the step, or its rounds one after the other.
func (b *blockText) steps(n, step int, body func(k string)) {
	if !b.unroll {
		fmt.Fprintf(b, "    for (var k = 0u; k < %du; k += %du) {\n", n, step)
		body("k")
		b.WriteString("    }\n")
		return
	}
	for k := 0; k < n; k += step {
		b.WriteString("    {\n")
		body(fmt.Sprintf("%du", k))
		b.WriteString("    }\n")
	}
}

// put writes a block to workgroup memory, column by column. Columns are turned so that what invocations write at a time lies in
// different banks.
func (b *blockText) put(name string) {
	for j := range 4 {
		c := "xyzw"[j]
		fmt.Fprintf(b, "  sh_p[tx * 4u + %du][ty ^ (tx & 7u)] = vec4<f32>(%s_0_0.%c, %s_1_0.%c, %s_2_0.%c, %s_3_0.%c);\n", j, name, c, name, c, name, c, name, c)
	}
}

// rows writes one number for each row of an invocation, NAME_I, to workgroup memory: sh_p[tx] has four rows in each place.
func (b *blockText) rows(name string) {
	fmt.Fprintf(b, "  sh_p[tx][ty] = vec4<f32>(%s_0, %s_1, %s_2, %s_3);\n", name, name, name, name)
}

// fetchAdd loads the first of the rows of v, from row0 on, that add is to multiply with.
func (b *blockText) fetchAdd(v *vectors, row0 string) { b.fetchRows(v, row0, "0u") }

func (b *blockText) fetchRows(v *vectors, row0, at string) {
	wide := b.groups * blockSide / 4
	_, loads := b.loads()
	for l := range loads {
		e := fmt.Sprintf("(li + %du)", l*blockThreads)
		b.WriteString(v.fetch(fmt.Sprintf("v%d", l), fmt.Sprintf("%s + %s + %s / %du", row0, at, e, wide), fmt.Sprintf("%s + %s %% %du * 4u", b.column, e, wide), true))
	}
}

// add adds to registers NAME the product of the block that was put and the rows of v from row0 on, which fetchAdd began to
// load.
func (b *blockText) add(name string, v *vectors, row0 string) {
	wide := b.groups * blockSide / 4
	_, loads := b.loads()
	fmt.Fprintf(b, "    for (var c = 0u; c < %du; c += %du) {\n    workgroupBarrier();\n", blockSide, b.deep)
	for l := range loads {
		e := fmt.Sprintf("(li + %du)", l*blockThreads)
		fmt.Fprintf(b, "    sh_v[%s / %du][%s %% %du] = v%d;\n", e, wide, e, wide, l)
	}
	b.WriteString("    workgroupBarrier();\n")
	b.fetchRows(v, row0, fmt.Sprintf("c + %du", b.deep))
	b.steps(b.deep, 4, func(k string) {
		fmt.Fprintf(b, "      let z = ty ^ (((c + %s) >> 2u) & 7u);\n", k)
		for i := range 4 {
			b.WriteString("      {\n")
			fmt.Fprintf(b, "      let a = sh_p[c + %s + %du][z];\n", k, i)
			for h := range b.groups {
				fmt.Fprintf(b, "      let b%d = sh_v[%s + %du][%du + tx];\n", h, k, i, h*blockSide/4)
			}
			for h := range b.groups {
				b.eachRow(fmt.Sprintf("      %s_$i_%d = fma(vec4<f32>(a.$c), b%d, %s_$i_%d);\n", name, h, h, name, h))
			}
			b.WriteString("      }\n")
		}
	})
	b.WriteString("    }\n")
}

// store writes registers NAME, times what factor says for row G, I, to rows of v from row0 on.
func (b *blockText) store(name string, v *vectors, row0, factor string) {
	for h := range b.groups {
		text := fmt.Sprintf("  {\n    let row = %s + ty * 4u + $iu;\n    let col = %s + (%du + tx) * 4u;\n    let v = %s_$i_%d * %s;\n    let at = at_%s + row * %s + col;\n",
			row0, b.column, h*blockSide/4, name, h, factor, v.name, v.row)
		if v.four {
			text += fmt.Sprintf("    if (row < %s && col < %s) { %s[at >> 2u] = v; }\n  }\n", v.rows, v.dim, v.name)
		} else {
			text += fmt.Sprintf("    if (row < %s) {\n", v.rows)
			for j := range 4 {
				text += fmt.Sprintf("      if (col + %du < %s) { st_%s(at + %du, v.%c); }\n", j, v.dim, v.name, j, "xyzw"[j])
			}
			text += "    }\n  }\n"
		}
		b.eachRow(text)
	}
}
