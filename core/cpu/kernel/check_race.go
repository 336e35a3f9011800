//go:build race

package kernel

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// checked wraps f with a check of each call against its kernel's contract. Only race builds, which are for tests, have time for it.
func checked(f Func) Func {
	return func(ctx *Context, c *core.Call) error {
		if err := contract.Check(c); err != nil {
			return err
		}
		return f(ctx, c)
	}
}
