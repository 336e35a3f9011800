package primitive

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// A rowText writes a program whose workgroups each process a row in several passes. Rows are accessed as vec4 if all operands allow it. If
// a row is short enough, invocations hold their part of it in registers, so that memory is read once for all passes.
type rowText struct {
	s     *shader.Builder
	Line  Axis
	Width int
	vec4  bool
	Held  int  // vec4 of a row that an invocation holds in registers; 0 for none
	full  bool // every one of them is within the row
	rows  []rowOperand
}

// A rowOperand has an element for each element of all rows; or, if same is set, for each position in a row.
type rowOperand struct {
	name, first string
	binding     int
	same, out   bool
	once        bool // only one pass reads it
}

// held reports whether registers hold the operand's elements, in a program that holds rows.
func (x rowOperand) held() bool { return !x.same && !x.out && !x.once }

// maxHeld is how many vec4 of all operands an invocation holds at most.
const maxHeld = 16

// NewRowText begins a program over the rows of an axis.
func NewRowText(s *shader.Builder, l Axis) *rowText {
	return &rowText{s: s, Line: l, vec4: l.Inner == 1 && l.N%4 == 0}
}

// In adds an input. Passes refer to its element as $name.
func (t *rowText) In(name string, o *core.Operand) { t.add(name, o, rowOperand{}) }

// InOnce is In for an operand that only one pass reads.
func (t *rowText) InOnce(name string, o *core.Operand) { t.add(name, o, rowOperand{once: true}) }

// InBroadcast is In for an operand that has one row, which all rows use.
func (t *rowText) InBroadcast(name string, o *core.Operand) { t.add(name, o, rowOperand{same: true}) }

// Out adds an output. A pass sets its elements.
func (t *rowText) Out(name string, o *core.Operand) { t.add(name, o, rowOperand{out: true}) }

func (t *rowText) add(name string, o *core.Operand, x rowOperand) {
	t.vec4 = t.vec4 && shader.Vec4(o)
	x.name, x.binding = name, len(t.s.Bindings)
	if x.out {
		x.first = t.s.Out(name, o, expr.F32, expr.Number)
	} else {
		x.first = t.s.In(name, o, expr.F32, expr.Number)
	}
	t.rows = append(t.rows, x)
}

// Open ends the list of operands and returns a function that opens the main function. software says that the adapter takes long to compile
// long programs.
func (t *rowText) Open(software bool) (head func(w *shader.Text)) {
	t.Width = RowThreads(t.Line.N)
	if t.s.Flag(t.vec4) {
		operands := 0
		for _, x := range t.rows {
			if x.held() {
				operands++
			}
		}
		if width, held := Holding(t.Line.N, operands, software); held > 0 {
			t.Width, t.Held = width, held
		}
	}
	t.s.Specialize(t.Held)
	t.full = t.s.Flag(t.Line.N == 4*t.Width*t.Held)
	for _, x := range t.rows {
		t.s.Bindings[x.binding].Vec4 = t.vec4
	}
	begin := t.Line.Open(t.s, t.Width)
	return func(w *shader.Text) {
		begin(w)
		for _, x := range t.rows {
			if !x.held() {
				continue
			}
			for r := range t.Held {
				place := fmt.Sprintf("(lane + %du)", r*t.Width)
				value := t.load(x, place)
				if !t.full { // loads behind a branch would wait for one another
					value = fmt.Sprintf("select(real4(), %s, %s < n / 4u)", t.load(x, "min("+place+", n / 4u - 1u)"), place)
				}
				w.Add("  var %s_%d = %s;", x.name, r, value)
			}
		}
	}
}

// Holding chooses the number of invocations for a row that is held in registers, and the number of vec4 of each operand that an invocation
// holds; 0 if the row is too long. An invocation holds up to four vec4 of each operand before the workgroup gets larger, because larger
// workgroups wait longer at barriers.
func Holding(n, operands int, software bool) (width, held int) {
	few, most := 4, maxHeld/operands
	if software {
		few, most = 2, 2
	}
	width = 64
	for width < 256 && shader.Ceil(n, 4*width) > few {
		width *= 2
	}
	if held = shader.Ceil(n, 4*width); held > most {
		return width, 0
	}
	return width, held
}

// load returns the expression for a vec4 of an operand's row.
func (t *rowText) load(x rowOperand, place string) string {
	return fmt.Sprintf("ld4_%s(%s)", x.name, t.at(x, place))
}

// at returns the expression for the index of a vec4 of an operand's row.
func (t *rowText) at(x rowOperand, place string) string {
	if x.same {
		return fmt.Sprintf("(%s >> 2u) + %s", x.first, place)
	}
	return fmt.Sprintf("((%s + first) >> 2u) + %s", x.first, place)
}

// Pass returns a loop over the row's elements. In body, $j is the position of an element, and $name the element of an operand. body must
// set outputs; it may change held elements for later passes.
func (t *rowText) Pass(body string) string {
	uses := func(x rowOperand) bool { return strings.Contains(body, "$"+x.name) }
	if !t.vec4 {
		text := fmt.Sprintf("  for (var j = lane; j < n; j += %du) {\n    let at = first + j * step;\n", t.Width)
		names := []string{"$j", "j"}
		last := ""
		for _, x := range t.rows {
			position := x.first + " + at"
			if x.same {
				position = x.first + " + j"
			}
			switch {
			case !uses(x):
				continue
			case x.out:
				text += fmt.Sprintf("    var %s_e = 0.0;\n", x.name)
				last += fmt.Sprintf("    st_%s(%s, %s_e);\n", x.name, position, x.name)
			default:
				text += fmt.Sprintf("    let %s_e = ld_%s(%s);\n", x.name, x.name, position)
			}
			names = append(names, "$"+x.name, x.name+"_e")
		}
		return fmt.Sprintf(`%s    %s
%s  }
`, text, strings.NewReplacer(names...).Replace(body), last)
	}
	each := func(number, q string) string {
		text, last := "", ""
		for _, x := range t.rows {
			switch {
			case !uses(x):
			case x.out:
				text += fmt.Sprintf("    var %s_q = real4();\n", x.name)
				last += fmt.Sprintf("    st4_%s(%s, %s_q);\n", x.name, t.at(x, q), x.name)
			case !x.held() || t.Held == 0:
				text += fmt.Sprintf("    let %s_q = %s;\n", x.name, t.load(x, q))
			}
		}
		for c := range 4 {
			names := []string{"$j", fmt.Sprintf("(%s * 4u + %du)", q, c)}
			for _, x := range t.rows {
				register := x.name + "_q"
				if t.Held > 0 && x.held() {
					register = x.name + "_" + number
				}
				names = append(names, "$"+x.name, fmt.Sprintf("%s.%s", register, shader.Component(c)))
			}
			text += fmt.Sprintf("    { %s }\n", strings.NewReplacer(names...).Replace(body))
		}
		return text + last
	}
	if t.Held == 0 {
		return fmt.Sprintf("  for (var q = lane; q < n / 4u; q += %du) {\n%s  }\n", t.Width, each("", "q"))
	}
	text := ""
	for r := range t.Held {
		head := "  {\n"
		if !t.full {
			head = fmt.Sprintf("  if (lane + %du < n / 4u) {\n", r*t.Width)
		}
		text += head + fmt.Sprintf("    let q = lane + %du;\n%s  }\n", r*t.Width, each(strconv.Itoa(r), "q"))
	}
	return text
}
