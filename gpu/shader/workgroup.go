package shader

// Reduce declares the function whole_NAME(lane, v), which every invocation of a workgroup calls. It returns all values of v combined by the
// expression join of a and b, in a fixed order. First, 8 or 16 invocations combine several values each; then every invocation combines
// their partial results. Two barriers are enough: the second one also separates the reads of this call from the writes of the next.
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

// Sum declares whole_sum(lane, v), the sum over a workgroup.
func (w *Text) Sum(width int) { w.Reduce("sum", Real, "a + b", width) }
