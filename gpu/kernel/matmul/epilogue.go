package matmul

import (
	"fmt"
	"strings"
)

// store writes an invocation's results, through workgroup memory if staged. With a beta, all old values are read before the first write: no
// compiler moves a read of the output before a write to it, so each read would be waited for.
func (t tile) store(w *strings.Builder, m, n, cr, cc string, four, finished, staged bool, f finisher) {
	value := func(v, at, col string) string {
		if finished {
			return "finish(" + v + ", " + at + ", " + col + ")"
		}
		return v
	}
	put := func(at, v string) string {
		if finished {
			return "st_c(" + at + ", " + v + ")"
		}
		if four {
			return "c[(" + at + ") >> 2u][(" + at + ") & 3u] = " + v
		}
		return "c[" + at + "] = " + v
	}
	if staged {
		t.storeRows(w, m, n, cr, f, func(at, col, v string) string { return put(at, value(v, at, col)) })
		return
	}
	row := func(g, i int) string {
		return fmt.Sprintf("    let row = row0 + (%du + ty) * 4u + %du;\n", g*t.Rows/t.High, i)
	}
	place := func(h int) string {
		return fmt.Sprintf("        let col = col0 + (%du + tx) * 4u;\n        let at = c0 + row * %s + col * %s;\n", h*t.Cols/t.Wide, cr, cc)
	}
	if f.early {
		for g := range t.High / 4 {
			for i := range 4 {
				fmt.Fprintf(w, "  {\n%s", row(g, i))
				for h := range t.Wide / 4 {
					fmt.Fprintf(w, "      {\n%s        c_%d_%d_%d = %s;\n      }\n", place(h), g, i, h, f.sum(fmt.Sprintf("c_%d_%d_%d", g, i, h), "c[at >> 2u]"))
				}
				w.WriteString("  }\n")
			}
		}
	}
	for g := range t.High / 4 {
		for i := range 4 {
			fmt.Fprintf(w, "  {\n%s    if (row < %s) {\n", row(g, i), m)
			for h := range t.Wide / 4 {
				fmt.Fprintf(w, "      {\n%s        let v = c_%d_%d_%d;\n", place(h), g, i, h)
				if four {
					var parts []string
					for q := range 4 {
						parts = append(parts, value(fmt.Sprintf("v.%c", "xyzw"[q]), fmt.Sprintf("at + %du", q), fmt.Sprintf("col + %du", q)))
					}
					fmt.Fprintf(w, "        if (col < %s) { c[at >> 2u] = vec4<f32>(%s); }\n      }\n", n, strings.Join(parts, ", "))
					continue
				}
				for q := range 4 {
					at := fmt.Sprintf("at + %du * %s", q, cc)
					fmt.Fprintf(w, "        if (col + %du < %s) { %s; }\n", q, n, put(at, value(fmt.Sprintf("v.%c", "xyzw"[q]), at, fmt.Sprintf("col + %du", q))))
				}
				w.WriteString("      }\n")
			}
			w.WriteString("    }\n  }\n")
		}
	}
}

// storePiece writes an invocation's sums, scaled, to the tile of vec4 that begins at place. Storing them unscaled is 0.5 % slower.
func (t tile) storePiece(w *strings.Builder, place, scale string) {
	for g := range t.High / 4 {
		for i := range 4 {
			for h := range t.Wide / 4 {
				fmt.Fprintf(w, "    parts[%s + ((%du + ty) * 4u + %du) * %du + %du + tx] = c_%d_%d_%d * %s;\n",
					place, g*t.Rows/t.High, i, t.Cols/4, h*t.Cols/t.Wide, g, i, h, scale)
			}
		}
	}
}

// storeRows writes the results through the workgroup memory of b's tile, a row for each row of invocations, so that a warp writes
// consecutive elements.
func (t tile) storeRows(w *strings.Builder, m, n, cr string, f finisher, put func(at, col, v string) string) {
	down := t.Rows / t.High
	loads := down * t.Cols / t.Threads()
	at := func(g, i, l int) string {
		return fmt.Sprintf("    let line = (li + %du) / %du;\n    let place = (li + %du) %% %du;\n", l*t.Threads(), t.Cols, l*t.Threads(), t.Cols) +
			fmt.Sprintf("    let row = row0 + (%du + line) * 4u + %du;\n    let col = col0 + place;\n    let at = c0 + row * %s + col;\n", g*down, i, cr)
	}
	for g := range t.High / 4 {
		for i := range 4 {
			for l := range loads {
				if f.early {
					fmt.Fprintf(w, "  var old_%d_%d_%d: f32;\n  {\n%s    old_%d_%d_%d = ld_c(at);\n  }\n", g, i, l, at(g, i, l), g, i, l)
				}
			}
		}
	}
	for g := range t.High / 4 {
		for i := range 4 {
			w.WriteString("  workgroupBarrier();\n")
			for h := range t.Wide / 4 {
				fmt.Fprintf(w, "  sh_b[ty][%du + tx] = c_%d_%d_%d;\n", h*t.Cols/t.Wide, g, i, h)
			}
			w.WriteString("  workgroupBarrier();\n")
			for l := range loads {
				v := "sh_b[line][place >> 2u][place & 3u]"
				if f.early {
					v = f.sum(v, fmt.Sprintf("old_%d_%d_%d", g, i, l))
				}
				fmt.Fprintf(w, "  {\n%s    if (row < %s && col < %s) { %s; }\n  }\n", at(g, i, l), m, n, put("at", "col", v))
			}
		}
	}
}
