package crosscheck

import (
	"errors"
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// half is how far results in 16 bits may differ.
var half = map[core.DType]float64{core.Float16: 2e-3, core.BFloat16: 1.6e-2}

// Row compares the first, the middle and the last sample of a row in float32, the first in float16 and bfloat16 too, as [Compare] does. It
// returns what the device lacks for the operation, empty if nothing, and the first difference.
func Row(dev core.Device, r *op.Row) (lacks string, err error) {
	try := func(i int, d core.DType, tolerance float64) error {
		s := r.Samples[i]
		if lacks != "" {
			return nil
		}
		ctx := core.NewRankContext(0, nil)
		defer ctx.Free()
		var err error
		core.WithContext(ctx, func() {
			core.Tidy(func() {
				m := &Maker{Device: dev, DType: d, Sliced: i%2 == 1, Rand: Rand(r.Name+s.Name, 1)}
				err = Compare(m, r, s, tolerance)
			})
		})
		var lack *core.Error
		if errors.As(err, &lack) && lack.Kind == core.NotImplemented {
			lacks, err = lack.Error(), nil
		}
		if err != nil {
			err = fmt.Errorf("sample %d: %w", i, err)
		}
		return err
	}
	last := len(r.Samples) - 1
	for i := range r.Samples {
		if i == 0 || i == last/2 || i == last {
			if err := try(i, core.Float32, Float32Tolerance); err != nil {
				return lacks, err
			}
		}
	}
	if len(r.Samples) > 0 && r.Samples[0].DTypes == nil {
		for _, d := range []core.DType{core.Float16, core.BFloat16} {
			if err := try(0, d, half[d]); err != nil {
				return lacks, err
			}
		}
	}
	return lacks, nil
}
