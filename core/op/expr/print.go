package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A dialect says how one target language spells a program.
type dialect struct {
	constant func(*Const) string
	name     func(string) string
	// form returns a template with $1, $2, ... for the arguments, or the name of a function to call.
	form func(*Call) string
	// infix reports whether the target has f's own symbol with the same meaning.
	infix func(f *Func) bool
	// strict puts parentheses where C compilers and WGSL ask for them.
	strict bool
}

// print writes e, in parentheses if it binds less tightly than level.
func (d *dialect) print(e Expr, level int) string {
	switch e := e.(type) {
	case *Const:
		return d.constant(e)
	case *Var:
		return d.name(e.Name)
	case *Call:
		if e.Fn.symbol != "" && d.infix(e.Fn) {
			return d.operator(e, level)
		}
		form := d.form(e)
		template := strings.Contains(form, "$")
		var args, pairs []string
		for i, a := range e.Args {
			l := 0
			if template {
				l = levelUnary
			}
			s := d.print(a, l)
			args = append(args, s)
			pairs = append(pairs, "$"+strconv.Itoa(i+1), s)
		}
		if template {
			return strings.NewReplacer(pairs...).Replace(form)
		}
		return form + "(" + strings.Join(args, ", ") + ")"
	}
	panic(fmt.Sprintf("expr: no expression: %T", e))
}

func (d *dialect) operator(c *Call, level int) string {
	f := c.Fn
	var s string
	if len(c.Args) == 1 {
		s = f.symbol + d.print(c.Args[0], levelUnary+1)
	} else {
		left, right := f.level, f.level+1
		if d.strict && f.level <= 4 {
			left, right = levelUnary, levelUnary
		}
		s = d.print(c.Args[0], left) + " " + d.symbol(f) + " " + d.print(c.Args[1], right)
	}
	if f.level < level {
		return "(" + s + ")"
	}
	return s
}

// symbol avoids the short-circuit operators in C: they are branches, which keep a loop from being vectorised.
func (d *dialect) symbol(f *Func) string {
	if d.strict && (f.symbol == "&&" || f.symbol == "||") {
		return f.symbol[:1]
	}
	return f.symbol
}

func always(*Func) bool { return true }

var source = &dialect{
	constant: func(c *Const) string { return c.Text },
	name:     func(s string) string { return s },
	form:     func(c *Call) string { return c.Fn.Name },
	infix:    always,
}

// decimal returns a literal that a compiler reads as a floating-point number.
func decimal(text string) string {
	if strings.ContainsAny(text, ".eE") {
		return text
	}
	return text + ".0"
}

// cDialect spells arithmetic on integers as calls, because signed overflow has no meaning in C.
func cDialect(t Type) *dialect {
	d := &dialect{name: underscored, strict: true}
	d.constant = func(c *Const) string {
		switch {
		case t == I64:
			return "INT64_C(" + c.Text + ")"
		case c.Text == "inf":
			return map[Type]string{F32: "INFINITY", F64: "(double)INFINITY"}[t]
		case c.Text == "nan":
			return map[Type]string{F32: "NAN", F64: "(double)NAN"}[t]
		}
		text := c.Text
		if text == "pi" {
			text = strconv.FormatFloat(c.Value, 'g', -1, 64)
		}
		if t == F32 {
			return decimal(text) + "f"
		}
		return decimal(text)
	}
	d.form = func(c *Call) string {
		f := c.Fn
		switch {
		case f.Name == "where" && t.Float() && chosen(c):
			return "plait_vm_pick" + suffix(t)
		case f.Name == "where":
			return "($1 ? $2 : $3)"
		case f.vmath && t.Float():
			return "plait_vm_" + f.Name + suffix(t)
		}
		return "ew_" + f.Name + "_" + t.String()
	}
	d.infix = func(f *Func) bool { return t.Float() || f.result == Logic }
	return d
}

// chosen reports whether e is a variable or a constant, or chooses among such: masks then take fewer instructions than a condition.
func chosen(e Expr) bool {
	c, ok := e.(*Call)
	return !ok || c.Fn.Name == "where" && chosen(c.Args[1]) && chosen(c.Args[2])
}

// C prints the program for t as C statements: one definition for each intermediate value, then what emit makes of each
// result. All names get an underscore at their end, so that they meet no name of the target.
func (p *Program) C(t Type, emit func(i int, value string) string) string {
	return p.c(t, cDialect(t), emit)
}

