package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// reductionOf returns what a loss does with its elements, and the arguments for the loss of each.
func reductionOf(args []any) (reduction string, none []any) {
	none = slices.Clone(args)
	for i := len(args) - 1; i >= 0; i-- {
		switch a := args[i].(type) {
		case string:
			none[i] = "none"
			return a, none
		case BCEOptions:
			reduction, a.Reduction = a.Reduction, "none"
			none[i] = a
			return reduction, none
		case PoissonNLLOptions:
			reduction, a.Reduction = a.Reduction, "none"
			none[i] = a
			return reduction, none
		case TripletMarginOptions:
			reduction, a.Reduction = a.Reduction, "none"
			none[i] = a
			return reduction, none
		case MultiMarginOptions:
			reduction, a.Reduction = a.Reduction, "none"
			none[i] = a
			return reduction, none
		case CrossEntropyOptions:
			reduction, a.Reduction = a.Reduction, "none"
			none[i] = a
			return reduction, none
		}
	}
	return "none", none
}

// loss returns the rule of a loss whose elements have the given rule.
func loss(elements *Rule) *Rule {
	return &Rule{
		Strategies: func(u *Use) []Strategy {
			if reduction, _ := reductionOf(u.Args); reduction == "none" {
				return elements.Strategies(u)
			}
			return nil
		},
		Compose: func(u *Use) []*core.Tensor {
			reduction, none := reductionOf(u.Args)
			if reduction == "none" {
				return nil
			}
			each := u.Again(none)
			if each.Err() != nil {
				return []*core.Tensor{each}
			}
			switch reduction {
			case "", "mean":
				return []*core.Tensor{Mean(each, nil, false)}
			case "sum":
				return []*core.Tensor{Sum(each, nil, false)}
			case "batchmean":
				return []*core.Tensor{Div(Sum(each, nil, false), core.Num(float64(u.Tensors[0].Size(0))))}
			}
			return nil
		},
	}
}

// likelihoods is for negative log likelihoods, without reduction, of which each rank has some classes.
func likelihoods(u *Use) []Strategy {
	x, o := u.Tensors[0], argument[CrossEntropyOptions](u, 2)
	if u.Op != "nll_loss" || o.Weight != nil || x.Dim() < 2 || x.Size(1) <= 1 {
		return nil
	}
	n := x.Size(1)
	return []Strategy{{
		In: []core.Placement{core.Shard(1), core.Replicate(), core.Replicate()}, Out: []core.Placement{core.Partial(core.Sums)}, Size: n,
		Local: func(args []any, start, length int) []*core.Tensor {
			x, target := args[0].(*core.Tensor), args[1].(*core.Tensor)
			if length == 0 {
				return []*core.Tensor{nothing(x, target.Shape())}
			}
			ignored := -100
			if o.IgnoreIndex != nil {
				ignored = *o.IgnoreIndex
			}
			counted := Ne(target, core.IntNum(int64(ignored)))
			own, local := among(Where(counted, target, core.IntNum(0)), start, length, n)
			own = LogicalAnd(own, counted)
			picked := Squeeze(Gather(x, 1, Unsqueeze(local, 1)), 1)
			return []*core.Tensor{Where(own, Neg(picked), core.Num(0))}
		},
	}}
}
