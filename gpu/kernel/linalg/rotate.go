package linalg

import "github.com/plait-ml/plait/gpu/shader"

// shape returns the largest side of the blocks that a program takes, and how many invocations rotate a pair: they are the smaller for small
// matrices.
func (j *jacobi) shape() (side, threads int) {
	if j.side <= 8 {
		return 8, 64
	}
	return largestSide, 256
}

// pairsFunc declares pair_of(step, i, half, across), the numbers of pair i of 2 * half lines in a step, the lesser one first. In 2 * half - 1
// steps each line meets each other one. With across, pairs have one line of the first half and one of the second; half steps suffice.
func pairsFunc(w *shader.Text) {
	w.Func("pair_of(step: u32, i: u32, half: u32, across: u32) -> pair", `if (across == 1u) { return pair(i, half + (i + step) %% half); }
  let last = 2u * half - 1u;
  if (i == 0u) { return pair(step, last); }
  let a = (step + i) %% last;
  let b = (step + last - i) %% last;
  return pair(min(a, b), max(a, b));`)
}

// rotationFunc is the body of a function that rotates a and b. f.x is the sine of the angle, and f.y the tangent of half of it. This form
// keeps rotations orthogonal, however small the angle is.
const rotationFunc = "return real2(a - f.x * (b + f.y * a), b + f.x * (a - f.y * b));"

