package vmap

import (
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func init() {
	rules = map[string]rule{}
	for _, family := range []func(add func(r rule, names string)){elementRules, reductionRules, viewRules, productRules, indexingRules, layerRules, recurrentRules, lossRules, composedRules, moreRules, drawRules} {
		family(func(r rule, names string) {
			for _, n := range strings.Fields(names) {
				rules[n] = r
			}
		})
	}
	refused = map[string]string{
		"nonzero":            "the shape of its result depends on values",
		"masked_select":      "the shape of its result depends on values; use where, or multiply by the mask",
		"unique":             "the shape of its result depends on values",
		"unique_consecutive": "the shape of its result depends on values",
		"bincount":           "the shape of its result depends on values",
	}
}

// elementRules are those of operations on elements that are not made of such operations alone.
func elementRules(add func(r rule, names string)) {
	eachInPlace := func(names string) {
		add(each, names)
		for _, n := range strings.Fields(names) {
			if r := op.Lookup(n); r != nil && r.InPlace != nil {
				add(each, n+"_")
			}
		}
	}
	eachInPlace(`clamp celu gelu ceil floor round trunc float_power square pow heaviside ldexp isclose logit lcm nextafter nan_to_num where
		frexp polygamma softshrink lerp i0 igamma igammac xlogy polar add sub neg clone contiguous to real imag conj complex mul div sgn true_divide
		eq ne lt le gt ge add_scaled view_as_real view_as_complex empty_like zeros_like ones_like`)
	add(each, "copy_ zero_")
	for _, r := range op.Rows() {
		if r.Family == "special" {
			eachInPlace(r.Name)
		}
	}
	masked := func(u *use) []*core.Tensor {
		if !u.given(2) || !u.batched[2] {
			return each(u)
		}
		if x, value := u.tensors[0], u.tensors[2]; value.Dim() == 0 && !changes(u.Op) {
			return []*core.Tensor{op.Where(u.tensors[1], op.To(value, x.DType()), x)}
		}
		return nil
	}
	add(masked, "masked_fill")
	add(func(u *use) []*core.Tensor {
		if u.given(2) && u.batched[2] {
			return u.replace(masked, op.Lookup("masked_fill"))
		}
		return each(u)
	}, "masked_fill_")
	add(filled, "full_like")
	add(composed(func(u *use) *core.Tensor {
		if v := u.tensors[1]; v.Dim() == 0 {
			return op.CopyInPlace(u.tensors[0], v)
		}
		return nil
	}), "fill_")
	add(func(u *use) []*core.Tensor {
		if u.batched[1] {
			return nil
		}
		return u.call(u.whole)
	}, "isin")
}

// filled is for full_like of a value that may be batched.
func filled(u *use) []*core.Tensor {
	if u.batched[1] || !u.batched[0] {
		return nil
	}
	return u.call(u.whole)
}
