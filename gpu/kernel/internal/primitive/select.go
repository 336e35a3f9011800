package primitive

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// Of lines up to selectItems entries for each invocation, a few entries are found without sorting the rest. A workgroup has the keys of a
// line in registers. It counts digits of 8 bits, the highest first, of the entries that are equal to the wanted one so far; the digit of
// that one follows from the sums of the counts. Digits of indices come behind those of keys, so that entries all differ.

const (
	selectItems = 16
	// selectKept is how many entries are kept at most. An invocation compares one of them with all others.
	selectKept = shader.Threads
)

// A Selection is which entries [SelectLines] keeps of each of some lines of N: the first Keep, or the one at Place. That is an expression of
// n, which is Keep, and of numbers, how many entries of the line are not NaN. Keys have a number of bits, and those of NaN are the largest
// if there is NaN.
type Selection struct {
	Lines, N, Keep, Bits int
	Place                string
	NaN                  bool
}

// Possible reports whether SelectLines can keep them.
func (p *Selection) Possible() bool {
	return p.Bits <= 32 && p.N > networkEntries && p.N <= selectItems*shader.Threads && (p.Place != "" || p.Keep <= min(selectKept, p.N/4))
}

// SelectLines keeps some entries of lines, sorted. bind and name are those of [SortLines].
func SelectLines(r *shader.Recorder, name string, p Selection, bind func(s *shader.Builder) func(w *shader.Text)) (*Entries, error) {
	kept := p.Keep
	if p.Place != "" {
		kept = 1
	}
	e, err := newEntries(r, p.Lines, 1, kept, kept, false, core.Memory{})
	if err != nil {
		return nil, err
	}
	s := shader.New(r, name+" (select) "+p.Place)
	key := bind(s)
	put := e.Bind(s, "to")
	nan := s.Flag(p.NaN)
	each := s.Specialize(shader.Ceil(p.N, shader.Threads))
	rounds := s.Specialize(shader.Ceil(max(p.Bits, 1), digitBits))
	count, size, keepWord, keptWord := s.Uint(p.Lines), s.Uint(p.N), s.Uint(p.Keep), s.Uint(kept)
	return e, s.Run(r, p.Lines, func(w *shader.Text) {
		key(w)
		put(w)
		w.Shared("digits", shader.AtomicWord, shader.Threads)
		w.Shared("found", "u32", 2)
		w.Shared("scanned", "u32", 2*shader.Threads)
		ScanFunc(w)
		if p.Place != "" {
			w.Reduce("count", "u32", "a + b", shader.Threads)
		} else {
			w.Shared("keys", "u32", selectKept)
			w.Shared("places", "u32", selectKept)
		}
		w.EachGroup(shader.Threads, count)
		items := func(format string) {
			for q := range each {
				w.Add("  { let i = li + %[1]du; let k = k%[2]d; if (i < %[3]s) { %[4]s } }", q*shader.Threads, q, size, format)
			}
		}
		w.Add("  let line = group;")
		for q := range each {
			w.Add("  var k%[1]d = 0xffffffffu;\n  if (li + %[2]du < %[3]s) { k%[1]d = key_of(line, li + %[2]du).y; }", q, q*shader.Threads, size)
		}
		w.Add("  let n = %s;\n  var want = n - 1u;", keepWord)
		if p.Place != "" {
			w.Add("  var numbers = n;")
			if nan {
				w.Add("  numbers = 0u;")
				items("numbers = numbers + select(1u, 0u, k == 0xffffffffu);")
				w.Add("  numbers = whole_count(li, numbers);")
			}
			w.Add("  want = %s;", p.Place)
		}
		// What is known of the wanted entry: the bits mask of its index and key are those of known.
		w.Add("  var known = pair(0u);\n  var mask = pair(0u);\n  for (var turn = 0u; turn < %du; turn++) {", rounds+2)
		w.Add("  let ofKey = turn < %[1]du;\n  let shift = %[2]du * select(%[3]du - turn, %[1]du - 1u - turn, ofKey);\n  %[4]s;",
			rounds, digitBits, rounds+1, w.AtomicStore("digits[li]", "0u"))
		w.Barrier()
		items(fmt.Sprintf("if (((k ^ known.y) & mask.y) == 0u && ((i ^ known.x) & mask.x) == 0u) { %s; }",
			w.AtomicAdd("digits[(select(i, k, ofKey) >> shift) & 255u]", "1u")))
		w.Barrier()
		w.Add("  let here = %s;\n  let up_to = scan_words(here, li);", w.AtomicLoad("digits[li]"))
		w.Add("  if (want < up_to && want >= up_to - here) { found[0] = li; found[1] = up_to - here; }")
		w.Barrier()
		w.Add(`  want = want - found[1];
  let bits = pair(found[0] << shift, 255u << shift);
  if (ofKey) { known.y = known.y | bits.x; mask.y = mask.y | bits.y; } else { known.x = known.x | bits.x; mask.x = mask.x | bits.y; }
  }`)
		if p.Place != "" {
			w.Add("  if (li == 0u) { to_put(line, pair(0u, known.y), known.x); }")
			return
		}
		w.Add("  if (li == 0u) { %s; }", w.AtomicStore("digits[0]", "0u"))
		w.Barrier()
		items(fmt.Sprintf("let v = k & mask.y; if (v < known.y || (v == known.y && i <= known.x)) { let at = %s; keys[at] = v; places[at] = i; }",
			w.AtomicAdd("digits[0]", "1u")))
		w.Barrier()
		w.Add(`  if (li >= %[1]s) { return; }
  let mine = keys[li];
  let own = places[li];
  var rank = 0u;
  for (var j = 0u; j < %[1]s; j++) { if (keys[j] < mine || (keys[j] == mine && places[j] < own)) { rank = rank + 1u; } }
  to_put(line * %[1]s + rank, pair(0u, mine), own);`, keptWord)
	})
}
