package matmul

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// A workgroup with a large tile occupies a whole multiprocessor, so tiles run in waves of one per multiprocessor, and in the last wave some
// multiprocessors are idle. To use them, the tiles of the last wave are split along K. Their workgroups are in the same dispatch, behind
// those of the whole tiles, because the GPU drains between two dispatches.

// waves returns the number of full waves; 0 if the last wave is not to be split.
func (p *Product) waves(t shader.Tile) int {
	if !t.Double || p.BRow == 1 && p.BCol != 1 || p.K%t.K != 0 || p.Batch.Count != 1 || p.wholeLastWave || p.Folded || p.Gather != nil {
		return 0
	}
	return p.groups(t) / p.gpu.Multiprocessors
}

// splitLastWave computes the product with the tiles of the last wave split into pieces along K.
func (p *Product) splitLastWave(r *shader.Recorder, number, pieces int) error {
	t := tile{r.GPU.Tiles[number]}
	whole := p.waves(t.Tile) * p.gpu.Multiprocessors
	rest := p.groups(t.Tile) - whole
	size := r.RealType().Size() * rest * pieces * t.Rows * t.Cols
	if whole == 0 || rest == 0 || whole+rest*pieces > r.GPU.Workgroups || size > r.GPU.Binding {
		return p.Tiled(r, number, 1, nil)
	}
	parts, err := r.Temp(size)
	if err != nil {
		return err
	}
	if err := p.dispatchLayers(r, number, pieces, whole, &parts, 0, 1); err != nil {
		return err
	}
	return p.sumLastWave(r, t, whole, pieces, parts)
}

// A lastWaveText has the statements that a program needs for split tiles beside whole ones.
type lastWaveText struct {
	number string // defines which tile and piece a workgroup computes, and late, which is true for split tiles
	place  string // offset of the piece in scratch memory, in vec4
}

// lastWaveText binds the scratch memory of the pieces and returns the statements.
func (p *Product) lastWaveText(s *shader.Builder, t tile, whole int, parts core.Memory) *lastWaveText {
	room := s.RealsOf("parts", parts)
	s.Bindings[len(s.Bindings)-1].Vec4 = true
	wholeWord, rest := s.Uint(whole), s.Uint(p.groups(t.Tile)-whole)
	across, down := s.Uint(shader.Ceil(p.N, t.Cols)), s.Uint(shader.Ceil(p.M, t.Rows))
	return &lastWaveText{
		number: fmt.Sprintf(`  let late = wg.x >= %[1]s;
  let after = max(wg.x, %[1]s) - %[1]s;
  let tile_number = min(wg.x, %[1]s) + after %% %[2]s;
  let layer_number = after / %[2]s;
`, wholeWord, rest) + swizzle(across, down),
		place: fmt.Sprintf("(%s >> 2u) + (wg.x - %s) * %du", room, wholeWord, t.Rows*t.Cols/4),
	}
}

// sumLastWave adds the pieces of the last wave's tiles in a fixed order and runs the epilogue. Each invocation computes four results.
func (p *Product) sumLastWave(r *shader.Recorder, t tile, whole, pieces int, parts core.Memory) error {
	s := shader.New(r, "matmul (sum of the last)")
	s.Specialize(t.Rows)
	s.Specialize(t.Cols)
	from := s.RealsOf("parts", parts)
	to := s.InOut("c", p.Out, expr.F32)
	s.Bindings[0].Vec4 = true
	vec4 := s.Flag(p.CCol == 1 && p.N%4 == 0 && shader.Vec4(p.Out, p.CRow))
	s.Bindings[1].Vec4 = vec4
	vec4s := t.Rows * t.Cols / 4
	count := (p.groups(t.Tile) - whole) * vec4s
	n, wholeWord, piecesWord := s.Uint(count), s.Uint(whole), s.Uint(pieces)
	rows, cols, cr, cc := s.Uint(p.M), s.Uint(p.N), s.Uint(p.CRow), s.Uint(p.CCol)
	across, down := s.Uint(shader.Ceil(p.N, t.Cols)), s.Uint(shader.Ceil(p.M, t.Rows))
	scaled := *p
	scaled.Alpha = 1
	finish := scaled.finisher(s)
	return s.Run(r, shader.GroupsFor(count), func(w *shader.Text) {
		finish.function(w)
		w.Each(n)
		w.Add(`  let tile_number = %s + i / %du;
  let place = i %% %du;`, wholeWord, vec4s, vec4s)
		w.Put(swizzle(across, down))
		w.Add(`  let row = tile_row * %du + place / %du;
  let col = tile_col * %du + place %% %du * 4u;`, t.Rows, t.Cols/4, t.Cols, t.Cols/4)
		w.Add(`  if (row >= %s || col >= %s) { return; }
  var sum = real4();
  for (var j = 0u; j < %s; j++) { sum = sum + parts[(%s >> 2u) + j * %s + i]; }`, rows, cols, piecesWord, from, n)
		w.Add("  let at = %s + row * %s + col * %s;", to, cr, cc)
		if vec4 {
			var list []string
			for q := range 4 {
				list = append(list, fmt.Sprintf("finish(sum.%s, at + %du, col + %du)", shader.Component(q), q, q))
			}
			w.Add("  st4_c(at >> 2u, real4(%s));", strings.Join(list, ", "))
			return
		}
		for q := range 4 {
			w.Add("  if (col + %du < %s) { st_c(at + %du * %s, finish(sum.%s, at + %du * %s, col + %du)); }", q, cols, q, cc, shader.Component(q), q, cc, q)
		}
	})
}
