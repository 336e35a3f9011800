package op

import "github.com/plait-ml/plait/core"

// holds returns an error if value is a plain number that an integer dtype d cannot hold. Of a fraction the whole part counts, and
// in unsigned integers a negative number stands for the one that it wraps around to.
func holds(name string, d core.DType, value *core.Tensor) error {
	if !d.IsInt() || value == nil || !value.IsNumber() {
		return nil
	}
	if value.DType().IsComplex() {
		return core.Errorf(core.DTypeError, name, "%v cannot hold a complex number", d)
	}
	n := value.Number()
	fits := !n.DType.IsFloat() || n.Float >= -0x1p63 && n.Float < 0x1p63
	least, largest := d.Limits()
	if !d.IsSigned() {
		least = -largest
	}
	fits = fits && n.Int >= least && n.Int <= largest
	switch {
	case fits:
		return nil
	case n.DType.IsFloat():
		return core.Errorf(core.ValueError, name, "%v cannot hold the number %v", d, n.Float)
	}
	return core.Errorf(core.ValueError, name, "%v cannot hold the number %d", d, n.Int)
}

// boundsHeld returns an error if a bound of [Clamp] would put a number into integers x that their dtype cannot hold.
func boundsHeld(name string, x, low, high *core.Tensor) error {
	if x == nil || x.Err() != nil || !x.DType().IsInt() {
		return nil
	}
	if low != nil && low.IsNumber() && low.Number().DType == core.Int64 && low.Number().Int > 0 {
		if err := holds(name, x.DType(), low); err != nil {
			return err
		}
	}
	if high != nil && high.IsNumber() && high.Number().DType == core.Int64 && high.Number().Int < 0 {
		if !x.DType().IsSigned() {
			return core.Errorf(core.ValueError, name, "%v cannot hold the number %d", x.DType(), high.Number().Int)
		}
		return holds(name, x.DType(), high)
	}
	return nil
}
