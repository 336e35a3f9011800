package shader

import (
	"fmt"
	"strings"
)

// WorkgroupReduce returns the function whole_NAME(lane, v). Every invocation of a workgroup calls it, and gets all values combined by join, in
// an order that does not change: a few invocations join some each, then all join what those have. Two barriers are enough: each also
// keeps the writes of the next call from the reads of this one.
func WorkgroupReduce(name, typ, join string, width int) string {
	few := 8
	if width > 64 {
		few = 16
	}
	return fmt.Sprintf(`var<workgroup> sh_%[1]s: array<%[2]s, %[4]d>;
var<workgroup> few_%[1]s: array<%[2]s, %[5]d>;
fn join_%[1]s(a: %[2]s, b: %[2]s) -> %[2]s { return %[3]s; }
fn whole_%[1]s(lane: u32, v: %[2]s) -> %[2]s {
  sh_%[1]s[lane] = v;
  workgroupBarrier();
  if (lane < %[5]du) {
    var t = v;
%[6]s    few_%[1]s[lane] = t;
  }
  workgroupBarrier();
  var t = few_%[1]s[0];
%[7]s  return t;
}
`, name, typ, join, width, few, Tree(name, "    t = join_%s(t, sh_%s[lane + %du]);\n", few, width, few), Tree(name, "  t = join_%s(t, few_%s[%d]);\n", 1, few, 1))
}

// Tree returns a line of text for every step-th number from first to last.
func Tree(name, text string, first, last, step int) string {
	var b strings.Builder
	for i := first; i < last; i += step {
		fmt.Fprintf(&b, text, name, name, i)
	}
	return b.String()
}

// WorkgroupSum returns the function whole_sum(lane, v) of float32 numbers.
func WorkgroupSum(width int) string { return WorkgroupReduce("sum", "f32", "a + b", width) }
