package primitive

import (
	"fmt"
	"math/bits"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// A line is sorted as a list of entries. An entry is an unsigned key with the order of the elements, and the element's index, which breaks
// ties. Workgroups sort tiles of a line. Pairs of neighbouring runs are merged until one is left: the new
// position of an entry is its position in its own run plus the number of smaller entries in the other one. If only the first entries of a
// line are needed, the rest is dropped in every merge.

const (
	// sortedTile is the number of entries that a workgroup sorts by a bitonic network.
	sortedTile = 1024
	// networkEntries is the length up to which a line is sorted by a network.
	networkEntries = 512
	// fewTiles is the number of tiles up to which they are merged.
	fewTiles = 4
)

// Entries are the sorted runs of some lines. Each line has the same number of runs. All its runs have the same length, except the last.
type Entries struct {
	memory           core.Memory // the high words of keys, then the low words of 64-bit keys, then indices
	wide             bool        // keys have 64 bits
	Capacity         int         // number of entries
	Lines            int
	runs, run, final int // runs of a line, length of a run, and length of the last run
}

// LineLength returns the number of entries of a line.
func (e *Entries) LineLength() int { return (e.runs-1)*e.run + e.final }

// newEntries returns entries in the memory room, which must be large enough; or in new scratch memory if room is none.
func newEntries(r *shader.Recorder, lines, runs, run, final int, wide bool, room core.Memory) (*Entries, error) {
	e := &Entries{memory: room, wide: wide, Lines: lines, runs: runs, run: run, final: final}
	e.Capacity = lines * e.LineLength()
	if room.Handle != 0 {
		return e, nil
	}
	words := 2
	if wide {
		words = 3
	}
	var err error
	e.memory, err = r.Temp(4 * words * e.Capacity)
	return e, err
}

// Bind adds entries to a program. It returns a function that declares NAME_key(i), a pair of which 32-bit keys use the high word,
// NAME_index(i), and NAME_put(i, key, index).
func (e *Entries) Bind(s *shader.Builder, name string) func(w *shader.Text) {
	at := s.WordsOf(name, e.memory)
	room := s.Uint(e.Capacity)
	s.Flag(e.wide)
	low, put, last := "0u", "", room
	if e.wide {
		low, last = fmt.Sprintf("%s[%s + %s + i]", name, at, room), "2u * "+room
		put = fmt.Sprintf(" %s[%s + %s + i] = key.x;", name, at, room)
	}
	return func(w *shader.Text) {
		w.Func(name+"_key(i: u32) -> pair", "return pair(%s, %s[%s + i]);", low, name, at)
		w.Func(name+"_index(i: u32) -> u32", "return %s[%s + %s + i];", name, at, last)
		w.Func(name+"_put(i: u32, key: pair, index: u32)", "%[1]s[%[2]s + i] = key.y;%[3]s %[1]s[%[2]s + %[4]s + i] = index;", name, at, put, last)
	}
}

// SortLines sorts lines of n elements each, and keeps the first keep entries of each line. bind adds the keys' inputs to a program and
// returns a function that declares key_of(line, index). name is the name of the programs. Keys that are not wide only have the given number
// of bits, the lowest of the high word.
//
// Short lines are sorted by bitonic networks, several in a workgroup, and lines up to a tile by the digits of their keys. Of longer lines
// tiles are sorted and merged if that takes few merges or keeps few entries. Otherwise all entries are sorted by digits.
func SortLines(r *shader.Recorder, name string, lines, n, keep, bits int, wide bool, bind func(s *shader.Builder) func(w *shader.Text)) (*Entries, error) {
	if wide {
		bits = 64
	}
	each := tileItems(r.GPU, wide)
	tile := each * orderThreads
	var e *Entries
	var err error
	switch {
	case n <= networkEntries || each == 0:
		e, err = sortTiles(r, name, lines, n, keep, wide, bind)
	case n > fewTiles*tile && keep > n/16:
		return radixSort(r, name, lines, n, keep, max(bits, 1), wide, bind)
	default:
		for each > 4 && n <= each/2*orderThreads {
			each /= 2
		}
		e, err = radixTiles(r, name, lines, n, keep, each, max(bits, 1), wide, bind)
	}
	var spare core.Memory // memory of earlier entries, which were at least as many
	for err == nil && e.runs > 1 {
		from := e
		e, err = mergeRuns(r, from, keep, spare)
		spare = from.memory
	}
	return e, err
}

// sortTiles sorts the tiles of all lines.
func sortTiles(r *shader.Recorder, name string, lines, n, keep int, wide bool, bind func(s *shader.Builder) func(w *shader.Text)) (*Entries, error) {
	tile := min(max(1<<bits.Len(uint(n-1)), 2), sortedTile)
	runs := shader.Ceil(n, tile)
	e, err := newEntries(r, lines, runs, min(tile, keep), min(n-(runs-1)*tile, keep), wide, core.Memory{})
	if err != nil {
		return nil, err
	}
	s := shader.New(r, name+" (tiles)")
	key := bind(s)
	put := e.Bind(s, "to")
	blocks, runsWord, size, line, run, tileWord := s.Uint(lines*runs), s.Uint(runs), s.Uint(n), s.Uint(e.LineLength()), s.Uint(e.run), s.Uint(tile)
	return e, s.Run(r, shader.Ceil(lines*runs, sortedTile/tile), func(w *shader.Text) {
		before := "a.y < b.y || (a.y == b.y && i < j)"
		load, low, swap := "", [2]string{"0u", "0u"}, ""
		if wide {
			before = "a.y < b.y || (a.y == b.y && (a.x < b.x || (a.x == b.x && i < j)))"
			load, low, swap = " low[i] = k.x;", [2]string{"low[i]", "low[j]"}, " low[i] = b.x; low[j] = a.x;"
		}
		key(w)
		put(w)
		w.Shared("high", "u32", sortedTile)
		w.Shared("places", "u32", sortedTile)
		if wide {
			w.Shared("low", "u32", sortedTile)
		}
		w.Func("before(a: pair, i: u32, b: pair, j: u32) -> bool", "return %s;", before)
		w.Main(shader.Threads)
		w.Add(`  let tile = %[1]s;
  let first = group * (1024u / tile);
  for (var i = li; i < 1024u; i += 256u) {
    let block = first + i / tile;
    let at = (block %% %[2]s) * tile + i %% tile;
    var k = pair(0xffffffffu, 0xffffffffu);
    var place = 0xffffffffu;
    if (block < %[3]s && at < %[4]s) { k = key_of(block / %[2]s, at); place = at; }
    high[i] = k.y; places[i] = place;%[5]s
  }`, tileWord, runsWord, blocks, size, load, low[0], low[1], swap, run, line)
		w.Barrier()
		w.Add(`  for (var size = 2u; size <= tile; size = size << 1u) {
    for (var step = size >> 1u; step > 0u; step = step >> 1u) {
      for (var t = li; t < 512u; t += 256u) {
        let i = ((t & ~(step - 1u)) << 1u) | (t & (step - 1u));
        let j = i | step;
        let a = pair(%[6]s, high[i]);
        let b = pair(%[7]s, high[j]);
        let up = size == tile || (i & size) == 0u;
        if (before(b, places[j], a, places[i]) == up) {
          let place = places[i];
          places[i] = places[j]; places[j] = place; high[i] = b.y; high[j] = a.y;%[8]s
        }
      }`, tileWord, runsWord, blocks, size, load, low[0], low[1], swap, run, line)
		w.Barrier()
		w.Add(`    }
  }
  for (var i = li; i < 1024u; i += 256u) {
    let block = first + i / tile;
    let own = i %% tile;
    if (block < %[3]s && own < %[9]s && places[i] != 0xffffffffu) {
      to_put((block / %[2]s) * %[10]s + (block %% %[2]s) * %[9]s + own, pair(%[6]s, high[i]), places[i]);
    }
  }`, tileWord, runsWord, blocks, size, load, low[0], low[1], swap, run, line)
	})
}

// mergeRuns merges pairs of runs of each line and keeps the first keep entries of each result. The result is stored in room, if that is
// memory.
func mergeRuns(r *shader.Recorder, e *Entries, keep int, room core.Memory) (*Entries, error) {
	final := e.final
	if e.runs%2 == 0 {
		final = min(e.run+e.final, keep)
	}
	m, err := newEntries(r, e.Lines, shader.Ceil(e.runs, 2), min(2*e.run, keep), final, e.wide, room)
	if err != nil {
		return nil, err
	}
	s := shader.New(r, "merge runs")
	from, to := e.Bind(s, "from_"), m.Bind(s, "to")
	count, line, run, runs, last := s.Uint(e.Capacity), s.Uint(e.LineLength()), s.Uint(e.run), s.Uint(e.runs), s.Uint(e.final)
	toLine, toRun := s.Uint(m.LineLength()), s.Uint(m.run)
	err = s.Run(r, shader.GroupsFor(e.Capacity), func(w *shader.Text) {
		from(w)
		to(w)
		BeforeFunc(w)
		w.Each(count)
		w.Add(`  let line = i / %[1]s;
  let run = (i %% %[1]s) / %[2]s;
  let own = (i %% %[1]s) %% %[2]s;
  let mine = from__key(i);
  let other = run ^ 1u;
  var low = 0u;
  if (other < %[3]s) {
    let first = line * %[1]s + other * %[2]s;
    var high = select(%[2]s, %[4]s, other + 1u == %[3]s);
    let left = other < run;
    for (var k = 0u; k < 32u && low < high; k++) {
      let middle = (low + high) / 2u;
      let their = from__key(first + middle);
      if (before(their, mine) || (left && !before(mine, their))) { low = middle + 1u; } else { high = middle; }
    }
  }
  let place = own + low;
  if (place < %[6]s) { to_put(line * %[5]s + (run / 2u) * %[6]s + place, mine, from__index(i)); }`, line, run, runs, last, toLine, toRun)
	})
	return m, err
}

// SortKeyFunc declares key(v), which maps numbers of a type to unsigned pairs of words in the same order. NaN is the largest.
func SortKeyFunc(w *shader.Text, t expr.Type) {
	if t == expr.I64 {
		w.Func("key(v: pair) -> pair", "return pair(v.x, v.y ^ 0x80000000u);")
		return
	}
	w.Func("key(v: real) -> pair", "return plait_key_f32(v);")
}

// BeforeFunc declares before(a, b), the order of keys.
func BeforeFunc(w *shader.Text) {
	w.Func("before(a: pair, b: pair) -> bool", "return a.y < b.y || (a.y == b.y && a.x < b.x);")
}

// SortKey returns the expression for the key of a value of a dtype, and the number of bits of keys. Keys of up to 32 bits are in the high
// word, from its lowest bit on.
func SortKey(d core.DType, value string) (key string, bits int) {
	switch {
	case d == core.Int64, d == core.Float64:
		return "key(" + value + ")", 64
	case d.IsFloat():
		return "key(" + value + ")", 32
	case d == core.Bool:
		return "pair(0u, " + value + ".x)", 1
	}
	bits = 8 * d.Size()
	if !d.IsSigned() {
		return "pair(0u, " + value + ".x)", bits
	}
	low := uint32(1)<<bits - 1
	return fmt.Sprintf("pair(0u, (%s.x & %#xu) ^ %#xu)", value, low, low/2+1), bits
}
