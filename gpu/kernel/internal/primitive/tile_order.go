package primitive

import (
	"fmt"

	"github.com/plait-ml/plait/gpu/shader"
)

// orderThreads is the number of invocations that order a list.
const orderThreads = shader.Threads

// OrderBytes returns the workgroup memory of [OrderFunc] for lists of orderThreads * each items.
func OrderBytes(each int) int { return 4 * (orderThreads*(each+1) + orderThreads*9 + 2*orderThreads) }

// OrderFunc declares order_by(shift, lane), which all invocations of a workgroup call to sort a list in workgroup memory, in stable order, by
// 4 bits of the items: digit is the expression for those bits of item v, from bit shift on. Item i of the list is list[slot(i)]. Each
// invocation has a stretch of the list. It counts how many of its items have each digit; the sums of the counts over smaller digits, and
// over the same digit of earlier invocations, are the new positions.
func OrderFunc(w *shader.Text, each int, digit string) {
	w.Shared("list", "u32", orderThreads*(each+1))
	// Counts of an invocation: a word has those of digits d and d + 8. Unused words keep neighbours in different banks, as in the list.
	w.Shared("counts", "u32", orderThreads*9)
	w.Shared("scanned", "u32", 2*orderThreads)
	w.Func("slot(i: u32) -> u32", "return i + i / %du;", each)
	w.Func("cell(i: u32) -> u32", "return i + i / 8u;")
	w.Func("digit_of(v: u32, shift: u32) -> u32", "return (%s) & 15u;", digit)
	w.Func("count_one(v: u32, shift: u32, lane: u32) -> u32", `let d = digit_of(v, shift);
  let c = cell((d & 7u) * %du + lane);
  let half = (d >> 3u) * 16u;
  let old = counts[c];
  counts[c] = old + (1u << half);
  return (old >> half) & 0xffffu;`, orderThreads)
	w.Func("put_item(v: u32, shift: u32, lane: u32, rank: u32)", `let d = digit_of(v, shift);
  let before = (counts[cell((d & 7u) * %du + lane)] >> ((d >> 3u) * 16u)) & 0xffffu;
  list[slot(before + rank)] = v;`, orderThreads)
	ScanFunc(w)
	w.Procedure("order_by(shift: u32, lane: u32)", func() {
		for k := range 8 {
			w.Add("  counts[cell(%du + lane)] = 0u;", k*orderThreads)
		}
		for k := range each {
			w.Add("  let v%[1]d = list[slot(lane * %[2]du + %[1]du)];\n  let r%[1]d = count_one(v%[1]d, shift, lane);", k, each)
		}
		w.Barrier()
		w.Add("  var sum = 0u;")
		for k := range 8 {
			w.Add("  let c%[1]d = counts[cell(lane * 8u + %[1]du)];\n  sum = sum + c%[1]d;", k)
		}
		w.Add(`  let up_to = scan_words(sum, lane);
  var before = up_to - sum + ((scanned[%du] & 0xffffu) << 16u);`, orderThreads-1)
		for k := range 8 {
			w.Add("  counts[cell(lane * 8u + %[1]du)] = before;\n  before = before + c%[1]d;", k)
		}
		w.Barrier()
		for k := range each {
			w.Add("  put_item(v%[1]d, shift, lane, r%[1]d);", k)
		}
		w.Barrier()
	})
}

// ScanFunc declares scan_words(v, lane), the sum of v over the invocations of a workgroup up to this one. The workgroup has declared scanned,
// of two words for each. Afterwards scanned has the sums.
func ScanFunc(w *shader.Text) {
	w.Procedure("scan_words(v: u32, lane: u32) -> u32", func() {
		w.Add("  var t = v;\n  scanned[lane] = t;")
		w.Barrier()
		from, to := 0, orderThreads
		for step := 1; step < orderThreads; step *= 4 {
			for k := 1; k < 4; k++ {
				w.Add("  if (lane >= %[1]du) { t = t + scanned[%[2]du + lane - %[1]du]; }", k*step, from)
			}
			w.Add("  scanned[%du + lane] = t;", to)
			w.Barrier()
			from, to = to, from
		}
		w.Add("  return t;")
	})
}

// OrderAll returns the loop that orders a list by bits low to high of the items. It is one copy of the program for all digits.
func OrderAll(low, high int) string {
	return fmt.Sprintf("  for (var shift = %du; shift < %du; shift = shift + 4u) { order_by(shift, li); }\n", low, high)
}
