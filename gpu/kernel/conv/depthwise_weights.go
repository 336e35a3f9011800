package conv

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// blockTaps is how many taps an invocation adds up at most.
	blockTaps = 27
	// rowBlock is how many taps of a row it adds up if a kernel has more.
	rowBlock = 8
	// depthwiseGroups is the number of workgroups that the positions are divided between, if there are enough of them.
	depthwiseGroups = 2048
)

// depthwiseWeights computes the gradient w of the weights of a depthwise convolution. A workgroup has some of the positions of all images,
// for a block of the taps of one channel.
func (v *convolution) depthwiseWeights(r *shader.Recorder, x, y, w *core.Operand) error {
	channels, long := v.groups*v.outputs, v.images*primitive.Product3(v.Out)
	taps, blocks := v.Taps(), 1
	whole := taps <= blockTaps
	if !whole {
		blocks = v.Kernel[0] * v.Kernel[1] * shader.Ceil(v.Kernel[2], rowBlock)
	}
	// A workgroup takes 4 positions of each invocation at least.
	pieces := min(shader.Ceil(depthwiseGroups, channels*blocks), shader.Ceil(long, 4*shader.Threads))
	pieces = max(pieces, shader.Ceil(long, shader.MaxLoop*shader.Threads), 1)
	chunk := shader.Ceil(long, pieces)
	parts, err := r.Reals(pieces * channels * taps)
	if err != nil {
		return err
	}
	s := shader.New(r, "depthwise weights")
	from, grad := s.In("x", x, expr.F32, expr.Number), s.In("y", y, expr.F32, expr.Number)
	to := s.RealsOf("parts", parts)
	groups := pieces * channels * blocks
	count, longWord, chunkWord, channelsWord := s.Uint(groups), s.Uint(long), s.Uint(chunk), s.Uint(channels)
	blocksWord, outputs, tapsWord := s.Uint(blocks), s.Uint(v.outputs), s.Uint(taps)
	at := v.Bind(s)
	var kernel [3]int
	if s.Flag(whole) {
		for d, n := range v.Kernel {
			kernel[d] = s.Specialize(n)
		}
	}
	rows := s.Uint(shader.Ceil(v.Kernel[2], rowBlock))
	// The coordinates of a position advance by the number of invocations, as digits.
	var jump [4]string
	rest := shader.Threads
	for d := 2; d >= 0; d-- {
		jump[1+d], rest = s.Uint(rest%v.Out[d]), rest/v.Out[d]
	}
	jump[0] = s.Uint(rest)
	return v.sumTaps(r, s, groups, parts, pieces, channels*taps, w, func(t *shader.Text) {
		t.Sum(shader.Threads)
		t.EachGroup(shader.Threads, count)
		t.Add(`  var split = group / %[1]s;
  let block = group - split * %[1]s;
  let piece = split / %[2]s;
  let channel = split - piece * %[2]s;
  let first = piece * %[3]s;
  let last = min(first + %[3]s, %[4]s);`, blocksWord, channelsWord, chunkWord, longWord)
		t.Add(`  split = (first + li) / %[1]s;
  var o_2 = first + li - split * %[1]s;
  var o_1 = split;
  split = split / %[2]s;
  o_1 = o_1 - split * %[2]s;
  var image = split / %[3]s;
  var o_0 = split - image * %[3]s;`, at.Out[2], at.Out[1], at.Out[0])
		t.Add("  let plane = %s * %s * %s;\n  let places = %s * %s * %s;\n  let source = channel / %s;", at.In[0], at.In[1], at.In[2], at.Out[0], at.Out[1], at.Out[2], outputs)
		n, coordinates := rowBlock, func(k int) [3]string { return [3]string{"k_0", "k_1", fmt.Sprintf("(k_2 + %du)", k)} }
		if whole {
			n = kernel[0] * kernel[1] * kernel[2]
			coordinates = func(k int) [3]string {
				return [3]string{fmt.Sprint(k/(kernel[1]*kernel[2]), "u"), fmt.Sprint(k/kernel[2]%kernel[1], "u"), fmt.Sprint(k%kernel[2], "u")}
			}
		} else {
			t.Add(`  split = block / %[1]s;
  let k_2 = (block - split * %[1]s) * %[2]du;
  let k_0 = split / %[3]s;
  let k_1 = split - k_0 * %[3]s;`, rows, rowBlock, at.Kernel[1])
		}
		for k := range n {
			t.Add("  var a%d = 0.0;", k)
		}
		t.Add(`  for (var j = first + li; j < last; j += %[1]du) {
    let g = ld_y(%[2]s + (image * %[3]s + channel) * places + (o_0 * %[4]s + o_1) * %[5]s + o_2);
    let base = %[6]s + (image * %[7]s / %[8]s + source) * plane;`, shader.Threads, grad, channelsWord, at.Out[1], at.Out[2], from, channelsWord, outputs)
		for d := range 3 {
			t.Add("    let s_%d = o_%d * %s - %s;", d, d, at.Stride[d], at.Padding[d])
		}
		for k := range n {
			c := coordinates(k)
			t.Add("    {")
			for d := range 3 { // positions before the first wrap to large numbers
				t.Add("    let x_%d = s_%d + %s * %s;", d, d, c[d], at.Dilation[d])
			}
			t.Add("    let inside = x_0 < %s && x_1 < %s && x_2 < %s;", at.In[0], at.In[1], at.In[2])
			t.Add("    a%d = a%d + select(0.0, ld_x(select(%s, base + (x_0 * %s + x_1) * %s + x_2, inside)) * g, inside);\n    }", k, k, from, at.In[1], at.In[2])
		}
		t.Add("    o_2 = o_2 + %s;\n    o_1 = o_1 + %s;\n    o_0 = o_0 + %s;\n    image = image + %s;", jump[3], jump[2], jump[1], jump[0])
		for d := 2; d >= 0; d-- {
			next := "image"
			if d > 0 {
				next = fmt.Sprint("o_", d-1)
			}
			t.Add("    if (o_%[1]d >= %[2]s) { o_%[1]d = o_%[1]d - %[2]s; %[3]s = %[3]s + 1u; }", d, at.Out[d], next)
		}
		t.Add("  }")
		for k := range n {
			t.Add("  a%d = whole_sum(li, a%d);", k, k)
		}
		t.Add("  if (li > 0u) { return; }\n  let out = %s + (piece * %s + channel) * %s;", to, channelsWord, tapsWord)
		for k := range n {
			c := coordinates(k)
			store := fmt.Sprintf("parts[out + (%s * %s + %s) * %s + %s] = a%d;", c[0], at.Kernel[1], c[1], at.Kernel[2], c[2], k)
			if !whole {
				store = fmt.Sprintf("if (%s < %s) { %s }", c[2], at.Kernel[2], store)
			}
			t.Add("  %s", store)
		}
	})
}

// sumTaps runs the program of partial sums, and adds them.
func (v *convolution) sumTaps(r *shader.Recorder, s *shader.Builder, groups int, parts core.Memory, pieces, n int, w *core.Operand, body func(t *shader.Text)) error {
	if err := s.Run(r, groups, body); err != nil {
		return err
	}
	return primitive.SumPartials(r, parts, pieces, n, []*core.Operand{w}, nil)
}
