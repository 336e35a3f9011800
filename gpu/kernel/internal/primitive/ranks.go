package primitive

import (
	"github.com/plait-ml/plait/gpu/shader"
)

// Ranks number the elements of a list that count, in order. Only the number before each block is stored: a program that visits the elements
// numbers them within its block again, which moves fewer bytes than a number for each element.
type Ranks struct {
	before prefix
	n      int
	bind   func(s *shader.Builder) func(w *shader.Text)
}

// NewRanks numbers the elements i of n for which counted(i) is 1 and not 0. bind adds the inputs of counted to a program, and returns a
// function that declares it. name is the name of the programs.
func NewRanks(r *shader.Recorder, name string, n int, bind func(s *shader.Builder) func(w *shader.Text)) (*Ranks, error) {
	blocks := shader.Ceil(n, prefixBlock)
	m, err := r.Temp(4 * max(blocks, 1))
	if err != nil {
		return nil, err
	}
	s := shader.New(r, name+" (counts)")
	counted := bind(s)
	to, count, blocksWord := s.WordsOf("block_counts", m), s.Uint(n), s.Uint(blocks)
	err = s.Run(r, blocks, func(w *shader.Text) {
		counted(w)
		w.Reduce("count", "u32", "a + b", shader.Threads)
		w.EachGroup(shader.Threads, blocksWord)
		w.Add("  let first = group * %du + li;\n  var own = 0u;", prefixBlock)
		for k := 0; k < prefixBlock; k += shader.Threads {
			w.Add("  if (first + %[1]du < %[2]s) { own = own + counted(first + %[1]du); }", k, count)
		}
		w.Add("  own = whole_count(li, own);\n  if (li == 0u) { block_counts[%s + group] = own; }", to)
	})
	if err != nil {
		return nil, err
	}
	before, err := prefixBlocks(r, "ranks", blocks, func(s *shader.Builder) func(w *shader.Text) {
		from := s.WordsOf("block_counts", m)
		return func(w *shader.Text) { w.Func("counted(i: u32) -> u32", "return block_counts[%s + i];", from) }
	})
	return &Ranks{before: before, n: n, bind: bind}, err
}

// Groups returns the number of workgroups of a program that visits the elements.
func (k *Ranks) Groups() int { return shader.Ceil(k.n, prefixBlock) }

// Bind adds the ranks to a program. It returns a function that opens the main function, which runs body for each element i that counts; rank
// is the number of those before it.
func (k *Ranks) Bind(s *shader.Builder) func(w *shader.Text, body string) {
	counted, before := k.bind(s), k.before.bind(s)
	count, blocks := s.Uint(k.n), s.Uint(k.Groups())
	return func(w *shader.Text, body string) {
		counted(w)
		before(w)
		w.Shared("scanned", "u32", 2*shader.Threads)
		ScanFunc(w)
		w.EachGroup(shader.Threads, blocks)
		w.Add("  let first = group * %du + li * 4u;\n  var share = 0u;", prefixBlock)
		for e := range 4 {
			w.Add("  var c%[1]d = 0u;\n  if (first + %[1]du < %[2]s) { c%[1]d = counted(first + %[1]du); }\n  share = share + c%[1]d;", e, count)
		}
		w.Add(`  var rank = prefix_at(group) + scan_words(share, li) - share;
  for (var e = 0u; e < 4u; e++) {
    let i = first + e;
    let one = select(select(c2, c3, e == 3u), select(c0, c1, e == 1u), e < 2u);
    if (one == 1u) {
%s    }
    rank = rank + one;
  }`, body)
	}
}
