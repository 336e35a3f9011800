//go:build race

package kernel

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// checked wraps f to check each call against its kernel's contract. Race builds are for tests, so the cost does not
// matter.
func checked(f Func) Func {
	return func(ctx *Context, c *core.Call) error {
		if err := contract.Check(c); err != nil {
			return err
		}
		return f(ctx, c)
	}
}