// NearC is [Program.C] with the functions for near arguments; see [Program.Near].
func (p *Program) NearC(t Type, emit func(i int, value string) string) string {
	d := cDialect(t)
	form := d.form
	calls := p.Near(t)
	d.form = func(c *Call) string {
		if slices.ContainsFunc(calls, func(near *Call) bool { return near.Fn == c.Fn }) {
			return "plait_vm_near_" + c.Fn.Name + suffix(t)
		}
		return form(c)
	}
	return p.c(t, d, emit)
}

// suffix returns what the names of plait_vmath.h's functions end in.
func suffix(t Type) string { return map[Type]string{F32: "f"}[t] }

// FarC returns a C expression that is not 0 where arguments of a call that [Program.Near] returned for t are not near.
func (c *Call) FarC(t Type) string {
	d := cDialect(t)
	args := make([]string, len(c.Args))
	for i, a := range c.Args {
		args[i] = d.print(a, 0)
	}
	return "plait_vm_far_" + c.Fn.far + suffix(t) + "(" + strings.Join(args, ", ") + ")"
}

func (p *Program) c(t Type, d *dialect, emit func(i int, value string) string) string {
	return p.statements(d, func(l Let, value string) string {
		return "const " + CType(t, l.Value.Kind()) + " " + d.name(l.Name) + " = " + value + ";"
	}, emit)
}

// CType returns the C type of numbers and truth values in programs printed for t.
func CType(t Type, k Kind) string {
	if k == Logic {
		return "bool"
	}
	return map[Type]string{F32: "float", F64: "double", I64: "int64_t"}[t]
}

func underscored(name string) string { return name + "_" }

func (p *Program) statements(d *dialect, let func(Let, string) string, emit func(int, string) string) string {
	var lines []string
	for _, l := range p.Lets {
		lines = append(lines, let(l, d.print(l.Value, 0)))
	}
	for i, r := range p.Results {
		lines = append(lines, emit(i, d.print(r, 0)))
	}
	return strings.Join(lines, "\n")
}

// wgslBuiltin holds the functions whose WGSL namesake is exact.
var wgslBuiltin = map[string]bool{"abs": true, "floor": true, "ceil": true, "round": true, "trunc": true, "sqrt": true}

// wgslDialect spells what WGSL lacks, or rounds too coarsely, as calls of plait_NAME_TYPE. 64-bit integers are pairs of
// 32-bit words there, and all that is done with them is a call.
func wgslDialect(t Type) *dialect {
	d := &dialect{name: underscored, strict: true}
	d.constant = func(c *Const) string {
		switch {
		case t == I64:
			n, _ := strconv.ParseUint(c.Text, 10, 64)
			return fmt.Sprintf("vec2<u32>(%du, %du)", uint32(n), uint32(n>>32))
		case t == I32:
			return c.Text + "i"
		case c.Text == "inf":
			return "plait_inf()"
		case c.Text == "nan":
			return "plait_nan()"
		case c.Text == "pi" && t == F64:
			return strconv.FormatFloat(c.Value, 'g', -1, 64)
		case c.Text == "pi":
			return "3.14159265f"
		case t == F64:
			return decimal(c.Text)
		}
		return decimal(c.Text) + "f"
	}
	d.form = func(c *Call) string {
		f := c.Fn
		switch {
		case f.Name == "where":
			return "select($3, $2, $1)"
		case f.Name == "ne" && t.Float():
			// != is false for a NaN in the compilers at hand.
			return "!($1 == $2)"
		case t.Float() && wgslBuiltin[f.Name], t == I32 && f.Name == "abs", t == I32 && f.Name == "min", t == I32 && f.Name == "max":
			return f.Name
		}
		return "plait_" + f.Name + "_" + t.String()
	}
	d.infix = func(f *Func) bool {
		switch {
		case f.args[0] == Logic:
			return true
		case t == I64:
			return false
		}
		return !(f.Name == "ne" && t.Float())
	}
	return d
}

// WGSL prints the program for F32, I32 or I64 as C does for C. For F64 it prints what WGSL would have if it had the type: languages that are
// translated from it do.
func (p *Program) WGSL(t Type, emit func(i int, value string) string) string {
	d := wgslDialect(t)
	return p.statements(d, func(l Let, value string) string { return "let " + d.name(l.Name) + " = " + value + ";" }, emit)
}
