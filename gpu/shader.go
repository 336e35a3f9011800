package gpu

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// A shader is a program in the making together with one run of it: what it binds, and its parameters. Kernels build it in
// the same order each time, so that names and positions agree with the program that was compiled for an earlier call; the
// text is only written when there is none.
type shader struct {
	key    programKey
	chosen int    // bytes of choices
	more   []byte // the choices for which the key's words have no room
	words  []uint32
	mems   []core.Memory
	binds  []binding
	err    error
}

// A binding is an operand of a shader: how it is read and written.
type binding struct {
	access
	compute expr.Type
	kind    expr.Kind
	in, out bool
}

func newShader(r *recorder, name string) *shader {
	return &shader{key: programKey{name: name}, words: r.begin()}
}

// choose makes the program special for a number. No two lists of choices have one key: a number is written as digits of 7 bits, the
// lowest first, of which all but the last say that another follows; and the last is one more, so that no digit is 0.
func (s *shader) choose(v int) int {
	u := uint64(v)
	for ; u >= 0x7f; u >>= 7 {
		s.digit(byte(u&0x7f) | 0x80)
	}
	s.digit(byte(u + 1))
	return v
}

// digit adds a byte to the key: the first 32 to its words, so that keys are made without memory of their own.
func (s *shader) digit(b byte) {
	if at := s.chosen; at < 32 {
		s.key.bits[1+at/8] |= uint64(b) << (8 * (at % 8))
	} else {
		s.more = append(s.more, b)
	}
	s.chosen++
}

// flag is choose for a truth value.
func (s *shader) flag(v bool) bool {
	if v {
		s.choose(1)
	} else {
		s.choose(0)
	}
	return v
}

// uint adds a parameter and returns WGSL for it.
func (s *shader) uint(v int) string {
	s.words = append(s.words, uint32(v))
	return param(len(s.words) - 1)
}

// float adds a parameter and returns WGSL for it.
func (s *shader) float(v float64) string {
	s.words = append(s.words, floatWord(v))
	return "bitcast<f32>(" + param(len(s.words)-1) + ")"
}

// long adds a parameter of 64 bits and returns WGSL for it.
func (s *shader) long(v int64) string {
	low, high := intWords(v)
	s.words = append(s.words, low, high)
	return "vec2<u32>(" + param(len(s.words)-2) + ", " + param(len(s.words)-1) + ")"
}

// loop adds the sizes and strides of a layout and returns the first one's index for [walk].
func (s *shader) loop(l *layout) int {
	s.words = l.words(s.words)
	return len(s.words) - len(l.sizes)*(1+len(l.strides))
}

// in binds an operand that is read as numbers of type t, by ld_NAME(index), and returns WGSL for its first index.
func (s *shader) in(name string, o *core.Operand, t expr.Type, k expr.Kind) string {
	return s.bind(name, o, binding{compute: t, kind: k, in: true})
}

// out binds an operand that is written by st_NAME(index, value).
func (s *shader) out(name string, o *core.Operand, t expr.Type, k expr.Kind) string {
	return s.bind(name, o, binding{compute: t, kind: k, out: true})
}

// both binds an operand that is read and written.
func (s *shader) both(name string, o *core.Operand, t expr.Type) string {
	return s.bind(name, o, binding{compute: t, in: true, out: true})
}

func (s *shader) bind(name string, o *core.Operand, b binding) string {
	b.access = access{name: name, dtype: o.DType, shared: b.out && packed(o.DType) > 1}
	s.key.bits[0] = s.key.bits[0]<<4 | uint64(o.DType+1) // not 0, which no operand is
	s.binds = append(s.binds, b)
	s.mems = append(s.mems, o.Memory)
	return s.uint(int(base(o)))
}

// wordsOf binds memory as 32-bit words, NAME[index], and returns WGSL for its first word.
func (s *shader) wordsOf(name string, m core.Memory) string {
	s.binds = append(s.binds, binding{access: access{name: name, dtype: core.Bool}})
	s.key.bits[0] = s.key.bits[0]<<4 | 15
	s.mems = append(s.mems, m)
	return s.uint(int(word(m)))
}

// floatsOf binds memory as float32 numbers, NAME[index].
func (s *shader) floatsOf(name string, m core.Memory) string {
	s.binds = append(s.binds, binding{access: access{name: name, dtype: core.Float32}})
	s.key.bits[0] = s.key.bits[0]<<4 | 14
	s.mems = append(s.mems, m)
	return s.uint(int(word(m)))
}

// declarations returns the text of parameters and bindings.
func (s *shader) declarations() string {
	var b strings.Builder
	b.WriteString(paramsDeclaration)
	for i := range s.binds {
		x := &s.binds[i]
		b.WriteString(x.declare(i + 1))
		if x.in {
			b.WriteString(x.loader(x.compute, x.kind))
		}
		if x.out {
			b.WriteString(x.storer(x.compute, x.kind))
		}
	}
	return b.String()
}

// run dispatches workgroups in a row. body writes the program after its declarations.
func (s *shader) run(r *recorder, groups int, body func() string) error {
	p, err := s.compile(r, body)
	if err != nil {
		return err
	}
	return r.dispatch(p, groups, s.words, s.mems...)
}

// runGrid is run for a grid with sides.
func (s *shader) runGrid(r *recorder, x, y, z int, body func() string) error {
	p, err := s.compile(r, body)
	if err != nil {
		return err
	}
	return r.grid(p, x, y, z, s.words, s.mems...)
}

func (s *shader) compile(r *recorder, body func() string) (*program, error) {
	r.words = s.words
	if s.err != nil {
		return nil, s.err
	}
	if len(s.mems) > maxBuffers {
		return nil, core.Errorf(core.NotImplemented, s.key.name, "%d operands are more than a program binds", len(s.mems))
	}
	if s.more != nil {
		s.key.more = string(s.more)
	}
	return r.program(s.key, len(s.mems), func() string { return withLibrary(s.declarations() + body()) })
}

// each returns the main function that runs body for i from 0 to the WGSL number n, with workgroups of 256.
func each(n, body string) string {
	return fmt.Sprintf(entry, threads) + fmt.Sprintf("  let i = group * %du + li;\n  if (i >= %s) { return; }\n", threads, n) + body + "}\n"
}

// eachGroup opens the main function that each of the workgroups runs whose number, group, is below the WGSL number n.
func eachGroup(width int, n string) string {
	return fmt.Sprintf(entry, width) + "  if (group >= " + n + ") { return; }\n"
}

// groupsFor returns how many workgroups of 256 run n invocations.
func groupsFor(n int) int { return (n + threads - 1) / threads }
