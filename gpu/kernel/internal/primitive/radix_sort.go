package primitive

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// Lines that are too long for a tile are sorted by digits of 8 bits, the lowest first. In a pass, each workgroup counts the digits of a
// block of entries; the sums over smaller digits, and over the same digit of earlier blocks, are where a block's entries of that digit
// begin. Workgroups then order their blocks by the digit and store them there.

const (
	// digitBits is the number of bits of a digit.
	digitBits = 8
	// blockItems is the number of entries of an invocation in a pass.
	blockItems = 8
	// blockEntries is the number of entries of a workgroup in a pass.
	blockEntries = blockItems * orderThreads
)

// tileItems returns how many entries of a line an invocation sorts at most, if one workgroup sorts a line.
func tileItems(gpu *shader.Device, wide bool) int {
	for _, each := range []int{16, 8, 4} {
		if tileBytes(each, wide) <= gpu.WorkgroupStorage {
			return each
		}
	}
	return 0
}

// tileBytes returns the workgroup memory for sorting a tile.
func tileBytes(each int, wide bool) int {
	keys := 1
	if wide {
		keys = 2
	}
	return OrderBytes(each) + 4*keys*each*orderThreads
}

// radixTiles is sortTiles for tiles of orderThreads * each entries. Only the lowest bits of keys are significant.
func radixTiles(r *shader.Recorder, name string, lines, n, keep, each, bits int, wide bool, bind func(s *shader.Builder) func(w *shader.Text)) (*Entries, error) {
	tile := orderThreads * each
	runs := shader.Ceil(n, tile)
	e, err := newEntries(r, lines, runs, min(tile, keep), min(n-(runs-1)*tile, keep), wide, core.Memory{})
	if err != nil {
		return nil, err
	}
	s := shader.New(r, name+" (radix tiles)")
	key := bind(s)
	put := e.Bind(s, "to")
	s.Specialize(each)
	s.Specialize(bits)
	blocks, runsWord, size, line, run := s.Uint(lines*runs), s.Uint(runs), s.Uint(n), s.Uint(e.LineLength()), s.Uint(e.run)
	return e, s.Run(r, lines*runs, func(w *shader.Text) {
		key(w)
		put(w)
		w.Shared("high", "u32", tile)
		digit, low := "high[v] >> shift", "0u"
		if wide {
			w.Shared("low", "u32", tile)
			digit, low = "select(high[v] >> (shift & 31u), low[v] >> (shift & 31u), shift < 32u)", "low[i]"
		}
		OrderFunc(w, each, digit)
		w.EachGroup(orderThreads, blocks)
		w.Add(`  let line = group / %[1]s;
  let run = group - line * %[1]s;
  let first = run * %[2]du;
  for (var i = li; i < %[2]du; i += %[3]du) {
    var k = pair(0xffffffffu, 0xffffffffu);
    if (first + i < %[4]s) { k = key_of(line, first + i); }
    high[i] = k.y; list[slot(i)] = i;`, runsWord, tile, orderThreads, size)
		if wide {
			w.Add("    low[i] = k.x;")
		}
		w.Add("  }")
		w.Barrier()
		w.Put(OrderAll(0, bits))
		w.Add(`  for (var j = li; j < %[1]du; j += %[2]du) {
    let i = list[slot(j)];
    if (j < %[3]s && first + j < %[4]s) { to_put(line * %[5]s + run * %[3]s + j, pair(%[6]s, high[i]), first + i); }
  }`, tile, orderThreads, run, size, line, low)
	})
}

// radixSort sorts whole lines, and keeps the first keep entries of each. Only the lowest bits of keys are significant.
func radixSort(r *shader.Recorder, name string, lines, n, keep, bits int, wide bool, bind func(s *shader.Builder) func(w *shader.Text)) (*Entries, error) {
	var from *Entries
	var spare core.Memory
	kept := r.Temps()
	for shift := 0; shift < bits; shift += digitBits {
		most := n
		if shift+digitBits >= bits {
			most = keep
		}
		to, err := newEntries(r, lines, 1, most, most, wide, spare)
		if err != nil {
			return nil, err
		}
		if from != nil {
			spare = from.memory
		}
		if shift <= digitBits {
			kept = r.Temps()
		}
		if err := radixPass(r, name, n, from, to, shift, bind); err != nil {
			return nil, err
		}
		r.Release(kept)
		from = to
	}
	return from, nil
}

