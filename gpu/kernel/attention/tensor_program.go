package attention

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

var (
	//go:embed tensorcore/common.cuh
	tensorCommon string
	//go:embed tensorcore/mma.cuh
	tensorMMA string
	//go:embed tensorcore/wgmma.cuh
	tensorWGMMA string
	//go:embed tensorcore/tiles.cuh
	tensorTiles string
	//go:embed tensorcore/forward.cu
	tensorForwardText string
	//go:embed tensorcore/query_gradients.cu
	tensorQueryText string
	//go:embed tensorcore/key_gradients.cu
	tensorKeyText string
)

var tensorTexts = map[string]*string{"forward": &tensorForwardText, "query_gradients": &tensorQueryText, "key_gradients": &tensorKeyText}

// tensorMatrices are the matrices of struct problem in the programs.
var tensorMatrices = []string{"q", "k", "v", "o", "g", "dq", "dk", "dv"}

// A tensorProgram collects the constants of a program for tensor cores, and where its parameters are. Constants are in the key.
type tensorProgram struct {
	*shader.Builder
	a         *attentionProblem
	function  string
	tile      tensorTile
	constants []tensorConstant
	fields    []tensorField
}

// A tensorConstant is a number in a program; a flag is true or false.
type tensorConstant struct {
	name  string
	value int
	flag  bool
}

// A tensorField is a field of struct problem. Its value begins at a word of the parameters. Fields in memory also have a binding.
type tensorField struct {
	kind    tensorKind
	name    string
	word    int
	binding int
	vectors bool // rows of a matrix are aligned to 16 bytes
	size    int  // of a mask's elements
}

type tensorKind int

const (
	tensorWord tensorKind = iota
	tensorFloat
	tensorLong
	tensorMatrix
	tensorVector
	tensorMask
)

// tensorProgram begins the program that calls a function of the given name.
func (a *attentionProblem) tensorProgram(r *shader.Recorder, name, function string, t tensorTile) *tensorProgram {
	p := &tensorProgram{Builder: shader.New(r, name), a: a, function: function, tile: t}
	p.Flag(t.async)
	p.constant("DIM", a.dim)
	p.constant("VALUE", a.valueDim)
	return p
}

func (p *tensorProgram) constant(name string, v int) {
	p.constants = append(p.constants, tensorConstant{name, p.Specialize(v), false})
}

func (p *tensorProgram) flag(name string, v bool) bool {
	n := 0
	if p.Flag(v) {
		n = 1
	}
	p.constants = append(p.constants, tensorConstant{name, n, true})
	return v
}

func (p *tensorProgram) word(name string, v int) {
	p.fields = append(p.fields, tensorField{kind: tensorWord, name: name, word: len(p.Words)})
	p.Uint(v)
}

func (p *tensorProgram) number(name string, v float64) {
	p.fields = append(p.fields, tensorField{kind: tensorFloat, name: name, word: len(p.Words)})
	p.Float(v)
}

func (p *tensorProgram) long(name string, v int64) {
	p.fields = append(p.fields, tensorField{kind: tensorLong, name: name, word: len(p.Words)})
	p.Long(v)
}

// matrix adds an operand [batch, heads, length, dim].
func (p *tensorProgram) matrix(name string, o *core.Operand, out bool) {
	f := tensorField{kind: tensorMatrix, name: name, word: len(p.Words), vectors: o.Shape[3]%8 == 0 && shader.Base(o)%8 == 0}
	for _, n := range o.Strides[:3] {
		f.vectors = f.vectors && n%8 == 0
	}
	p.Flag(f.vectors)
	if out {
		p.Out(name, o, expr.F32, expr.Number)
	} else {
		p.In(name, o, expr.F32, expr.Number)
	}
	for _, n := range o.Strides[:3] {
		p.Uint(n)
	}
	f.binding = len(p.Mems)
	p.fields = append(p.fields, f)
}

// vector adds float32 numbers that have just been bound.
func (p *tensorProgram) vector(name, _ string) {
	p.fields = append(p.fields, tensorField{kind: tensorVector, name: name, word: len(p.Words) - 1, binding: len(p.Mems)})
}

func (p *tensorProgram) mask(o *core.Operand) {
	f := tensorField{kind: tensorMask, name: "mask", word: len(p.Words), size: o.DType.Size()}
	p.In("mask", o, expr.F32, expr.Number)
	for _, n := range o.Strides {
		p.Uint(n)
	}
	f.binding = len(p.Mems)
	p.fields = append(p.fields, f)
}

