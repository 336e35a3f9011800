package expr

import "fmt"

// An Algebra gives programs a meaning over values V.
type Algebra[V any] interface {
	Const(c *Const) (V, error)
	Apply(f *Func, args []V) (V, error)
}

// Interpret runs the program over any values: env holds those of its free names. It returns one value per result and
// stops at the first error.
func Interpret[V any](p *Program, env map[string]V, alg Algebra[V]) ([]V, error) {
	in := interpreter[V]{alg: alg, env: make(map[string]V, len(env)+len(p.Lets))}
	for name, v := range env {
		in.env[name] = v
	}
	for _, l := range p.Lets {
		v, err := in.eval(l.Value)
		if err != nil {
			return nil, err
		}
		in.env[l.Name] = v
	}
	results := make([]V, len(p.Results))
	for i, r := range p.Results {
		v, err := in.eval(r)
		if err != nil {
			return nil, err
		}
		results[i] = v
	}
	return results, nil
}

type interpreter[V any] struct {
	alg Algebra[V]
	env map[string]V
}

func (in *interpreter[V]) eval(e Expr) (V, error) {
	var none V
	switch e := e.(type) {
	case *Const:
		return in.alg.Const(e)
	case *Var:
		v, ok := in.env[e.Name]
		if !ok {
			return none, fmt.Errorf("expr: %s has no value", e.Name)
		}
		return v, nil
	case *Call:
		args := make([]V, len(e.Args))
		for i, a := range e.Args {
			v, err := in.eval(a)
			if err != nil {
				return none, err
			}
			args[i] = v
		}
		return in.alg.Apply(e.Fn, args)
	}
	return none, fmt.Errorf("expr: no expression: %T", e)
}

type floatAlgebra struct{}

func (floatAlgebra) Const(c *Const) (float64, error) { return c.Value, nil }

func (floatAlgebra) Apply(f *Func, args []float64) (float64, error) {
	if f.float == nil {
		return 0, fmt.Errorf("expr: %s: got floats, want integers", f.Name)
	}
	return f.float(args), nil
}

// EvalFloat evaluates the program in float64; truth values are 0 and 1.
func (p *Program) EvalFloat(env map[string]float64) ([]float64, error) {
	return Interpret(p, env, floatAlgebra{})
}

type intAlgebra struct{}

func (intAlgebra) Const(c *Const) (int64, error) { return int64(c.Value), nil }

func (intAlgebra) Apply(f *Func, args []int64) (int64, error) {
	if f.int == nil {
		return 0, fmt.Errorf("expr: %s: got integers, want floats", f.Name)
	}
	return f.int(args), nil
}

// EvalInt evaluates the program in wrapping 64-bit integers; truth values are 0 and 1.
func (p *Program) EvalInt(env map[string]int64) ([]int64, error) {
	return Interpret(p, env, intAlgebra{})
}
