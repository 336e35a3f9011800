package op

import "github.com/plait-ml/plait/core"

// castTo returns t itself if it has dtype d, and otherwise [To].
func castTo(t *core.Tensor, d core.DType) *core.Tensor {
	if t.Err() != nil || t.DType() == d && !t.IsNumber() {
		return t
	}
	return To(t, d)
}