func (p *tensorProgram) run(r *shader.Recorder, groups int) error {
	t := p.tile
	return p.Run(r, groups, func(w *shader.Text) { w.Whole(p.text(), 32*t.warps, p.sharedBytes()) })
}

// sharedBytes returns the size of the tiles in shared memory: the rows of the block, and the others twice. The result passes through the
// same memory, with padded rows.
func (p *tensorProgram) sharedBytes() int {
	t, align := p.tile, 0
	pitch := func(width int) int { return 2*shader.Ceil(width, 16)*16 + 16 }
	if t.async {
		align = 1024
		pitch = func(width int) int { return 2 * shader.Ceil(width, 64) * 64 }
	}
	dim, value := pitch(p.a.dim), pitch(p.a.valueDim)
	bytes := (t.rows() + 2*t.span) * (dim + value)
	if p.function == "forward" {
		bytes -= t.rows() * value
	}
	return max(bytes, t.rows()*(max(dim, value)+16)) + align
}

// text returns the program.
func (p *tensorProgram) text() string {
	var b strings.Builder
	t := p.tile
	bf16 := 0
	if p.a.q.DType == core.BFloat16 {
		bf16 = 1
	}
	fmt.Fprintf(&b, "#define BF16 %d\n", bf16)
	fmt.Fprintf(&b, "constexpr int WARPS = %d, TILES = %d, SPAN = %d, SLICE = %d, SLICES = %d;\n", t.warps, t.tiles, t.span, t.slice, t.slices)
	fmt.Fprintf(&b, "constexpr bool HELD = %v;\n", t.held)
	for _, c := range p.constants {
		if c.flag {
			fmt.Fprintf(&b, "constexpr bool %s = %v;\n", c.name, c.value != 0)
		} else {
			fmt.Fprintf(&b, "constexpr int %s = %d;\n", c.name, c.value)
		}
	}
	for _, name := range tensorMatrices {
		fmt.Fprintf(&b, "constexpr bool %s_VECTORS = %v;\n", strings.ToUpper(name), p.vectors(name))
	}
	engine := tensorMMA
	if t.async {
		engine = tensorWGMMA
	}
	for _, text := range []string{tensorCommon, engine, tensorTiles} {
		b.WriteString(text)
	}
	b.WriteString(*tensorTexts[p.function])
	fmt.Fprintf(&b, "extern \"C\" __global__ void __launch_bounds__(%d, %d) plait_main(const __grid_constant__ parameters p", 32*t.warps, t.blocks)
	for i := range p.Mems {
		fmt.Fprintf(&b, ", const __grid_constant__ buffer b%d", i+1)
	}
	b.WriteString(") {\n  problem a = {};\n")
	for _, f := range p.fields {
		f.assign(&b)
	}
	fmt.Fprintf(&b, "  %s(a);\n}\n", p.function)
	return b.String()
}

func (p *tensorProgram) vectors(name string) bool {
	for _, f := range p.fields {
		if f.kind == tensorMatrix && f.name == name {
			return f.vectors
		}
	}
	return false
}

// assign writes the statement that sets the field.
func (f *tensorField) assign(b *strings.Builder) {
	w := f.word
	switch f.kind {
	case tensorWord:
		fmt.Fprintf(b, "  a.%s = p.words[%d];\n", f.name, w)
	case tensorFloat:
		fmt.Fprintf(b, "  a.%s = __uint_as_float(p.words[%d]);\n", f.name, w)
	case tensorLong:
		fmt.Fprintf(b, "  a.%s = p.words[%d] | (u64)p.words[%d] << 32;\n", f.name, w, w+1)
	case tensorMatrix:
		fmt.Fprintf(b, "  a.%s = {(u16 *)b%d.at + p.words[%d], p.words[%d], p.words[%d], p.words[%d]};\n", f.name, f.binding, w, w+1, w+2, w+3)
	case tensorVector:
		fmt.Fprintf(b, "  a.%s = (decltype(a.%s))((float *)b%d.at + p.words[%d]);\n", f.name, f.name, f.binding, w)
	case tensorMask:
		fmt.Fprintf(b, "  a.mask = (const char *)b%d.at + (u64)p.words[%d] * %d;\n", f.binding, w, f.size)
		for i, name := range []string{"batch", "head", "query", "key"} {
			fmt.Fprintf(b, "  a.mask_%s = p.words[%d];\n", name, w+1+i)
		}
	}
}
