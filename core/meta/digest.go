package meta

import (
	"fmt"
	"hash/fnv"
	"io"

	"github.com/plait-ml/plait/core"
)

// Digest returns a number that is the same for tensors of the meta device for which [Materialize] makes the same values, on any rank; for
// other values it is another, but for chance. That of a tensor of another device is 0.
func Digest(t *core.Tensor) (uint64, error) {
	v, j, err := valueOf(t)
	if err != nil || v == nil {
		return 0, err
	}
	h := fnv.New64a()
	fmt.Fprintln(h, t.DType(), t.Shape(), t.Strides(), t.Offset())
	numbers := map[*value]int{v: 0}
	for _, s := range j.plan(v) {
		fmt.Fprintln(h, s.op, s.kernel, s.ints, s.floats, s.inPlace, len(s.data), s.problem)
		h.Write(s.data)
		for _, list := range [][]operand{s.outs, s.ins} {
			for _, o := range list {
				o.write(h, numbers)
			}
		}
	}
	return h.Sum64(), nil
}

// write writes an operand down. Values have numbers in the order in which they occur.
func (o operand) write(w io.Writer, numbers map[*value]int) {
	n := -1
	if o.value != nil {
		var known bool
		if n, known = numbers[o.value]; !known {
			n = len(numbers)
			numbers[o.value] = n
		}
	}
	fmt.Fprintln(w, n, o.present, o.number, o.dtype, o.shape, o.strides, o.offset)
}
