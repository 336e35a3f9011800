package expr

import (
	"fmt"
	"slices"
	"strings"
)

// A Param is an operand of a kernel.
type Param struct {
	Name   string
	Kind   Kind
	Scalar bool // often a number, which is the same for every element: the CPU has a second loop for that
}

// A Kernel applies a program to every element of its operands: one output per result of the program.
type Kernel struct {
	Name    string
	In      []Param
	Attrs   []string // scalars, numbers of the compute type
	Program *Program
	Domain  Domain // where it has instances: no wider than the program's
	Pairs   bool   // whether its numbers are the parts of complex ones, in turn; one result alone is a real number
}

// NewKernel parses a kernel. The signature lists the inputs and, after a semicolon, the attributes; an input that holds
// truth values is followed by "logic", one that is often a number by "scalar":
//
//	NewKernel("masked_fill", "x, mask logic; value", "where(mask, value, x)")
func NewKernel(name, signature, body string) (*Kernel, error) {
	k := &Kernel{Name: name}
	scope := map[string]Kind{}
	in, attrs, _ := strings.Cut(signature, ";")
	for _, field := range strings.Split(in, ",") {
		words := strings.Fields(field)
		if len(words) == 0 {
			continue
		}
		p := Param{Name: words[0]}
		switch {
		case len(words) == 2 && words[1] == "logic":
			p.Kind = Logic
		case len(words) == 2 && words[1] == "scalar":
			p.Scalar = true
		case len(words) != 1:
			return nil, fmt.Errorf("expr: kernel %s: got the parameter %q, want a name, and after it \"logic\", \"scalar\" or nothing", name, field)
		}
		k.In = append(k.In, p)
		scope[p.Name] = p.Kind
	}
	for _, field := range strings.Split(attrs, ",") {
		if field = strings.TrimSpace(field); field != "" {
			k.Attrs = append(k.Attrs, field)
			scope[field] = Number
		}
	}
	if len(scope) != len(k.In)+len(k.Attrs) {
		return nil, fmt.Errorf("expr: kernel %s: a name is declared twice in %q", name, signature)
	}
	var err error
	if k.Program, err = Parse(body, scope); err != nil {
		return nil, fmt.Errorf("expr: kernel %s: %w", name, err)
	}
	k.Domain = k.Program.Domain()
	return k, nil
}

// Types returns the compute types of the kernel's instances on the CPU. Kernels over truth values alone have no numbers and
// one instance, that of I64.
func (k *Kernel) Types() []Type {
	var types []Type
	for _, t := range []Type{F32, F64, I64} {
		if k.Domain.Has(t) && (t == I64 || !k.Logical()) {
			types = append(types, t)
		}
	}
	return types
}

// Instance returns the name of the kernel's instance for t, such as "add.f32" or "logical_and.bool".
func (k *Kernel) Instance(t Type) string {
	if k.Logical() {
		return k.Name + ".bool"
	}
	return k.Name + "." + t.String()
}

// Logical reports whether the kernel has no numbers, only truth values.
func (k *Kernel) Logical() bool {
	numbers := len(k.Attrs) > 0 || slices.ContainsFunc(k.In, func(p Param) bool { return p.Kind == Number })
	return !numbers && !slices.ContainsFunc(k.Program.Results, func(e Expr) bool { return e.Kind() == Number })
}

// Divisors returns what the program divides integers by: where one of them is zero, the result has no meaning.
func (p *Program) Divisors() []Expr {
	var divisors []Expr
	p.Walk(func(e Expr) {
		c, ok := e.(*Call)
		if ok && slices.Contains([]string{"fmod", "remainder", "floor_divide", "trunc_divide"}, c.Fn.Name) {
			divisors = append(divisors, c.Args[1])
		}
	})
	return divisors
}

// Near returns the calls of functions of which the program takes the faster C function for near arguments in t. Their arguments are
// given as variables that the program does not assign, or as sums and products of these. Where some are not, there are none, or none of
// functions that are vectors without.
func (p *Program) Near(t Type) []*Call {
	calls, all := p.near(t, true)
	if !all {
		calls, all = p.near(t, false)
	}
	if !all {
		return nil
	}
	return calls
}

// near returns the calls of functions that have a faster one, those of vectors too or not, and whether all of them can take it.
func (p *Program) near(t Type, vectors bool) (calls []*Call, all bool) {
	all = t.Float()
	p.Walk(func(e Expr) {
		c, ok := e.(*Call)
		vector := ok && c.Fn.wide
		if !ok || c.Fn.far == "" || vector && !vectors {
			return
		}
		if !slices.Contains(c.Fn.nearIn, t) {
			all = all && c.Fn.wide
			return
		}
		near := &Call{Fn: c.Fn}
		for _, a := range c.Args {
			a, ok = p.inlined(a)
			_, variable := a.(*Var)
			all = all && ok && (variable || len(c.Args) == 1 && !vector)
			near.Args = append(near.Args, a)
		}
		calls = append(calls, near)
	})
	return calls, all
}

// inlined returns e without the names of intermediate values, and whether it is a variable or made of these by sums and products.
func (p *Program) inlined(e Expr) (Expr, bool) {
	switch e := e.(type) {
	case *Var:
		for _, l := range p.Lets {
			if l.Name == e.Name {
				return p.inlined(l.Value)
			}
		}
	case *Call:
		arithmetic := slices.Contains([]string{"add", "sub", "mul", "neg"}, e.Fn.Name)
		c := &Call{Fn: e.Fn}
		for _, a := range e.Args {
			a, ok := p.inlined(a)
			arithmetic = arithmetic && ok
			c.Args = append(c.Args, a)
		}
		return c, arithmetic
	}
	return e, true
}

// Cheap reports whether the program calls no functions but those of a few instructions, so that a loop spends its time on memory.
func (p *Program) Cheap() bool {
	yes := p.Vectorises(F64)
	p.Walk(func(e Expr) {
		if c, ok := e.(*Call); ok && (c.Fn.vmath || c.Fn.Name == "hypot") {
			yes = false
		}
	})
	return yes
}

// Vectorises reports whether compilers can turn a loop over the program, computed in t on the CPU, into vector
// instructions: it calls nothing that has branches or is not inlined.
func (p *Program) Vectorises(t Type) bool {
	yes := true
	p.Walk(func(e Expr) {
		c, ok := e.(*Call)
		if !ok {
			return
		}
		switch c.Fn.Name {
		case "gcd", "zeta", "trunc_divide":
			yes = false
		case "hypot":
			yes = yes && t == F32
		default:
			yes = yes && (!c.Fn.vmath || c.Fn.wide || t == F32)
		}
	})
	return yes
}
