package nn

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Dropout zeroes elements, or whole channels, with probability P in training and scales the others by 1/(1-P) (Srivastava
// et al. 2014). In evaluation it does nothing.
type Dropout struct {
	Base
	P float64

	name string
	drop func(x *core.Tensor, p float64, training bool) *core.Tensor
}

// NewDropout returns a layer that drops single elements.
func NewDropout(p float64) *Dropout { return &Dropout{P: p, name: "Dropout", drop: op.Dropout} }

// NewDropout1d returns a layer that drops channels of inputs [n, c, l].
func NewDropout1d(p float64) *Dropout { return &Dropout{P: p, name: "Dropout1d", drop: op.Dropout1d} }

// NewDropout2d returns a layer that drops channels of inputs [n, c, h, w].
func NewDropout2d(p float64) *Dropout { return &Dropout{P: p, name: "Dropout2d", drop: op.Dropout2d} }

// NewDropout3d returns a layer that drops channels of inputs [n, c, d, h, w].
func NewDropout3d(p float64) *Dropout { return &Dropout{P: p, name: "Dropout3d", drop: op.Dropout3d} }

// NewAlphaDropout returns a layer that keeps mean and variance for networks of SELUs (Klambauer et al. 2017).
func NewAlphaDropout(p float64) *Dropout {
	return &Dropout{P: p, name: "AlphaDropout", drop: op.AlphaDropout}
}

// NewFeatureAlphaDropout is [NewAlphaDropout] for whole channels.
func NewFeatureAlphaDropout(p float64) *Dropout {
	return &Dropout{P: p, name: "FeatureAlphaDropout", drop: op.FeatureAlphaDropout}
}

// Forward maps any shape to itself.
func (d *Dropout) Forward(x *core.Tensor) *core.Tensor {
	if d.drop == nil { // the zero value drops elements
		return op.Dropout(x, d.P, d.Training())
	}
	return d.drop(x, d.P, d.Training())
}

func (d *Dropout) describe() (name, arguments string) { return d.name, fmt.Sprintf("p=%v", d.P) }
