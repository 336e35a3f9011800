package shader

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// Threads is the number of invocations of a workgroup where a kernel does not say another.
const Threads = 256

// A Builder is one dispatch of a program: its key, the operands that it binds, and its parameters. A kernel adds them in the same order on
// every call, so that names and positions agree with the program that was compiled for an earlier one. The text is written only if there
// is none.
type Builder struct {
	key      Key
	chosen   int    // bytes of choices
	more     []byte // the choices for which the key's words have no room
	Words    []uint32
	Mems     []core.Memory
	Bindings []Binding
	err      error
}

// A Binding is an operand of a shader: how it is read and written.
type Binding struct {
	Access
	compute expr.Type
	kind    expr.Kind
	in, out bool
}

// New returns a builder for a kernel's program of the given name.
func New(r *Recorder, name string) *Builder {
	return &Builder{key: Key{Name: name}, Words: r.Begin()}
}

// Specialize adds a number to the program's key and returns it. Different lists of numbers make different keys: a number is written as digits
// of 7 bits, lowest first, with a bit that says whether another follows; the last digit is one more, so that none is 0.
func (s *Builder) Specialize(v int) int {
	u := uint64(v)
	for ; u >= 0x7f; u >>= 7 {
		s.digit(byte(u&0x7f) | 0x80)
	}
	s.digit(byte(u + 1))
	return v
}

// digit adds a byte to the key; the first 32 go to its words, so that most keys need no allocation.
func (s *Builder) digit(b byte) {
	if at := s.chosen; at < 32 {
		s.key.Bits[1+at/8] |= uint64(b) << (8 * (at % 8))
	} else {
		s.more = append(s.more, b)
	}
	s.chosen++
}

// Flag is [Builder.Specialize] for a truth value.
func (s *Builder) Flag(v bool) bool {
	if v {
		s.Specialize(1)
	} else {
		s.Specialize(0)
	}
	return v
}

// Uint adds a parameter and returns an expression for it.
func (s *Builder) Uint(v int) string {
	s.Words = append(s.Words, uint32(v))
	return Param(len(s.Words) - 1)
}

// Float adds a parameter and returns an expression for it.
func (s *Builder) Float(v float64) string {
	s.Words = append(s.Words, FloatWord(v))
	return "bitcast<real>(" + Param(len(s.Words)-1) + ")"
}

// Long adds a parameter of 64 bits and returns an expression for it.
func (s *Builder) Long(v int64) string {
	low, high := IntWords(v)
	s.Words = append(s.Words, low, high)
	return "pair(" + Param(len(s.Words)-2) + ", " + Param(len(s.Words)-1) + ")"
}

// Loop adds the sizes and strides of a loop and returns the first one's index for [Walk].
func (s *Builder) Loop(l *Loop) int {
	s.Words = l.Words(s.Words)
	return len(s.Words) - len(l.Sizes)*(1+len(l.Strides))
}

// In binds an operand that is read as numbers of type t, by ld_NAME(index), and returns an expression for its first index.
func (s *Builder) In(name string, o *core.Operand, t expr.Type, k expr.Kind) string {
	return s.bind(name, o, Binding{compute: t, kind: k, in: true})
}

// Out binds an operand that is written by st_NAME(index, value).
func (s *Builder) Out(name string, o *core.Operand, t expr.Type, k expr.Kind) string {
	return s.bind(name, o, Binding{compute: t, kind: k, out: true})
}

// Both binds an operand that is read and written.
func (s *Builder) Both(name string, o *core.Operand, t expr.Type) string {
	return s.bind(name, o, Binding{compute: t, in: true, out: true})
}

func (s *Builder) bind(name string, o *core.Operand, b Binding) string {
	b.Access = Access{Name: name, DType: o.DType, Shared: b.out && PerWord(o.DType) > 1}
	s.key.Bits[0] = s.key.Bits[0]<<4 | uint64(o.DType+1) // not 0, which no operand is
	s.Bindings = append(s.Bindings, b)
	s.Mems = append(s.Mems, o.Memory)
	return s.Uint(int(Base(o)))
}

// WordsOf binds memory as 32-bit words, NAME[index], and returns an expression for its first word.
func (s *Builder) WordsOf(name string, m core.Memory) string {
	s.Bindings = append(s.Bindings, Binding{Access: Access{Name: name, DType: core.Bool}})
	s.key.Bits[0] = s.key.Bits[0]<<4 | 15
	s.Mems = append(s.Mems, m)
	return s.Uint(int(Word(m)))
}

// AtomicsOf binds memory as words that are changed atomically, NAME[index]: see [Language]. It returns an expression for its first word.
func (s *Builder) AtomicsOf(name string, m core.Memory) string {
	at := s.WordsOf(name, m)
	s.Bindings[len(s.Bindings)-1].Shared = true
	return at
}

// FloatsOf binds memory as float32 numbers, NAME[index].
func (s *Builder) FloatsOf(name string, m core.Memory) string {
	s.Bindings = append(s.Bindings, Binding{Access: Access{Name: name, DType: core.Float32}})
	s.key.Bits[0] = s.key.Bits[0]<<4 | 14
	s.Mems = append(s.Mems, m)
	return s.Uint(int(Word(m)))
}

// Run dispatches workgroups in a row. body writes the program behind its parameters and operands.
func (s *Builder) Run(r *Recorder, groups int, body func(w *Text)) error {
	p, err := s.compile(r, body)
	if err != nil {
		return err
	}
	return r.Dispatch(p, groups, s.Words, s.Mems...)
}

// RunGrid dispatches a grid of x * y * z workgroups.
func (s *Builder) RunGrid(r *Recorder, x, y, z int, body func(w *Text)) error {
	p, err := s.compile(r, body)
	if err != nil {
		return err
	}
	return r.grid(p, x, y, z, s.Words, s.Mems...)
}

func (s *Builder) compile(r *Recorder, body func(w *Text)) (Program, error) {
	r.Words = s.Words
	if s.err != nil {
		return nil, s.err
	}
	if len(s.Mems) > MaxBuffers {
		return nil, core.Errorf(core.NotImplemented, s.key.Name, "%d operands are more than a program binds", len(s.Mems))
	}
	if s.more != nil {
		s.key.more = string(s.more)
	}
	return r.Program(s.key, len(s.Mems), func(w *Text) {
		for i := range s.Bindings {
			w.bind(i+1, &s.Bindings[i])
		}
		body(w)
	})
}

// GroupsFor returns how many workgroups of 256 run n invocations.
func GroupsFor(n int) int { return (n + Threads - 1) / Threads }
