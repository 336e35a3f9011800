package shader

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// Threads is the default number of invocations of a workgroup.
const Threads = 256

// A Builder describes one dispatch of a program: its key, the operands that it binds, and its parameters. A kernel adds them in the same
// order on every call, so that names and positions match the program that an earlier call compiled.
type Builder struct {
	recorder *Recorder
	key      Key
	chosen   int    // bytes of the key that Specialize has added
	more     []byte // the bytes of the key that do not fit its words
	Words    []uint32
	Mems     []core.Memory
	Bindings []Binding
	err      error
}

// A Binding is an operand of a program, and how the program accesses it.
type Binding struct {
	Access
	compute expr.Type
	kind    expr.Kind
	in, out bool
}

// New returns a builder for the program with the given name.
func New(r *Recorder, name string) *Builder {
	return &Builder{recorder: r, key: Key{Name: name}, Words: r.Begin()}
}

// Specialize adds a number to the program's key and returns it. Different lists of numbers give different keys: a number is encoded as
// 7-bit digits, the lowest first, with a bit that says whether another digit follows. The last digit is stored plus one, so that no byte is
// 0.
func (s *Builder) Specialize(v int) int {
	u := uint64(v)
	for ; u >= 0x7f; u >>= 7 {
		s.digit(byte(u&0x7f) | 0x80)
	}
	s.digit(byte(u + 1))
	return v
}

// digit adds a byte to the key. The first 32 bytes go to the key's words, so that most keys need no allocation.
func (s *Builder) digit(b byte) {
	if at := s.chosen; at < 32 {
		s.key.Bits[1+at/8] |= uint64(b) << (8 * (at % 8))
	} else {
		s.more = append(s.more, b)
	}
	s.chosen++
}

// Flag is [Builder.Specialize] for a bool.
func (s *Builder) Flag(v bool) bool {
	if v {
		s.Specialize(1)
	} else {
		s.Specialize(0)
	}
	return v
}

// Uint adds a parameter and returns the expression for it.
func (s *Builder) Uint(v int) string {
	s.Words = append(s.Words, uint32(v))
	return Param(len(s.Words) - 1)
}

// Float adds a parameter of type [Real] and returns the expression for it.
func (s *Builder) Float(v float64) string {
	at := len(s.Words)
	s.Words = s.recorder.RealWords(s.Words, v)
	expression, _ := realParam(at, s.recorder.Float64)
	return expression
}

// Long adds a 64-bit parameter and returns the expression for it.
func (s *Builder) Long(v int64) string {
	low, high := IntWords(v)
	s.Words = append(s.Words, low, high)
	return "pair(" + Param(len(s.Words)-2) + ", " + Param(len(s.Words)-1) + ")"
}

// Loop adds the sizes and strides of a loop and returns the index of the first, for [Walk].
func (s *Builder) Loop(l *Loop) int {
	s.Words = l.Words(s.Words)
	return len(s.Words) - len(l.Sizes)*(1+len(l.Strides))
}

// In binds an operand that the program reads by ld_NAME(index), as values of type t. It returns the expression for the index of the
// operand's first element.
func (s *Builder) In(name string, o *core.Operand, t expr.Type, k expr.Kind) string {
	return s.bind(name, o, Binding{compute: t, kind: k, in: true})
}

// Out binds an operand that the program writes by st_NAME(index, value).
func (s *Builder) Out(name string, o *core.Operand, t expr.Type, k expr.Kind) string {
	return s.bind(name, o, Binding{compute: t, kind: k, out: true})
}

// InOut binds an operand that the program reads and writes.
func (s *Builder) InOut(name string, o *core.Operand, t expr.Type) string {
	return s.bind(name, o, Binding{compute: t, in: true, out: true})
}

func (s *Builder) bind(name string, o *core.Operand, b Binding) string {
	b.Access = Access{Name: name, DType: o.DType, Shared: b.out && PerWord(o.DType) > 1}
	s.key.Bits[0] = s.key.Bits[0]<<4 | uint64(o.DType+1) // not 0, so that an operand differs from none
	s.Bindings = append(s.Bindings, b)
	s.Mems = append(s.Mems, o.Memory)
	return s.Uint(int(Base(o)))
}

// WordsOf binds memory as 32-bit words, NAME[index], and returns the expression for the index of its first word.
func (s *Builder) WordsOf(name string, m core.Memory) string {
	s.Bindings = append(s.Bindings, Binding{Access: Access{Name: name, DType: core.Bool, words: true}})
	s.key.Bits[0] = s.key.Bits[0]<<4 | 15
	s.Mems = append(s.Mems, m)
	return s.Uint(int(Word(m)))
}

// AtomicsOf is [Builder.WordsOf] for words that are changed by the atomic operations of [Language].
func (s *Builder) AtomicsOf(name string, m core.Memory) string {
	at := s.WordsOf(name, m)
	s.Bindings[len(s.Bindings)-1].Shared = true
	return at
}

// RealsOf is [Builder.WordsOf] for numbers of type [Real], and returns the expression for the index of the first.
func (s *Builder) RealsOf(name string, m core.Memory) string {
	first := core.Operand{Memory: m, DType: s.recorder.RealType()}
	s.Bindings = append(s.Bindings, Binding{Access: Access{Name: name, DType: first.DType}})
	s.key.Bits[0] = s.key.Bits[0]<<4 | 14
	s.Mems = append(s.Mems, m)
	return s.Uint(int(Base(&first)))
}

// Vec4Of binds memory as vectors of four 32-bit integers, NAME[index].
func (s *Builder) Vec4Of(name string, m core.Memory) {
	s.Bindings = append(s.Bindings, Binding{Access: Access{Name: name, DType: core.Int32, Vec4: true}})
	s.key.Bits[0] = s.key.Bits[0]<<4 | 13
	s.Mems = append(s.Mems, m)
}

// Run dispatches a number of workgroups. body writes the program, after the builder has declared parameters and operands.
func (s *Builder) Run(r *Recorder, groups int, body func(w *Text)) error {
	p, err := s.compile(r, body)
	if err != nil {
		return err
	}
	return r.Dispatch(p, groups, s.Words, s.Mems...)
}

// RunGrid is [Builder.Run] for a grid of x * y * z workgroups.
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

// GroupsFor returns how many workgroups of [Threads] invocations give at least n invocations.
func GroupsFor(n int) int { return (n + Threads - 1) / Threads }
