package gpu

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// Programs of attention go through the scores by blocks, in registers: a workgroup of 128 invocations holds a block of 64
// rows, queries or keys, and 64 columns of the other, each invocation 8 x 4 of them. What is not the block's own comes
// through workgroup memory. Nothing of the size of the scores is ever stored.

const (
	blockSide    = 64
	blockThreads = 128
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
		row, col := " + li / 2u", fmt.Sprintf("%s + %du + li %% 2u * 4u", at, 8*l)
		b.WriteString(f.x.fetch(fmt.Sprintf("x%d", l), f.x0+row, col, false))
		b.WriteString(f.y.fetch(fmt.Sprintf("y%d", l), f.y0+row, col, f.bounded))
	}
}

// open begins main and defines an invocation's place: rows (8 g + ty) 4 + i for g < 2, and columns 4 tx + j of a block.
func (b *blockText) open() {
	fmt.Fprintf(b, entry, blockThreads)
	b.WriteString("  let tx = li / 32u % 2u * 8u + li % 8u;\n  let ty = li / 64u * 4u + li / 8u % 4u;\n")
}

// accumulators defines registers NAME_G_I_H, zero.
func (b *blockText) accumulators(name string, groups int) {
	for g := range 2 {
		for i := range 4 {
			for h := range groups {
				fmt.Fprintf(b, "  var %s_%d_%d_%d = vec4<f32>();\n", name, g, i, h)
			}
		}
	}
}

// eachRow writes text for the rows of an invocation: G and I in it stand for the row's group and place.
func (b *blockText) eachRow(text string) {
	for g := range 2 {
		for i := range 4 {
			b.WriteString(strings.NewReplacer("$g", itoa(g), "$i", itoa(i), "$c", string("xyzw"[i])).Replace(text))
		}
	}
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
				fmt.Fprintf(b, "    sh_%s[%du + li %% 2u * 4u][li >> 3u][(li >> 1u) & 3u] = %s%d.%c;\n", n, 8*l+i, n, l, "xyzw"[i])
			}
		}
	}
	fmt.Fprintf(b, "    workgroupBarrier();\n    if (d + %du < %s) {\n", b.depth, f.x.dim)
	b.fetchPart(f, fmt.Sprintf("d + %du", b.depth))
	b.WriteString("    }\n")
	b.steps(b.depth, 1, func(k string) {
		fmt.Fprintf(b, "      let a0 = sh_x[%s][ty];\n      let a1 = sh_x[%s][8u + ty];\n      let b0 = sh_y[%s][tx];\n", k, k, k)
		b.eachRow("      " + name + "_$g_$i_0 = fma(vec4<f32>(a$g.$c), b0, " + name + "_$g_$i_0);\n")
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
	for g := range 2 {
		for j := range 4 {
			c := "xyzw"[j]
			fmt.Fprintf(b, "  sh_p[tx * 4u + %du][(%du + ty) ^ (tx & 7u)] = vec4<f32>(%s_%d_0_0.%c, %s_%d_1_0.%c, %s_%d_2_0.%c, %s_%d_3_0.%c);\n",
				j, 8*g, name, g, c, name, g, c, name, g, c, name, g, c)
		}
	}
}

// rows writes one number for each row of an invocation, NAME_G_I, to workgroup memory: sh_p[tx] has four rows in each place.
func (b *blockText) rows(name string) {
	for g := range 2 {
		fmt.Fprintf(b, "  sh_p[tx][%du + ty] = vec4<f32>(%s_%d_0, %s_%d_1, %s_%d_2, %s_%d_3);\n", 8*g, name, g, name, g, name, g, name, g)
	}
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
	fmt.Fprintf(b, "    workgroupBarrier();\n    if (c + %du < %du) {\n", b.deep, blockSide)
	b.fetchRows(v, row0, fmt.Sprintf("c + %du", b.deep))
	b.WriteString("    }\n")
	b.steps(b.deep, 4, func(k string) {
		fmt.Fprintf(b, "      let z = ty ^ (((c + %s) >> 2u) & 7u);\n", k)
		for i := range 4 {
			fmt.Fprintf(b, "      {\n      let a0 = sh_p[c + %s + %du][z];\n      let a1 = sh_p[c + %s + %du][8u + z];\n", k, i, k, i)
			for h := range b.groups {
				fmt.Fprintf(b, "      let b%d = sh_v[%s + %du][%du + tx];\n", h, k, i, h*blockSide/4)
			}
			for h := range b.groups {
				b.eachRow(fmt.Sprintf("      %s_$g_$i_%d = fma(vec4<f32>(a$g.$c), b%d, %s_$g_$i_%d);\n", name, h, h, name, h))
			}
			b.WriteString("      }\n")
		}
	})
	b.WriteString("    }\n")
}

// store writes registers NAME, times what factor says for row G, I, to rows of v from row0 on.
func (b *blockText) store(name string, v *vectors, row0, factor string) {
	for h := range b.groups {
		text := fmt.Sprintf("  {\n    let row = %s + ($gu * 8u + ty) * 4u + $iu;\n    let col = %s + (%du + tx) * 4u;\n    let v = %s_$g_$i_%d * %s;\n    let at = at_%s + row * %s + col;\n",
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
