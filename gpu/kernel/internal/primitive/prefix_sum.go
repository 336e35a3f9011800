package primitive

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// prefixBlock is the number of elements whose prefix sums a workgroup computes.
const prefixBlock = 1024

// A Prefix has the sums of the numbers before each, from 0 to n: the sums within blocks, and those before each block if there are several.
type Prefix struct {
	within, before core.Memory
}

// Bind binds the sums. It returns a function that declares prefix_at(i), the sum of the numbers before i.
func (p *Prefix) Bind(s *shader.Builder) func(w *shader.Text) {
	at, before := s.WordsOf("within", p.within), ""
	if s.Flag(p.before.Handle != 0) {
		before = " + before_blocks[" + s.WordsOf("before_blocks", p.before) + " + i / 1024u]"
	}
	return func(w *shader.Text) { w.Func("prefix_at(i: u32) -> u32", "return within[%s + i]%s;", at, before) }
}

// PrefixSum returns n+1 words of scratch memory: word i is the sum of counted(j) over j < i. bind adds the inputs of counted to a program
// and returns a function that declares it. name is the name of the programs.
func PrefixSum(r *shader.Recorder, name string, n int, bind func(s *shader.Builder) func(w *shader.Text)) (core.Memory, error) {
	p, err := PrefixBlocks(r, name, n, bind)
	if err != nil || p.before.Handle == 0 {
		return p.within, err
	}
	s := shader.New(r, "prefix (starts)")
	to, from, total := s.WordsOf("to", p.within), s.WordsOf("from_", p.before), s.Uint(n+1)
	return p.within, s.Run(r, shader.GroupsFor(n+1), func(w *shader.Text) {
		w.Each(total)
		w.Add("  to[%[1]s + i] = to[%[1]s + i] + from_[%[2]s + i / 1024u];", to, from)
	})
}

// PrefixBlocks is [PrefixSum] without the pass that adds the sums before each block.
func PrefixBlocks(r *shader.Recorder, name string, n int, bind func(s *shader.Builder) func(w *shader.Text)) (p Prefix, err error) {
	m, err := r.Temp(4 * (n + 1))
	if err != nil {
		return p, err
	}
	p.within = m
	blocks := shader.Ceil(n+1, prefixBlock)
	sums, err := r.Temp(4 * blocks)
	if err != nil {
		return p, err
	}
	s := shader.New(r, name+" (sums)")
	counted := bind(s)
	to, whole, count, blocksWord := s.WordsOf("to", m), s.WordsOf("sums", sums), s.Uint(n), s.Uint(blocks)
	err = s.Run(r, blocks, func(w *shader.Text) {
		counted(w)
		w.Shared("scanned", "u32", 2*shader.Threads)
		ScanFunc(w)
		w.EachGroup(shader.Threads, blocksWord)
		w.Add(`  let first = group * 1024u + li * 4u;
  var own: word4;
  if (first < %[1]s) { own.x = counted(first); }
  if (first + 1u < %[1]s) { own.y = counted(first + 1u); }
  if (first + 2u < %[1]s) { own.z = counted(first + 2u); }
  if (first + 3u < %[1]s) { own.w = counted(first + 3u); }
  let share = own.x + own.y + own.z + own.w;
  let up_to = scan_words(share, li);
  if (li == 255u) { sums[%[3]s + group] = up_to; }
  var at = up_to - share;
  if (first <= %[1]s) { to[%[2]s + first] = at; }
  at = at + own.x;
  if (first + 1u <= %[1]s) { to[%[2]s + first + 1u] = at; }
  at = at + own.y;
  if (first + 2u <= %[1]s) { to[%[2]s + first + 2u] = at; }
  at = at + own.z;
  if (first + 3u <= %[1]s) { to[%[2]s + first + 3u] = at; }`, count, to, whole)
	})
	if err != nil || blocks == 1 {
		return p, err
	}
	p.before, err = PrefixSum(r, "prefix", blocks, func(s *shader.Builder) func(w *shader.Text) {
		from := s.WordsOf("from_", sums)
		return func(w *shader.Text) { w.Func("counted(i: u32) -> u32", "return from_[%s + i];", from) }
	})
	return p, err
}