// rotate makes the submatrices of a round's pairs of blocks diagonal, or nearly so: in the first round of a sweep every row of a pair of
// blocks meets every other one, in later rounds those of the other block. The rotations are stored as matrices.
//
// The first word of turned becomes 1 if an element was not small, and the second if an angle was not. If one is 0, what is left after the
// sweep is small: errors of rotations by small angles are of second order.
func (j *jacobi) rotate(r *shader.Recorder, round, inner int) error {
	s := shader.New(r, "jacobi")
	most, threads := j.shape()
	s.Specialize(most)
	s.Flag(j.relative)
	across := 0
	if round > 0 {
		across = 1
	}
	data, to, done, turned, scale := s.RealsOf("data", j.data), s.RealsOf("to", j.rotations), s.WordsOf("done", j.done), s.WordsOf("turned", j.turned), s.RealsOf("scale", j.scale)
	total, pairs, side, size := s.Uint(j.batch*j.pairs), s.Uint(j.pairs), s.Uint(j.side), s.Uint(j.n)
	number, crossing, times, least := s.Uint(round), s.Uint(across), s.Uint(inner), s.Float(j.least)
	return s.Run(r, j.batch*j.pairs, func(w *shader.Text) {
		w.Shared("a", shader.Real, 2*most, 2*most+1)
		w.Shared("u", shader.Real, 2*most, 2*most+1)
		w.Shared("f", shader.Real2, most)
		w.Shared("pairs", shader.Pair, most)
		w.Shared("moved", "u32", 2)
		pairsFunc(w)
		w.Func("rotated(a: real, b: real, f: real2) -> real2", rotationFunc)
		w.EachGroup(threads, total)
		w.Add(`  let side = %s;
  let n = %s;
  let matrix = group / %s;
  if (done[%s + matrix] == 1u) { return; }
  let blocks = pair_of(%s, group %% %s, %s, 0u);
  let at = %s + matrix * n * n;
  let lines = 2u * side;`, side, size, pairs, done, number, pairs, pairs, data)
		w.Add(`  for (var e = li; e < lines * lines; e += %du) {
    let row = e / lines;
    let col = e %% lines;
    let down = select(blocks.x * side + row, blocks.y * side + row - side, row >= side);
    let right = select(blocks.x * side + col, blocks.y * side + col - side, col >= side);
    a[row][col] = data[at + down * n + right];
    u[row][col] = select(0.0, 1.0, row == col);
  }
  let across = %s;
  let steps = select(lines - 1u, side, across == 1u);
  let least = %s;
  let noise = least * scale[%s + matrix];
  for (var time = 0u; time < %s; time++) {
    if (li < 2u) { moved[li] = 0u; }`, threads, crossing, least, scale, times)
		w.Barrier()
		w.Add(`    for (var step = 0u; step < steps; step++) {
      if (li < side) {
        let p = pair_of(step, li, side, across);
        pairs[li] = p;
        let xx = a[p.x][p.x];
        let yy = a[p.y][p.y];
        let xy = a[p.x][p.y];
        var t = 0.0;`)
		if j.relative {
			w.Add("        let size = sqrt(abs(xx)) * sqrt(abs(yy));\n        let small = least * size;")
		} else {
			w.Add("        let size = abs(xx) + abs(yy);\n        let small = noise;")
		}
		// Rotations of less than a thirtieth of the last digit, and of denormal numbers, are left out. The square of a small angle is below
		// the last digit.
		digit, normal, angle := "2e-8", "1e-37", "1e-4"
		if r.Float64 {
			digit, normal, angle = "4e-17", "1e-300", "1e-8"
		}
		w.Add(`        if (abs(xy) > %s * size && abs(xy) > %s) {
          let theta = (yy - xx) / (2.0 * xy);
          t = select(1.0, -1.0, theta < 0.0) / (abs(theta) + sqrt(theta * theta + 1.0));
          if (abs(xy) > small) { moved[0] = 1u; }
          if (abs(t) > %s) { moved[1] = 1u; }
        }
        let c = 1.0 / sqrt(t * t + 1.0);`, digit, normal, angle)
		w.Add("        f[li] = real2(t * c, t * c / (1.0 + c));\n      }")
		w.Barrier()
		w.Add(`      for (var i = li / %[1]du; i < side; i += %[2]du) {
        let p = pairs[i];
        for (var k = li %% %[1]du; k < side; k += %[1]du) {
          let q = pairs[k];
          let left = rotated(a[p.x][q.x], a[p.y][q.x], f[i]);
          let right = rotated(a[p.x][q.y], a[p.y][q.y], f[i]);
          var upper = rotated(left.x, right.x, f[k]);
          var lower = rotated(left.y, right.y, f[k]);
          if (i == k && f[i].x != 0.0) {
            upper.y = 0.0;
            lower.x = 0.0;
          }
          a[p.x][q.x] = upper.x;
          a[p.x][q.y] = upper.y;
          a[p.y][q.x] = lower.x;
          a[p.y][q.y] = lower.y;
        }
        for (var k = li %% %[1]du; k < lines; k += %[1]du) {
          let both = rotated(u[p.x][k], u[p.y][k], f[i]);
          u[p.x][k] = both.x;
          u[p.y][k] = both.y;
        }
      }`, threads/8, 8)
		w.Barrier()
		w.Add(`    }
    let ended = moved[0] == 0u || moved[1] == 0u;
    if (time == 0u && li < 2u && moved[li] == 1u) { turned[%s + 2u * matrix + li] = 1u; }
    if (ended) { break; }`, turned)
		w.Barrier()
		w.Add("  }")
		w.Add("  for (var e = li; e < lines * lines; e += %du) { to[%s + group * lines * lines + e] = u[e / lines][e %% lines]; }", threads, to)
	})
}

