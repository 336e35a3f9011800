package shader

// Reduce declares the function whole_NAME(lane, v). Every invocation of a workgroup calls it, and gets all values combined by join, in
// an order that does not change: a few invocations join some each, then all join what those have. Two barriers are enough: each also
// keeps the writes of the next call from the reads of this one.
func (w *Text) Reduce(name, typ, join string, width int) {
	few := 8
	if width > 64 {
		few = 16
	}
	w.Shared("sh_"+name, typ, width)
	w.Shared("few_"+name, typ, few)
	w.Func("join_"+name+"(a: "+typ+", b: "+typ+") -> "+typ, "return %s;", join)
	w.open("whole_" + name + "(lane: u32, v: " + typ + ") -> " + typ)
	w.Add("  sh_%s[lane] = v;", name)
	w.Barrier()
	w.Add("  if (lane < %du) {\n    var t = v;", few)
	for i := few; i < width; i += few {
		w.Add("    t = join_%s(t, sh_%s[lane + %du]);", name, name, i)
	}
	w.Add("    few_%s[lane] = t;\n  }", name)
	w.Barrier()
	w.Add("  var t = few_%s[0];", name)
	for i := 1; i < few; i++ {
		w.Add("  t = join_%s(t, few_%s[%d]);", name, name, i)
	}
	w.Add("  return t;\n}")
}

// Sum declares the function whole_sum(lane, v) of real numbers.
func (w *Text) Sum(width int) { w.Reduce("sum", Real, "a + b", width) }
