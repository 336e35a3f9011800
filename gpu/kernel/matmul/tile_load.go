package matmul

import (
	"fmt"

	"github.com/plait-ml/plait/gpu/shader"
)

// A side is one factor of a product as a workgroup loads it: tiles of so many elements across, and of those of a tile along K. Strings are
// expressions.
type side struct {
	name        string      // of the operand; its tile in workgroup memory is sh_NAME
	operand     string      // position of the operand's first element
	across      int         // rows of a, or columns of b
	alongK      bool        // consecutive in memory along K
	vec4        bool        // loaded as vec4
	first, step string      // position of the matrix's first element, and the stride across
	stride      string      // along K
	folded      bool        // rows begin where the function folded says
	gather      *gatherText // nil, or what loads it
}

// An endKind is what loads do where a tile may lie beyond the end of K.
type endKind int

const (
	// testedEnd loads nothing beyond the end.
	testedEnd endKind = iota
	// clampedEnd loads the last tile again.
	clampedEnd
	// raggedEnd loads nothing beyond the end, and zeros where K ends inside the tile.
	raggedEnd
)

// loadTiles fills the registers of both sides with the tile at position at of K.
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

// load fills the registers of both sides; ends says that K ends inside the tile.
func (x *tiledText) load(at string, ends bool) {
	x.a.load(x.Text, x.tile, at, ends)
	x.b.load(x.Text, x.tile, at, ends)
}

// put writes the registers of both sides to a half of workgroup memory: "", or "2" for the other one.
func (x *tiledText) put(half string) {
	x.a.put(x.Text, x.tile, half)
	x.b.put(x.Text, x.tile, half)
}

// loads returns how many values, or vec4, each invocation loads of the side's tile.
func (x *side) loads(t tile) int {
	if x.vec4 {
		return x.across * t.K / 4 / t.Threads()
	}
	return x.across * t.K / t.Threads()
}

// place returns expressions for where in the tile, across and along K, load number l of an invocation goes; a vec4 starts there.
func (x *side) place(t tile, l int) (across, k string) {
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

// prepare defines the registers of the loads.
func (x *side) prepare(w *shader.Text, t tile, origin string) {
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

// load fills the registers from memory. Where K ends inside the tile, zeros follow. Beyond the edges across, anything may be loaded: its
// results are not stored, and WebGPU makes reads past a buffer harmless.
func (x *side) load(w *shader.Text, t tile, at string, ends bool) {
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
			value, zero = fmt.Sprintf("%s[(%s) >> 2u]", x.name, position), "real4()"
		}
		if ends {
			w.Add("    %s_v%d = %s;", x.name, l, zero)
			w.Add("    if (%s + %s_d%d < end) { %s_v%d = %s; }", at, x.name, l, x.name, l, value)
		} else {
			w.Add("    %s_v%d = %s;", x.name, l, value)
		}
	}
}

// put writes the registers to the tile in workgroup memory, or to one half of two, where elements are consecutive across.
func (x *side) put(w *shader.Text, t tile, half string) {
	if x.gather != nil {
		x.gather.put(w, half)
		return
	}
	for l := range x.loads(t) {
		to := fmt.Sprintf("    sh_%s%s[%s_d%d", x.name, half, x.name, l)
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
