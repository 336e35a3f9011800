package primitive

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// prefixBlock is the number of elements whose prefix sums a workgroup computes.
const prefixBlock = 1024

// PrefixSum returns n+1 words of scratch memory: word i is the sum of counted(j) over j < i. bind adds the inputs of counted to a program
// and returns a function that declares it. name is the name of the programs.
func PrefixSum(r *shader.Recorder, name string, n int, bind func(s *shader.Builder) func(w *shader.Text)) (core.Memory, error) {
	m, err := r.Temp(4 * (n + 1))
	if err != nil {
		return m, err
	}
	blocks := shader.Ceil(n+1, prefixBlock)
	sums, err := r.Temp(4 * blocks)
	if err != nil {
		return m, err
	}
	s := shader.New(r, name+" (sums)")
	counted := bind(s)
	to, whole, count, blocksWord := s.WordsOf("to", m), s.WordsOf("sums", sums), s.Uint(n), s.Uint(blocks)
	err = s.Run(r, blocks, func(w *shader.Text) {
		counted(w)
		w.Shared("shares", "u32", shader.Threads)
		w.EachGroup(shader.Threads, blocksWord)
		w.Add(`  let first = group * 1024u + li * 4u;
  var own: word4;
  if (first < %[1]s) { own.x = counted(first); }
  if (first + 1u < %[1]s) { own.y = counted(first + 1u); }
  if (first + 2u < %[1]s) { own.z = counted(first + 2u); }
  if (first + 3u < %[1]s) { own.w = counted(first + 3u); }
  shares[li] = own.x + own.y + own.z + own.w;`, count, to, whole)
		w.Barrier()
		w.Add(`  for (var step = 1u; step < 256u; step = step << 1u) {
    var sum = shares[li];
    if (li >= step) { sum = sum + shares[li - step]; }`)
		w.Barrier()
		w.Add("    shares[li] = sum;")
		w.Barrier()
		w.Add(`  }
  if (li == 255u) { sums[%[3]s + group] = shares[255]; }
  var at = shares[li] - own.x - own.y - own.z - own.w;
  if (first <= %[1]s) { to[%[2]s + first] = at; }
  at = at + own.x;
  if (first + 1u <= %[1]s) { to[%[2]s + first + 1u] = at; }
  at = at + own.y;
  if (first + 2u <= %[1]s) { to[%[2]s + first + 2u] = at; }
  at = at + own.z;
  if (first + 3u <= %[1]s) { to[%[2]s + first + 3u] = at; }`, count, to, whole)
	})
	if err != nil || blocks == 1 {
		return m, err
	}
	starts, err := PrefixSum(r, "prefix", blocks, func(s *shader.Builder) func(w *shader.Text) {
		from := s.WordsOf("from_", sums)
		return func(w *shader.Text) { w.Func("counted(i: u32) -> u32", "return from_[%s + i];", from) }
	})
	if err != nil {
		return m, err
	}
	s = shader.New(r, "prefix (starts)")
	to, from, total := s.WordsOf("to", m), s.WordsOf("from_", starts), s.Uint(n+1)
	return m, s.Run(r, shader.GroupsFor(n+1), func(w *shader.Text) {
		w.Each(total)
		w.Add("  to[%[1]s + i] = to[%[1]s + i] + from_[%[2]s + i / 1024u];", to, from)
	})
}