// radixPass sorts the n entries of each line by the digit from bit shift on. Without from, the entries are those of bind.
func radixPass(r *shader.Recorder, name string, n int, from, to *Entries, shift int, bind func(s *shader.Builder) func(w *shader.Text)) error {
	const digits = 1 << digitBits
	keep := to.LineLength()
	blocks := shader.Ceil(n, blockEntries)
	counts, err := r.Temp(4 * digits * to.Lines * blocks)
	if err != nil {
		return err
	}
	if from != nil {
		name = "radix"
	}
	// source binds the entries of the pass, and declares source_key and source_index of element i of a line.
	source := func(s *shader.Builder) func(w *shader.Text) {
		size := s.Uint(n)
		word := "k.y"
		if to.wide && s.Flag(shift < 32) {
			word = "k.x"
		}
		by := s.Uint(shift % 32)
		head := bind
		if from != nil {
			head = func(s *shader.Builder) func(w *shader.Text) { return from.Bind(s, "from_") }
		}
		text := head(s)
		return func(w *shader.Text) {
			text(w)
			if from != nil {
				w.Func("source_key(line: u32, i: u32) -> pair", "return from__key(line * %s + i);", size)
				w.Func("source_index(line: u32, i: u32) -> u32", "return from__index(line * %s + i);", size)
			} else {
				w.Func("source_key(line: u32, i: u32) -> pair", "return key_of(line, i);")
				w.Func("source_index(line: u32, i: u32) -> u32", "return i;")
			}
			w.Func("byte_of(k: pair) -> u32", "return (%s >> %s) & %du;", word, by, digits-1)
		}
	}
	// items runs body for each item i of an invocation. Compilers unroll the loop; that of lavapipe would take too long.
	times := fmt.Sprint(blockItems, "u")
	if r.GPU.Software {
		times = shader.NoUnroll(blockItems)
	}
	items := func(w *shader.Text, body string) {
		w.Add("  for (var k = 0u; k < %s; k++) {\n    let i = k * %du + li;\n    %s\n  }", times, orderThreads, body)
	}
	open := func(w *shader.Text, groups, blocks, size string) {
		w.EachGroup(orderThreads, groups)
		w.Add(`  let line = group / %[1]s;
  let block = group - line * %[1]s;
  let first = block * %[2]du;
  let total = min(%[3]s - first, %[2]du);`, blocks, blockEntries, size)
	}
	s := shader.New(r, name+" (digits)")
	text := source(s)
	count, blocksWord, size, at := s.Uint(to.Lines*blocks), s.Uint(blocks), s.Uint(n), s.WordsOf("counts", counts)
	err = s.Run(r, to.Lines*blocks, func(w *shader.Text) {
		text(w)
		w.Shared("digits", shader.AtomicWord, digits)
		open(w, count, blocksWord, size)
		w.Add("  %s;", w.AtomicStore("digits[li]", "0u")) // digits has an element for each invocation
		w.Barrier()
		items(w, fmt.Sprintf("if (i < total) { %s; }", w.AtomicAdd("digits[byte_of(source_key(line, first + i))]", "1u")))
		w.Barrier()
		w.Add("  counts[%[1]s + (line * %[2]du + li) * %[3]s + block] = %[4]s;", at, digits, blocksWord, w.AtomicLoad("digits[li]"))
	})
	if err != nil {
		return err
	}
	sums, err := PrefixBlocks(r, "digits", digits*to.Lines*blocks, func(s *shader.Builder) func(w *shader.Text) {
		at := s.WordsOf("counts", counts)
		return func(w *shader.Text) { w.Func("counted(i: u32) -> u32", "return counts[%s + i];", at) }
	})
	if err != nil {
		return err
	}
	s = shader.New(r, name+" (pass)")
	text = source(s)
	put, begin := to.Bind(s, "to"), sums.Bind(s)
	count, blocksWord, size = s.Uint(to.Lines*blocks), s.Uint(blocks), s.Uint(n)
	keepWord := s.Uint(keep)
	return s.Run(r, to.Lines*blocks, func(w *shader.Text) {
		text(w)
		put(w)
		begin(w)
		// An item is a digit, and the entry's place in the block.
		OrderFunc(w, blockItems, "v >> shift")
		w.Shared("starts", "u32", digits)
		open(w, count, blocksWord, size)
		items(w, fmt.Sprintf(`var d = %du; // surplus items come last
    if (i < total) { d = byte_of(source_key(line, first + i)); }
    list[slot(i)] = (d << 16u) | i;`, digits-1))
		w.Barrier()
		w.Put(OrderAll(16, 16+digitBits))
		items(w, fmt.Sprintf(`let d = list[slot(i)] >> 16u;
    if (i == 0u || (list[slot(max(i, 1u) - 1u)] >> 16u) != d) { starts[d] = prefix_at((line * %du + d) * %s + block) - i; }`, digits, blocksWord))
		w.Barrier()
		items(w, fmt.Sprintf(`if (i >= total) { break; }
    let v = list[slot(i)];
    let at = first + (v & 0xffffu);
    let place = starts[v >> 16u] + i - line * %[1]s;
    if (place < %[2]s) { to_put(line * %[2]s + place, source_key(line, at), source_index(line, at)); }`, size, keepWord))
	})
}
