package op

import "github.com/plait-ml/plait/core"

// wholes fails where an input is a part of a larger tensor.
func (op *opContext) wholes() {
	if op.division != nil && op.err == nil {
		op.err = op.division.Refuse(op.name)
	}
}

// lie fails where an input is a part of a larger tensor that does not lie in the result, of the given shape, as the part does in it.
func (op *opContext) lie(shape []int, in ...*core.Tensor) {
	if op.division == nil || op.err != nil {
		return
	}
	for _, x := range in {
		if s := x.Shape(); x.Division() != nil && (len(s) != len(shape) || len(s) > 0 && s[0] != shape[0]) {
			op.err = x.Division().Refuse(op.name)
			return
		}
	}
}
