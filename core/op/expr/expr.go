// Package expr is the language in which elementwise ops and their derivatives are written.
//
// A program names its intermediate values and ends in one expression per output:
//
//	x * sigmoid(x)
//	s = sigmoid(x); grad * s * (1 + x*(1 - s))
//
// Names stand for the elements of operands (numbers, or truth values where so declared) and for scalar attributes.
// A program has no types of its own: it is instantiated for a compute [Type], printed as C or as WGSL, evaluated over
// scalars by [EvalFloat] and [EvalInt] (the reference every kernel is tested against), or interpreted over any other
// values, tensors for one, by [Interpret].
package expr

import (
	"slices"
	"strconv"
	"strings"
)

// Kind tells numbers from truth values.
type Kind uint8

// The two kinds.
const (
	Number Kind = iota
	Logic
)

func (k Kind) String() string {
	if k == Logic {
		return "logic"
	}
	return "number"
}

// Type is the type in which the numbers of a program are computed.
type Type uint8

// The compute types. Integers of every width compute in I64 and wrap when they are stored; I32 is for targets without
// 64-bit integers.
const (
	F32 Type = iota
	F64
	I64
	I32
)

var typeNames = [...]string{"f32", "f64", "i64", "i32"}

func (t Type) String() string { return typeNames[t] }

// Float reports whether t is a floating-point type.
func (t Type) Float() bool { return t <= F64 }

// Domain is a set of number classes in which a function or program has a meaning.
type Domain uint8

// The classes of numbers.
const (
	Floats Domain = 1 << iota
	Ints
	Both = Floats | Ints
)

// Has reports whether programs of domain d can be instantiated for t.
func (d Domain) Has(t Type) bool {
	if t.Float() {
		return d&Floats != 0
	}
	return d&Ints != 0
}

// An Expr is a *Const, *Var or *Call.
type Expr interface {
	Kind() Kind
	String() string
}

// A Const is a number literal or one of the named constants inf, nan and pi.
type Const struct {
	Text  string
	Value float64
}

// A Var is an operand, an attribute or an intermediate value.
type Var struct {
	Name string
	Is   Kind
}

// A Call applies a function or operator.
type Call struct {
	Fn   *Func
	Args []Expr
}

// Kind returns Number.
func (c *Const) Kind() Kind { return Number }

// Kind returns what the variable was declared as.
func (v *Var) Kind() Kind { return v.Is }

// Kind returns the kind of the function's result.
func (c *Call) Kind() Kind { return c.Fn.result }

func (c *Const) String() string { return c.Text }
func (v *Var) String() string   { return v.Name }
func (c *Call) String() string  { return source.print(c, 0) }

// A Let names an intermediate value.
type Let struct {
	Name  string
	Value Expr
}

// A Program is a sequence of definitions and one result per output.
type Program struct {
	Lets    []Let
	Results []Expr
}

func (p *Program) String() string {
	var b strings.Builder
	for _, l := range p.Lets {
		b.WriteString(l.Name + " = " + l.Value.String() + "; ")
	}
	for i, r := range p.Results {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// Walk calls visit for every expression of the program, operands before the calls that use them.
func (p *Program) Walk(visit func(Expr)) {
	for _, l := range p.Lets {
		walk(l.Value, visit)
	}
	for _, r := range p.Results {
		walk(r, visit)
	}
}

func walk(e Expr, visit func(Expr)) {
	if c, ok := e.(*Call); ok {
		for _, a := range c.Args {
			walk(a, visit)
		}
	}
	visit(e)
}

// Free returns the names that the program takes from outside, in order of appearance.
func (p *Program) Free() []string {
	var names []string
	p.Walk(func(e Expr) {
		v, ok := e.(*Var)
		if ok && !slices.Contains(names, v.Name) && !slices.ContainsFunc(p.Lets, func(l Let) bool { return l.Name == v.Name }) {
			names = append(names, v.Name)
		}
	})
	return names
}

// Uses reports whether the program takes name from outside.
func (p *Program) Uses(name string) bool { return slices.Contains(p.Free(), name) }

// Wraps reports whether the low 64 bits of unsigned numbers are enough for the program.
func (p *Program) Wraps() bool {
	wraps := true
	p.Walk(func(e Expr) {
		if c, ok := e.(*Call); ok {
			wraps = wraps && slices.Contains([]string{"add", "sub", "mul", "neg", "eq", "ne", "bit_and", "bit_or", "bit_xor", "bit_not", "where", "or", "and", "not"}, c.Fn.Name)
		}
	})
	return wraps
}

// Domain returns where every function and literal of the program has a meaning.
func (p *Program) Domain() Domain {
	d := Both
	p.Walk(func(e Expr) {
		switch e := e.(type) {
		case *Call:
			d &= e.Fn.Domain
		case *Const:
			if _, err := strconv.ParseInt(e.Text, 10, 64); err != nil {
				d &= Floats
			}
		}
	})
	return d
}