// apply multiplies by the rotations of a round. A workgroup computes a tile of the matrix, in the rows of one pair and the columns of
// another, or of the riders.
func (j *jacobi) apply(r *shader.Recorder, round int) error {
	s := shader.New(r, "jacobi (apply)")
	most, threads := j.shape()
	s.Specialize(most)
	across := 16 // invocations of a row of the tile
	if threads == 64 {
		across = 8
	}
	per := 2 * most / across
	tiles := j.pairs + shader.Ceil(j.width, 2*j.side)
	groups := j.batch * j.pairs * tiles
	data, rotations, done, riders := s.RealsOf("data", j.data), s.RealsOf("rotations", j.rotations), s.WordsOf("done", j.done), s.RealsOf("riders", j.riders.of.Memory)
	total, pairs, side, size, wide, number, perPair := s.Uint(groups), s.Uint(j.pairs), s.Uint(j.side), s.Uint(j.n), s.Uint(j.width), s.Uint(round), s.Uint(tiles)
	return s.Run(r, groups, func(w *shader.Text) {
		w.Shared("f", shader.Real, 2*most, 2*most+1)
		w.Shared("a", shader.Real, 2*most, 2*most+1)
		pairsFunc(w)
		w.EachGroup(threads, total)
		w.Add(`  let side = %s;
  let n = %s;
  let pairs = %s;
  let tile = group %% %s;
  let own = group / %s %% pairs;
  let matrix = group / (%s * pairs);
  if (done[%s + matrix] == 1u) { return; }
  let lines = 2u * side;
  let rider = tile >= pairs;
  let blocks = pair_of(%s, own, pairs, 0u);
  let others = pair_of(%s, select(tile, 0u, rider), pairs, 0u);
  let wide = %s;`, side, size, pairs, perPair, perPair, perPair, done, number, number, wide)
		w.Add(`  let rotation = %s + matrix * pairs * lines * lines;
  let across = li %% %du;
  let down = li / %du;`, rotations, across, across)
		w.Add(`  for (var e = li; e < %[1]du; e += %[2]du) {
    let row = e / %[3]du;
    let col = e %% %[3]du;
    var value = 0.0;
    var factor = 0.0;
    if (row < lines && col < lines) {
      factor = rotations[rotation + (own * lines + row) * lines + col];
      let line = select(blocks.x * side + row, blocks.y * side + row - side, row >= side);
      if (rider) {
        let right = (tile - pairs) * lines + col;
        if (right < wide) { value = riders[%[4]s + (matrix * n + line) * wide + right]; }
      } else {
        let right = select(others.x * side + col, others.y * side + col - side, col >= side);
        value = data[%[5]s + (matrix * n + line) * n + right];
      }
    }
    f[row][col] = factor;
    a[row][col] = value;
  }`, 4*most*most, threads, 2*most, riders, data)
		w.Barrier()
		each := func(statement string, base string) {
			for y := range per {
				for x := range per {
					w.Add(statement, y, x, y*across, x*across, base)
				}
			}
		}
		each("  var v%[1]d_%[2]d = 0.0;", "")
		w.Add("  for (var k = 0u; k < lines; k++) {")
		each("    v%[1]d_%[2]d = v%[1]d_%[2]d + f[down + %[3]du][k] * a[k][across + %[4]du];", "")
		w.Add("  }\n  if (rider) {\n    let right = (tile - pairs) * lines + across;")
		each(`    if (down + %[3]du < lines && across + %[4]du < lines && right + %[4]du < wide) {
      let row = down + %[3]du;
      let line = select(blocks.x * side + row, blocks.y * side + row - side, row >= side);
      riders[%[5]s + (matrix * n + line) * wide + right + %[4]du] = v%[1]d_%[2]d;
    }`, riders)
		w.Add("    return;\n  }")
		w.Barrier()
		each("  a[down + %[3]du][across + %[4]du] = v%[1]d_%[2]d;", "")
		w.Add(`  for (var e = li; e < %[1]du; e += %[2]du) {
    let row = e / %[3]du;
    let col = e %% %[3]du;
    if (row < lines && col < lines) { f[row][col] = rotations[rotation + (tile * lines + row) * lines + col]; }
  }`, 4*most*most, threads, 2*most)
		w.Barrier()
		each("  v%[1]d_%[2]d = 0.0;", "")
		w.Add("  for (var k = 0u; k < lines; k++) {")
		each("    v%[1]d_%[2]d = v%[1]d_%[2]d + a[down + %[3]du][k] * f[across + %[4]du][k];", "")
		w.Add("  }")
		each(`  if (down + %[3]du < lines && across + %[4]du < lines) {
    let row = down + %[3]du;
    let col = across + %[4]du;
    let line = select(blocks.x * side + row, blocks.y * side + row - side, row >= side);
    let right = select(others.x * side + col, others.y * side + col - side, col >= side);
    data[%[5]s + (matrix * n + line) * n + right] = v%[1]d_%[2]d;
  }`, data)
	})
}
