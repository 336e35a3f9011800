package linalg

import (
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.LinalgQR, qrCall)
	kernel.Register(contract.LinalgEigh, eighCall)
	kernel.Register(contract.LinalgSVD, svdCall)
}

// qrCall: Outs[0], Outs[1] = Q [m, min(m, n)] and R of Ins[0] = Q R, by Householder reflections of the columns, which are stored as rows
// here.
func qrCall(r *shader.Recorder, c *core.Call) error {
	x, err := newMatrices(r, c)
	if err != nil || x.batch == 0 || x.m*x.n == 0 {
		return err
	}
	low := min(x.m, x.n)
	if x.data, err = x.copyOf(r, &c.Ins[0], x.m, x.n, true); err != nil {
		return err
	}
	q, err := x.copyOf(r, nil, low, x.m, false)
	if err != nil {
		return err
	}
	reflections, err := r.Temp(4 * x.batch * low * x.m)
	if err != nil {
		return err
	}
	// reflect returns a loop that applies the reflection of vector v to rows first to last of an array.
	reflect := func(array, at, first, last string) string {
		return fmt.Sprintf(`
    for (var c = %[3]s + li; c < %[4]s; c += 64u) {
      var d = 0.0;
      for (var i = from_; i < m; i++) { d = d + w[v + i] * %[1]s[%[2]s + c * m + i]; }
      for (var i = from_; i < m; i++) { %[1]s[%[2]s + c * m + i] = %[1]s[%[2]s + c * m + i] - d * w[v + i]; }
    }
`, array, at, first, last)
	}
	err = x.runSteps(r, "qr", low, 2*x.m*shader.Ceil(x.n, matrixThreads)+x.m/16, func(s *shader.Builder, _ int) func() stepProgram {
		w, lowWord := s.FloatsOf("w", reflections), s.Uint(low)
		return func() stepProgram {
			return stepProgram{functions: sums, start: fmt.Sprintf("  let low = %s;\n", lowWord), parts: []string{fmt.Sprintf(`
    let v = %s + (group * low + step) * m;
    let column = at + step * m;
    let from_ = step;
    var t = 0.0;
    for (var i = step + 1u + li; i < m; i += 64u) { t = t + data[column + i] * data[column + i]; }
    let tail = whole_sum(li, t);
    let head = data[column + step];
    let norm = sqrt(head * head + tail);
    let start = head - select(norm, -norm, head > 0.0);
    let scale = select(sqrt(2.0 / (tail + start * start)), 0.0, tail == 0.0);
    for (var i = li; i < m; i += 64u) {
      w[v + i] = select(select(data[column + i], start, i == step) * scale, 0.0, i < step);
    }
`, w), reflect("data", "at", "step", "n")}}
		}
	})
	if err != nil {
		return err
	}
	err = x.runSteps(r, "qr (q)", low, 2*x.m*shader.Ceil(low, matrixThreads), func(s *shader.Builder, _ int) func() stepProgram {
		w, qWord, lowWord := s.FloatsOf("w", reflections), s.FloatsOf("q", q), s.Uint(low)
		return func() stepProgram {
			return stepProgram{start: fmt.Sprintf(`  let low = %s;
  let lines = %s + group * low * m;
`, lowWord, qWord), parts: []string{fmt.Sprintf(`
    let from_ = low - 1u - step;
    let v = %s + (group * low + from_) * m;
%s`, w, reflect("q", "lines", "from_", "low"))}}
		}
	})
	if err != nil {
		return err
	}
	if err := x.store(r, &c.Outs[0], q, x.m, low, 1, x.m); err != nil {
		return err
	}
	return x.storeOf(r, &c.Outs[1], x.data, low, x.n, x.m*x.n, 1, x.m, "select(0.0, v, row <= col)")
}

// maxSweeps is how often Jacobi's methods iterate over all pairs at most; in float32 a dozen sweeps suffice for any matrix.
const maxSweeps = 16

// A jacobi rotates pairs of rows, in the order of the CPU, until a sweep rotates none. For each matrix, a word of done is 1 when it has
// converged, and a word of rotated is 1 if the current sweep has rotated a pair.
type jacobi struct {
	*matrices
	lines         int
	vectors       core.Memory
	done, rotated core.Memory
}

