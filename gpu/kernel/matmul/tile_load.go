package matmul

import (
	"fmt"

	"github.com/plait-ml/plait/gpu/shader"
)

// A factor is a or b as a workgroup loads it, tile by tile. Its dimensions are K and the one across K: rows of a or columns of b. Strings
// are expressions.
type factor struct {
	name        string      // name of the operand; its tile in workgroup memory is sh_NAME
	operand     string      // index of the operand's first element
	across      int         // size of the tile across K
	alongK      bool        // contiguous along K
	vec4        bool        // loaded four elements at a time
	first, step string      // index of the matrix's first element, and the stride across K
	stride      string      // stride along K
	folded      bool        // rows begin at the index that the function folded returns
	gather      *gatherText // loads an im2col matrix; nil for none
}

// An endKind is how loads handle a tile that extends past the end of K.
type endKind int

const (
	// testedEnd loads nothing for a tile past the end.
	testedEnd endKind = iota
	// clampedEnd loads the last tile again.
	clampedEnd
	// raggedEnd loads nothing for a tile past the end, and zeros if K ends inside the tile.
	raggedEnd
)

// loadTiles loads the tiles of both factors at position at of K into registers.
func (x *tiledText) loadTiles(at string) {
	switch x.end {
	case raggedEnd:
		x.Add("    if (%s + %du <= end) {", at, x.K)
		x.load(at, false)
		x.Add("    } else if (%s < end) {", at)
		x.load(at, true)
	case clampedEnd:
		x.Add("    {\n    let near = min(%s, max(end, %du) - %du);", at, x.K, x.K)
		x.load("near", false)
	default:
		x.Add("    if (%s < end) {", at)
		x.load(at, false)
	}
	x.Add("    }")
}

// load loads both tiles; ends says that K ends inside the tile.
func (x *tiledText) load(at string, ends bool) {
	x.a.load(x.Text, x.tile, at, ends)
	x.b.load(x.Text, x.tile, at, ends)
}

// store writes the registers of both factors to workgroup memory. buffer is "", or "2" for the second one of double buffering.
func (x *tiledText) store(buffer string) {
	x.a.store(x.Text, x.tile, buffer)
	x.b.store(x.Text, x.tile, buffer)
}

// vec4At returns the expression for the four elements of an operand from index at on, a multiple of four.
func vec4At(name, at string) string {
	return fmt.Sprintf("ld4_%s((%s) >> 2u)", name, at)
}

// loads returns how many loads, of a number or of four, an invocation makes for a tile.
func (x *factor) loads(t tile) int {
	if x.vec4 {
		return x.across * t.K / 4 / t.Threads()
	}
	return x.across * t.K / t.Threads()
}

// place returns expressions for the offsets in the tile, across and along K, of load l of an invocation. They are those of a vec4's first
// element.
func (x *factor) place(t tile, l int) (across, k string) {
	e := fmt.Sprintf("(li + %du)", l*t.Threads())
	per, scale := t.K, ""
	if !x.alongK {
		per = x.across
	}
	if x.vec4 {
		per, scale = per/4, " * 4u"
	}
	near, far := fmt.Sprintf("%s %% %du%s", e, per, scale), fmt.Sprintf("%s / %du", e, per)
	if x.alongK {
		return far, near
	}
	return near, far
}

// prepare declares the registers of the loads and their constant offsets.
func (x *factor) prepare(w *shader.Text, t tile, origin string) {
	if x.gather != nil {
		x.gather.prepare(w, t, origin)
		return
	}
	kind := shader.Real
	if x.vec4 {
		kind = shader.Real4
	}
	for l := range x.loads(t) {
		across, k := x.place(t, l)
		w.Add("  let %s_x%d = %s;", x.name, l, across)
		w.Add("  let %s_d%d = %s;", x.name, l, k)
		w.Add("  var %s_v%d: %s;", x.name, l, kind)
		w.Add("  let %s_p%d = %s + (%s + %s_x%d) * %s + %s_d%d * %s;", x.name, l, x.first, origin, x.name, l, x.step, x.name, l, x.stride)
	}
}

// load loads the tile from memory to registers, with zeros behind the end of K. Loads beyond the edge across K may return anything: their
// results are not stored, and WebGPU makes reads past the end of a buffer safe.
func (x *factor) load(w *shader.Text, t tile, at string, ends bool) {
	if x.gather != nil {
		x.gather.load(w, t, at, ends)
		return
	}
	along := at + " * " + x.stride
	if x.folded {
		along = "folded(" + at + ", " + x.stride + ")"
	}
	for l := range x.loads(t) {
		position := fmt.Sprintf("%s_p%d + %s", x.name, l, along)
		value, zero := fmt.Sprintf("ld_%s(%s)", x.name, position), "0.0"
		if x.vec4 {
			value, zero = vec4At(x.name, position), "real4()"
		}
		if ends {
			w.Add("    %s_v%d = %s;", x.name, l, zero)
			w.Add("    if (%s + %s_d%d < end) { %s_v%d = %s; }", at, x.name, l, x.name, l, value)
		} else {
			w.Add("    %s_v%d = %s;", x.name, l, value)
		}
	}
}

// store writes the registers to the tile in workgroup memory, transposed where necessary so that it is contiguous across K.
func (x *factor) store(w *shader.Text, t tile, buffer string) {
	if x.gather != nil {
		x.gather.store(w, buffer)
		return
	}
	for l := range x.loads(t) {
		to := fmt.Sprintf("    sh_%s%s[%s_d%d", x.name, buffer, x.name, l)
		place := fmt.Sprintf("[%s_x%d >> 2u]", x.name, l)
		component := fmt.Sprintf("[%s_x%d & 3u]", x.name, l)
		switch {
		case x.vec4 && !x.alongK:
			w.Add("%s]%s = %s_v%d;", to, place, x.name, l)
		case x.vec4:
			for i := range 4 {
				w.Add("%s + %du]%s%s = %s_v%d.%s;", to, i, place, component, x.name, l, shader.Component(i))
			}
		default:
			w.Add("%s]%s%s = %s_v%d;", to, place, component, x.name, l)
		}
	}
}
