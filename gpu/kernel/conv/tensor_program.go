package conv

import (
	_ "embed"
	"fmt"
	"math/bits"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

var (
	//go:embed tensorcore/instructions.cuh
	tensorInstructions string
	//go:embed tensorcore/gather.cuh
	tensorGather string
	//go:embed tensorcore/results.cu
	tensorResults string
	//go:embed tensorcore/weights.cu
	tensorWeights string
)

const tensorThreads = 256

// A tensorProgram collects the constants of a program for tensor cores, which are in its key, and the statements that set struct problem.
type tensorProgram struct {
	*shader.Builder
	function   string
	constants  strings.Builder
	statements strings.Builder
}

// newTensorProgram begins the program that calls a function of the given name, with tiles of so many rows.
func newTensorProgram(r *shader.Recorder, name, function string, t core.DType, rows int) *tensorProgram {
	p := &tensorProgram{Builder: shader.New(r, name), function: function}
	bf16 := 0
	if t == core.BFloat16 {
		bf16 = 1
	}
	fmt.Fprintf(&p.constants, "#define BF16 %d\n", bf16)
	p.constant("ROWS", rows)
	return p
}

func (t *tensorProgram) constant(name string, v int) {
	fmt.Fprintf(&t.constants, "constexpr int %s = %d;\n", name, t.Specialize(v))
}

func (t *tensorProgram) flag(name string, v bool) {
	fmt.Fprintf(&t.constants, "constexpr bool %s = %v;\n", name, t.Flag(v))
}

// word adds a parameter, which becomes a field of struct problem.
func (t *tensorProgram) word(field string, v int) {
	fmt.Fprintf(&t.statements, "  a.%s = p.words[%d];\n", field, len(t.Words))
	t.Uint(int(uint32(int32(v))))
}

// pointer binds an operand, of whose elements a field of struct problem is a pointer.
func (t *tensorProgram) pointer(field, typ string, o *core.Operand, out bool) {
	fmt.Fprintf(&t.statements, "  a.%s = (%s *)b%d.at + p.words[%d];\n", field, typ, len(t.Mems)+1, len(t.Words))
	if out {
		t.Out(field, o, expr.F32, expr.Number)
	} else {
		t.In(field, o, expr.F32, expr.Number)
	}
}

// divisor adds a number of at least 1 by which the program divides numbers below 2^31.
func (t *tensorProgram) divisor(field string, by int) {
	shift := bits.Len(uint(by - 1))
	t.word(field+".by", by)
	t.word(field+".factor", ((1<<(32+shift))+by-1)/by-1<<32)
	t.word(field+".shift", shift)
}

// window adds what describes the patches of a window, of which each has depth numbers with the padding.
func (t *tensorProgram) window(p slidingWindow, taps [3]int, depth int) {
	t.constant("TAP_RUN", min(room(p.channels), 8))
	t.flag("PADDED", room(p.channels) != p.channels)
	t.word("channels", p.channels)
	t.word("depth", depth)
	t.word("taps", primitive.Product3(taps))
	t.divisor("of_room", room(p.channels))
	t.divisor("of_slice", taps[1]*taps[2])
	t.divisor("of_tap_row", taps[2])
	for d := range 3 {
		t.word(fmt.Sprintf("stride[%d]", d), p.stride[d])
		t.word(fmt.Sprintf("step[%d]", d), p.step[d])
	}
}

// sizes adds the sizes of the problem. plane is the number of elements of a channel of a result.
func (t *tensorProgram) sizes(v *convolution, p slidingWindow, rows, columns, rowTiles, columnTiles, plane int) {
	from := primitive.Product3(p.from)
	t.word("rows", rows)
	t.word("columns", columns)
	t.word("images", v.images)
	t.word("groups", v.groups)
	t.word("plane", from)
	t.word("row_tiles", rowTiles)
	t.word("column_tiles", columnTiles)
	t.word("x_image", v.groups*p.channels*from)
	t.word("y_image", v.groups*rows*plane)
	t.word("y_plane", plane)
	t.divisor("of_image", primitive.Product3(p.positions))
	t.divisor("of_sheet", p.positions[1]*p.positions[2])
	t.divisor("of_line", p.positions[2])
	for d := range 3 {
		t.word(fmt.Sprintf("from[%d]", d), p.from[d])
		t.word(fmt.Sprintf("shift[%d]", d), p.shift[d])
	}
}

// spread adds where positions are in the results; nil stands for one after the other.
func (t *tensorProgram) spread(s *spreading) {
	t.flag("SPREAD", s != nil)
	if s == nil {
		s = &spreading{}
	}
	for d := range 3 {
		t.word(fmt.Sprintf("apart[%d]", d), s.step[d])
		t.word(fmt.Sprintf("size[%d]", d), s.size[d])
		t.word(fmt.Sprintf("first[%d]", d), s.first[d])
	}
}

func (t *tensorProgram) run(r *shader.Recorder, groups, sharedBytes int) error {
	return t.Run(r, groups, func(w *shader.Text) { w.Whole(t.text(), tensorThreads, sharedBytes) })
}

// text returns the program.
func (t *tensorProgram) text() string {
	var b strings.Builder
	b.WriteString(t.constants.String())
	b.WriteString(tensorInstructions)
	b.WriteString(tensorGather)
	if t.function == "results" {
		b.WriteString(tensorResults)
	} else {
		b.WriteString(tensorWeights)
	}
	fmt.Fprintf(&b, "extern \"C\" __global__ void __launch_bounds__(%d, 2) plait_main(const __grid_constant__ parameters p", tensorThreads)
	for i := range t.Mems {
		fmt.Fprintf(&b, ", const __grid_constant__ buffer b%d", i+1)
	}
	fmt.Fprintf(&b, ") {\n  problem a = {};\n%s  %s(a);\n}\n", t.statements.String(), t.function)
	return b.String()
}