func newJacobi(r *shader.Recorder, x *matrices, lines int) (*jacobi, error) {
	j := &jacobi{matrices: x, lines: lines}
	var err error
	if j.vectors, err = x.copyOf(r, nil, lines, lines, false); err != nil {
		return nil, err
	}
	for _, m := range []*core.Memory{&j.done, &j.rotated} {
		if *m, err = r.Temp(4 * x.batch); err != nil {
			return nil, err
		}
		r.Clear(shader.F32Operand(*m, 0, x.batch))
	}
	return j, nil
}

// sweeps rotates pairs (a, b). The statements of measure define t, the tangent of the angle, in uniform control flow; 0 means no rotation.
// rotate has the statements that rotate the pair in data by cosine c and sine f, with a barrier between them.
func (j *jacobi) sweeps(r *shader.Recorder, name string, functions func(w *shader.Text), measure string, rotate []string, cost int) error {
	pairs := j.lines * (j.lines - 1) / 2
	check := func(first bool) error {
		return j.runSteps(r, name+" (check)", 1, 1, func(s *shader.Builder, _ int) func() stepProgram {
			done, turned := s.WordsOf("done", j.done), s.WordsOf("turned", j.rotated)
			s.Flag(first)
			return func() stepProgram {
				if first {
					return stepProgram{functions: sums, parts: []string{fmt.Sprintf(`
    var t = 0.0;
    for (var i = li; i < m * n; i += 64u) { let v = data[at + i]; t = t + v * v; }
    t = whole_sum(li, t);
    for (var i = li; i < m * n; i += 64u) { let v = data[at + i]; if (plait_unbounded(v)) { status[mark] = 1u; done[%s + group] = 1u; } }
    if (li == 0u && t == 0.0) { done[%s + group] = 1u; }
`, done, done)}}
				}
				return stepProgram{parts: []string{fmt.Sprintf("    if (li == 0u) { if (turned[%s + group] == 0u) { done[%s + group] = 1u; } turned[%s + group] = 0u; }\n", turned, done, turned)}}
			}
		})
	}
	if err := check(true); err != nil {
		return err
	}
	for range maxSweeps {
		err := j.runSteps(r, name, pairs, cost+j.lines/32+6, func(s *shader.Builder, first int) func() stepProgram {
			a, b := 0, first+1
			for b >= j.lines {
				a++
				b += a + 1 - j.lines
			}
			vectors, done, turned := s.FloatsOf("vectors", j.vectors), s.WordsOf("done", j.done), s.WordsOf("turned", j.rotated)
			size, aWord, bWord := s.Uint(j.lines), s.Uint(a), s.Uint(b)
			last := len(rotate) - 1
			return func() stepProgram {
				return stepProgram{functions: functions, start: fmt.Sprintf(`  let lines = %s;
  let v0 = %s + group * lines * lines;
  var a = %s;
  var b = %s;
  let ended = done[%s + group] == 1u;
`, size, vectors, aWord, bWord, done), parts: slices.Concat([]string{fmt.Sprintf(`
    if (ended) { break; }
%s
    let c = 1.0 / sqrt(t * t + 1.0);
    let f = t * c;
`, measure)}, rotate[:last], []string{fmt.Sprintf(`%s
    if (t != 0.0) {
      for (var i = li; i < lines; i += 64u) {
        let x = vectors[v0 + a * lines + i];
        let y = vectors[v0 + b * lines + i];
        vectors[v0 + a * lines + i] = c * x - f * y;
        vectors[v0 + b * lines + i] = f * x + c * y;
      }
      if (li == 0u) { turned[%s + group] = 1u; }
    }
    b = b + 1u;
    if (b == lines) { a = a + 1u; b = a + 1u; }
`, rotate[last], turned)})}
			}
		})
		if err != nil {
			return err
		}
		if err := check(false); err != nil {
			return err
		}
	}
	return nil
}

const tangent = `      let theta = (yy - xx) / (2.0 * xy);
      t = select(1.0, -1.0, theta < 0.0) / (abs(theta) + sqrt(theta * theta + 1.0));
`

