package gpu

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// A large tile takes a multiprocessor for itself, so tiles are computed in rounds of as many as there are multiprocessors, and in the last
// round some are idle. The tiles of this round can be cut into pieces of the depth that all share: as workgroups that follow those of the
// whole tiles, in the same dispatch, since between two the GPU waits for the end of the first.

// rounds returns how many rounds tiles fill, 0 where the last one is not cut.
func (p *product) rounds(t tile) int {
	if !t.double || p.br == 1 && p.bc != 1 || p.k%t.depth != 0 || p.batch.count != 1 || p.uncut || p.lower || p.gather != nil {
		return 0
	}
	return p.groups(t) / multiprocessors
}

// lastInPieces computes the product with the tiles of the last round in pieces.
func (p *product) lastInPieces(r *recorder, number, pieces int) error {
	t := tiles[number]
	whole := p.rounds(t) * multiprocessors
	rest := p.groups(t) - whole
	size := 4 * rest * pieces * t.rows * t.cols
	if whole == 0 || rest == 0 || whole+rest*pieces > r.device.limits.Workgroups || size > r.device.limits.Binding {
		return p.tiled(r, number, 1, nil)
	}
	parts, err := r.temp(size)
	if err != nil {
		return err
	}
	if err := p.layers(r, number, pieces, whole, &parts, 0, 1); err != nil {
		return err
	}
	return p.sumLast(r, t, whole, pieces, parts)
}

// A lastText is WGSL that a program has for the tiles of the last round.
type lastText struct {
	number string // defines which tile and which piece a workgroup computes, and late if it is one of these
	place  string // of its piece in scratch memory, in fours
}

// lastText adds what a program for whole tiles and then pieces has more than others.
func (p *product) lastText(s *shader, t tile, whole int, parts core.Memory) lastText {
	room := s.floatsOf("parts", parts)
	s.binds[len(s.binds)-1].four = true
	wholeWord, rest := s.uint(whole), s.uint(p.groups(t)-whole)
	across, down := s.uint(ceil(p.n, t.cols)), s.uint(ceil(p.m, t.rows))
	return lastText{
		number: fmt.Sprintf(`  let late = wg.x >= %[1]s;
  let after = max(wg.x, %[1]s) - %[1]s;
  let tile_number = min(wg.x, %[1]s) + after %% %[2]s;
  let layer_number = after / %[2]s;
`, wholeWord, rest) + swizzle(across, down),
		place: fmt.Sprintf("(%s >> 2u) + (wg.x - %s) * %du", room, wholeWord, t.rows*t.cols/4),
	}
}

// sumLast adds up the pieces of each of the last tiles, in their order, and finishes the results, four for each invocation.
func (p *product) sumLast(r *recorder, t tile, whole, pieces int, parts core.Memory) error {
	s := newShader(r, "matmul (sum of the last)")
	s.choose(t.rows)
	s.choose(t.cols)
	from := s.floatsOf("parts", parts)
	to := s.both("c", p.out, expr.F32)
	s.binds[0].four = true
	s.binds[1].four = s.flag(p.cc == 1 && p.n%4 == 0 && aligned(p.out, p.cr))
	fours := t.rows * t.cols / 4
	count := (p.groups(t) - whole) * fours
	n, wholeWord, piecesWord := s.uint(count), s.uint(whole), s.uint(pieces)
	rows, cols, cr, cc := s.uint(p.m), s.uint(p.n), s.uint(p.cr), s.uint(p.cc)
	across, down := s.uint(ceil(p.n, t.cols)), s.uint(ceil(p.m, t.rows))
	scaled := *p
	scaled.alpha = 1
	finish := scaled.finisher(s)
	return s.run(r, groupsFor(count), func() string {
		text := fmt.Sprintf("  let tile_number = %s + i / %du;\n  let place = i %% %du;\n", wholeWord, fours, fours) + swizzle(across, down) + fmt.Sprintf(`
  let row = tile_row * %du + place / %du;
  let col = tile_col * %du + place %% %du * 4u;
  if (row >= %s || col >= %s) { return; }
  var sum = vec4<f32>();
  for (var j = 0u; j < %s; j++) { sum = sum + parts[(%s >> 2u) + j * %s + i]; }
  let at = %s + row * %s + col * %s;
`, t.rows, t.cols/4, t.cols, t.cols/4, rows, cols, piecesWord, from, n, to, cr, cc)
		for q := range 4 {
			text += fmt.Sprintf("  if (col + %du < %s) { st_c(at + %du * %s, finish(sum.%c, at + %du * %s, col + %du)); }\n", q, cols, q, cc, "xyzw"[q], q, cc, q)
		}
		return finish.text() + each(n, text)
	})
}
