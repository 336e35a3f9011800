package expr

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

var constants = map[string]float64{"inf": math.Inf(1), "nan": math.NaN(), "pi": math.Pi}

// Parse reads a program whose free names are those of scope.
//
//	program = { name "=" expr ";" } expr { "," expr }
//	expr    = the operators || && == != < <= > >= + - * / ! and unary -, with C's precedence,
//	          numbers, names, calls and parentheses
//
// It fails at syntax errors, unknown names and functions, names defined twice, and kinds or argument counts that do not fit.
func Parse(src string, scope map[string]Kind) (*Program, error) {
	p := &parser{src: src, scope: maps.Clone(scope)}
	if p.scope == nil {
		p.scope = map[string]Kind{}
	}
	p.next()
	prog, err := p.program()
	if err != nil {
		return nil, fmt.Errorf("expr: %w in %q", err, src)
	}
	return prog, nil
}

// A parser holds one token of look-ahead.
type parser struct {
	src   string
	pos   int    // after the token
	tok   string // "" at the end
	scope map[string]Kind
}

func letter(c byte) bool { return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
func digit(c byte) bool  { return '0' <= c && c <= '9' }

func (p *parser) next() {
	for p.pos < len(p.src) && strings.IndexByte(" \t\n", p.src[p.pos]) >= 0 {
		p.pos++
	}
	start, rest := p.pos, p.src[p.pos:]
	switch {
	case rest == "":
	case letter(rest[0]):
		for p.pos < len(p.src) && (letter(p.src[p.pos]) || digit(p.src[p.pos])) {
			p.pos++
		}
	case digit(rest[0]) || rest[0] == '.':
		for p.pos < len(p.src) {
			c := p.src[p.pos]
			exponentSign := (c == '-' || c == '+') && p.pos > start && (p.src[p.pos-1]|0x20) == 'e'
			if !digit(c) && !letter(c) && c != '.' && !exponentSign {
				break
			}
			p.pos++
		}
	case len(rest) > 1 && slices.Contains([]string{"<=", ">=", "==", "!=", "&&", "||"}, rest[:2]):
		p.pos += 2
	default:
		p.pos++
	}
	p.tok = p.src[start:p.pos]
}

func (p *parser) expect(tok string) error {
	if p.tok != tok {
		return p.unexpected(strconv.Quote(tok))
	}
	p.next()
	return nil
}

func (p *parser) unexpected(want string) error {
	got := strconv.Quote(p.tok)
	if p.tok == "" {
		got = "the end"
	}
	return fmt.Errorf("got %s, want %s", got, want)
}

func (p *parser) program() (*Program, error) {
	prog := &Program{}
	for {
		e, err := p.expr(1)
		if err != nil {
			return nil, err
		}
		if p.tok != "=" {
			prog.Results = append(prog.Results, e)
			break
		}
		v, ok := e.(*Var)
		if !ok {
			return nil, fmt.Errorf("cannot define %s", e)
		}
		if _, taken := p.scope[v.Name]; taken {
			return nil, fmt.Errorf("%s is defined twice", v.Name)
		}
		p.next()
		value, err := p.expr(1)
		if err != nil {
			return nil, err
		}
		if err := p.known(value); err != nil {
			return nil, err
		}
		prog.Lets = append(prog.Lets, Let{v.Name, value})
		p.scope[v.Name] = value.Kind()
		if err := p.expect(";"); err != nil {
			return nil, err
		}
	}
	for p.tok == "," {
		p.next()
		e, err := p.expr(1)
		if err != nil {
			return nil, err
		}
		prog.Results = append(prog.Results, e)
	}
	if p.tok != "" {
		return nil, p.unexpected("an operator or the end")
	}
	for _, r := range prog.Results {
		if err := p.known(r); err != nil {
			return nil, err
		}
	}
	return prog, nil
}

// known fails if e is a lone name without a definition; names inside calls are checked by call.
func (p *parser) known(e Expr) error {
	if v, ok := e.(*Var); ok {
		if _, ok := p.scope[v.Name]; !ok {
			return fmt.Errorf("%s is not defined", v.Name)
		}
	}
	return nil
}

// expr reads operators that bind at least as tightly as level.
func (p *parser) expr(level int) (Expr, error) {
	left, err := p.unary()
	if err != nil {
		return nil, err
	}
	for {
		fn := infix[p.tok]
		if fn == nil || fn.level < level {
			return left, nil
		}
		p.next()
		right, err := p.expr(fn.level + 1)
		if err != nil {
			return nil, err
		}
		if left, err = p.call(fn, left, right); err != nil {
			return nil, err
		}
	}
}

func (p *parser) unary() (Expr, error) {
	if fn := prefix[p.tok]; fn != nil {
		p.next()
		e, err := p.unary()
		if err != nil {
			return nil, err
		}
		return p.call(fn, e)
	}
	switch {
	case p.tok == "(":
		p.next()
		e, err := p.expr(1)
		if err != nil {
			return nil, err
		}
		return e, p.expect(")")
	case p.tok != "" && (digit(p.tok[0]) || p.tok[0] == '.'):
		text := p.tok
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || strings.ContainsAny(text, "_xXpPnN") {
			return nil, fmt.Errorf("%q is not a number", text)
		}
		p.next()
		return &Const{text, value}, nil
	case p.tok != "" && letter(p.tok[0]):
		name := p.tok
		p.next()
		if p.tok == "(" {
			return p.apply(name)
		}
		if value, ok := constants[name]; ok {
			return &Const{name, value}, nil
		}
		return &Var{name, p.scope[name]}, nil
	}
	return nil, p.unexpected("an expression")
}

func (p *parser) apply(name string) (Expr, error) {
	fn := Lookup(name)
	if fn == nil || fn.symbol != "" {
		return nil, fmt.Errorf("there is no function %s", name)
	}
	p.next()
	var args []Expr
	for p.tok != ")" {
		if len(args) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		e, err := p.expr(1)
		if err != nil {
			return nil, err
		}
		args = append(args, e)
	}
	p.next()
	return p.call(fn, args...)
}

func (p *parser) call(fn *Func, args ...Expr) (Expr, error) {
	if len(args) != len(fn.args) {
		return nil, fmt.Errorf("%s: got %d arguments, want %d", fn.Name, len(args), len(fn.args))
	}
	for i, a := range args {
		if err := p.known(a); err != nil {
			return nil, err
		}
		if a.Kind() != fn.args[i] {
			return nil, fmt.Errorf("%s: argument %d is a %s, want a %s", fn.Name, i+1, a.Kind(), fn.args[i])
		}
	}
	return &Call{fn, args}, nil
}