// eighCall: Outs[0], Outs[1] = ascending eigenvalues and eigenvectors, in columns, of symmetric matrices, by Jacobi rotations.
func eighCall(r *shader.Recorder, c *core.Call) error {
	x, err := newMatrices(r, c)
	if err != nil || x.batch == 0 || x.n == 0 {
		return err
	}
	j, err := newJacobi(r, x, x.n)
	if err != nil {
		return err
	}
	err = j.sweeps(r, "eigh", nil, fmt.Sprintf(`
    let xx = data[at + a * n + a];
    let yy = data[at + b * n + b];
    let xy = data[at + a * n + b];
    var t = 0.0;
    if (abs(xy) > 3e-8 * (abs(xx) + abs(yy)) * 0.5 && abs(xy) > 1e-37) {
%s    }
`, tangent), []string{`
    if (t != 0.0) {
      for (var i = li; i < n; i += 64u) {
        let x = data[at + a * n + i];
        let y = data[at + b * n + i];
        data[at + a * n + i] = c * x - f * y;
        data[at + b * n + i] = f * x + c * y;
      }
    }
`, `
    if (t != 0.0) {
      for (var i = li; i < n; i += 64u) {
        let x = data[at + i * n + a];
        let y = data[at + i * n + b];
        data[at + i * n + a] = c * x - f * y;
        data[at + i * n + b] = f * x + c * y;
      }
    }
`}, x.n/16)
	if err != nil {
		return err
	}
	s := shader.New(r, "eigh (results)")
	data, vectors := s.FloatsOf("data", x.data), s.FloatsOf("vectors", j.vectors)
	values, out, count, n := s.Out("values", &c.Outs[0], expr.F32, expr.Number), s.Out("out", &c.Outs[1], expr.F32, expr.Number), s.Uint(x.batch*x.n*x.n), s.Uint(x.n)
	err = s.Run(r, shader.GroupsFor(x.batch*x.n*x.n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let n = %s;
  let matrix = i / (n * n);
  let own = (i / n) %% n;
  let row = i %% n;
  let at = %s + matrix * n * n;
  let v = data[at + own * n + own];
  var rank = 0u;
  for (var j = 0u; j < n; j++) {
    let o = data[at + j * n + j];
    if (o < v || (o == v && j < own)) { rank = rank + 1u; }
  }
  if (row == 0u) { st_values(%s + matrix * n + rank, v); }
  st_out(%s + (matrix * n + row) * n + rank, vectors[%s + i]);`, n, data, values, out, vectors)
	})
	if err != nil {
		return err
	}
	return x.report(r, c, notFiniteMatrix)
}

// svdCall: Outs = U, descending singular values and V' of Ins[0] = U S V', by one-sided Jacobi rotations (Hestenes) of the columns of a
// tall matrix or the rows of a wide one, which are stored as rows here.
func svdCall(r *shader.Recorder, c *core.Call) error {
	x, err := newMatrices(r, c)
	if err != nil || x.batch == 0 || x.m*x.n == 0 {
		return err
	}
	wide, low, tall := x.m < x.n, min(x.m, x.n), max(x.m, x.n)
	if !wide {
		if x.data, err = x.copyOf(r, &c.Ins[0], x.m, x.n, true); err != nil {
			return err
		}
	}
	x.m, x.n = low, tall // rows to rotate
	j, err := newJacobi(r, x, low)
	if err != nil {
		return err
	}
	sum3 := func(w *shader.Text) { w.Reduce("sum3", shader.Real4, "a + b", matrixThreads) }
	err = j.sweeps(r, "svd", sum3, fmt.Sprintf(`
    var s = real4(0.0, 0.0, 0.0, 0.0);
    for (var i = li; i < n; i += 64u) {
      let x = data[at + a * n + i];
      let y = data[at + b * n + i];
      s = s + real4(x * x, y * y, x * y, 0.0);
    }
    s = whole_sum3(li, s);
    let xx = s.x;
    let yy = s.y;
    let xy = s.z;
    var t = 0.0;
    if (abs(xy) > 2e-7 * sqrt(xx) * sqrt(yy) && abs(xy) > 1e-37) {
%s    }
`, tangent), []string{`
    if (t != 0.0) {
      for (var i = li; i < n; i += 64u) {
        let x = data[at + a * n + i];
        let y = data[at + b * n + i];
        data[at + a * n + i] = c * x - f * y;
        data[at + b * n + i] = f * x + c * y;
      }
    }
`}, tall/16)
	if err != nil {
		return err
	}
	sizes, err := r.Temp(4 * x.batch * low)
	if err != nil {
		return err
	}
	if err := j.normalize(r, sizes); err != nil {
		return err
	}
	left, right := &c.Outs[0], &c.Outs[2]
	if wide {
		left, right = right, left
	}
	if err := j.storeSorted(r, sizes, x.data, tall, left, !wide, &c.Outs[1]); err != nil {
		return err
	}
	if err := j.storeSorted(r, sizes, j.vectors, low, right, wide, nil); err != nil {
		return err
	}
	return x.report(r, c, notFiniteMatrix)
}

// normalize writes the norms of the rows to sizes and divides the rows by them. Rows with a norm of 0 are replaced by rows orthogonal to
// all others.
func (j *jacobi) normalize(r *shader.Recorder, sizes core.Memory) error {
	passes := shader.Ceil(j.n, matrixThreads) + 8
	err := j.runSteps(r, "svd (lengths)", j.lines, 2*passes, func(s *shader.Builder, _ int) func() stepProgram {
		to := s.FloatsOf("sizes", sizes)
		return func() stepProgram {
			return stepProgram{functions: sums, parts: []string{fmt.Sprintf(`
    let line = at + step * n;
    var t = 0.0;
    for (var i = li; i < n; i += 64u) { t = t + data[line + i] * data[line + i]; }
    let size = sqrt(whole_sum(li, t));
    for (var i = li; i < n; i += 64u) { data[line + i] = data[line + i] / select(size, 1.0, size == 0.0); }
    if (li == 0u) { sizes[%s + group * m + step] = size; }
`, to)}}
		}
	})
	if err != nil {
		return err
	}
	return j.runSteps(r, "svd (completion)", j.lines, 8*j.lines*passes, func(s *shader.Builder, _ int) func() stepProgram {
		from := s.FloatsOf("sizes", sizes)
		return func() stepProgram {
			return stepProgram{functions: sums, start: fmt.Sprintf(`
  let sizes0 = %s + group * m;
  var largest = 0.0;
  for (var i = 0u; i < m; i++) { largest = max(largest, sizes[sizes0 + i]); }
  let least = largest * 1e-7;
`, from), parts: []string{`
    let line = at + step * n;
    var missing = sizes[sizes0 + step] <= least && status[mark] == 0u;
    for (var unit = 0u; missing && unit < n; unit++) {
      for (var i = li; i < n; i += 64u) { data[line + i] = select(0.0, 1.0, i == unit); }
      var norm = 1.0;
      for (var pass_ = 0u; pass_ < 2u; pass_++) {
        for (var o = 0u; o < m; o++) {
          if (o == step || (sizes[sizes0 + o] <= least && o > step)) { continue; }
          var t = 0.0;
          for (var i = li; i < n; i += 64u) { t = t + data[line + i] * data[at + o * n + i]; }
          t = whole_sum(li, t);
          for (var i = li; i < n; i += 64u) { data[line + i] = data[line + i] - t * data[at + o * n + i]; }
        }
        var t = 0.0;
        for (var i = li; i < n; i += 64u) { t = t + data[line + i] * data[line + i]; }
        norm = sqrt(whole_sum(li, t));
      }
      if (norm * sqrt(real(n)) >= 0.5) {
        for (var i = li; i < n; i += 64u) { data[line + i] = data[line + i] / norm; }
        missing = false;
      }
    }
`}}
		}
	})
}

// storeSorted writes rows of the given length to out in descending order of sizes, as columns or as rows of out. It writes the sizes to
// values if that is not nil.
func (j *jacobi) storeSorted(r *shader.Recorder, sizes, lines core.Memory, length int, out *core.Operand, columns bool, values *core.Operand) error {
	s := shader.New(r, "svd (results)")
	n := j.batch * j.lines * length
	data, size, y := s.FloatsOf("data", lines), s.FloatsOf("sizes", sizes), s.Out("y", out, expr.F32, expr.Number)
	count, low, long := s.Uint(n), s.Uint(j.lines), s.Uint(length)
	place := "(matrix * low + rank) * long + at"
	if s.Flag(columns) {
		place = "(matrix * long + at) * low + rank"
	}
	store := ""
	if s.Flag(values != nil) {
		store = fmt.Sprintf("  if (at == 0u) { st_values(%s + matrix * low + rank, v); }\n", s.Out("values", values, expr.F32, expr.Number))
	}
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let low = %s;
  let long = %s;
  let matrix = i / (low * long);
  let own = (i / long) %% low;
  let at = i %% long;
  let first = %s + matrix * low;
  let v = sizes[first + own];
  var rank = 0u;
  for (var j = 0u; j < low; j++) {
    let o = sizes[first + j];
    if (o > v || (o == v && j < own)) { rank = rank + 1u; }
  }`, low, long, size)
		w.Add(`  st_y(%s + %s, data[%s + i]);
%s`, y, place, data, store)
	})
}
