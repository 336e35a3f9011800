package op

import "github.com/plait-ml/plait/core"

// beginEach is beginGiven for an operation that works element by element: of parts of larger tensors it makes parts. Its shape
// must be given to [application.lie], and its result to [application.done].
func beginEach(name string, inputs ...*core.Tensor) application { return start(name, false, inputs) }

// wholes fails where an input is a part of a larger tensor.
func (a *application) wholes() {
	if a.division != nil && a.err == nil {
		a.err = a.division.Refuse(a.name)
	}
}

// lie fails where an input is a part of a larger tensor that does not lie in the result, of the given shape, as the part does in it.
func (a *application) lie(shape []int, in ...*core.Tensor) {
	if a.division == nil || a.err != nil {
		return
	}
	for _, x := range in {
		if s := x.Shape(); x.Division() != nil && (len(s) != len(shape) || len(s) > 0 && s[0] != shape[0]) {
			a.err = x.Division().Refuse(a.name)
			return
		}
	}
}
