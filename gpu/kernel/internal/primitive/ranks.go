package primitive

import (
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// rankItems is how many elements an invocation numbers, a multiple of four.
	rankItems = 8
	// rankBlock is the number of elements that a workgroup numbers.
	rankBlock = rankItems * shader.Threads
)

// Ranks number the elements of a list that count, in order. Only the number before each block is stored: a program that visits the elements
// numbers them within its block again, which moves fewer bytes than a number for each element.
type Ranks struct {
	before Prefix
	n      int
	bind   func(s *shader.Builder) func(w *shader.Text)
}

// NewRanks numbers those of n elements that count. bind adds inputs to a program, and returns a function that declares counted4(q), which
// has 1 for each of the elements 4q to 4q+3 that counts, and otherwise 0. q may be too large. name is the name of the programs.
func NewRanks(r *shader.Recorder, name string, n int, bind func(s *shader.Builder) func(w *shader.Text)) (*Ranks, error) {
	k := &Ranks{n: n, bind: bind}
	blocks := k.Groups()
	m, err := r.Temp(4 * max(blocks, 1))
	if err != nil {
		return nil, err
	}
	s := shader.New(r, name+" (counts)")
	counted := bind(s)
	to, blocksWord := s.WordsOf("block_counts", m), s.Uint(blocks)
	err = s.Run(r, blocks, func(w *shader.Text) {
		counted(w)
		w.Reduce("count", "u32", "a + b", shader.Threads)
		w.EachGroup(shader.Threads, blocksWord)
		w.Add("  let first = group * %du + li;\n  var all = counted4(first);", rankBlock/4)
		for q := 1; q < rankItems/4; q++ {
			w.Add("  all = all + counted4(first + %du);", q*shader.Threads)
		}
		w.Add("  let own = whole_count(li, all.x + all.y + all.z + all.w);\n  if (li == 0u) { block_counts[%s + group] = own; }", to)
	})
	if err != nil {
		return nil, err
	}
	k.before, err = PrefixBlocks(r, "ranks", blocks, func(s *shader.Builder) func(w *shader.Text) {
		from := s.WordsOf("block_counts", m)
		return func(w *shader.Text) { w.Func("counted(i: u32) -> u32", "return block_counts[%s + i];", from) }
	})
	return k, err
}

// Groups returns the number of workgroups of a program that visits the elements.
func (k *Ranks) Groups() int { return shader.Ceil(k.n, rankBlock) }

// Bind adds the ranks to a program. It returns a function that opens the main function, which runs body for each element i that counts; rank
// is the number of those before it. The workgroup lists its elements first, so that invocations side by side have ranks side by side.
func (k *Ranks) Bind(s *shader.Builder) func(w *shader.Text, body string) {
	counted, before := k.bind(s), k.before.Bind(s)
	blocks := s.Uint(k.Groups())
	return func(w *shader.Text, body string) {
		counted(w)
		before(w)
		w.Shared("scanned", "u32", 2*shader.Threads)
		w.Shared("listed", "u32", rankBlock)
		ScanFunc(w)
		w.EachGroup(shader.Threads, blocks)
		w.Add("  let own = li * %du;\n  var share = 0u;", rankItems)
		for q := range rankItems / 4 {
			w.Add("  let c%[1]d = counted4(group * %[2]du + li * %[3]du + %[1]du);\n  share = share + c%[1]d.x + c%[1]d.y + c%[1]d.z + c%[1]d.w;",
				q, rankBlock/4, rankItems/4)
		}
		w.Add("  var at = scan_words(share, li) - share;")
		for e := range rankItems {
			w.Add("  if (c%[1]d.%[2]s == 1u) { listed[at] = own + %[3]du; at = at + 1u; }", e/4, shader.Component(e%4), e)
		}
		w.Barrier()
		w.Add(`  let total = scanned[%du];
  let least = prefix_at(group);
  for (var e = li; e < total; e += %du) {
    let rank = least + e;
    let i = group * %du + listed[e];
%s  }`, shader.Threads-1, shader.Threads, rankBlock, body)
	}
}
