package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// ReductionOf returns what a loss does with its elements, and the arguments for the loss of each.
func ReductionOf(args []any) (reduction string, none []any) {
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
			if reduction, _ := ReductionOf(u.Args); reduction == "none" {
				return elements.Strategies(u)
			}
			return nil
		},
		Compose: func(u *Use) []*core.Tensor {
			reduction, none := ReductionOf(u.Args)
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
			counted := counts(target, o)
			target = Where(counted, target, core.IntNum(0))
			// Zeros for classes of other ranks, taken from as many as there are: a target that is none is an error on each rank.
			shape := slices.Clone(x.Shape())
			shape[1] = n
			zeros := Squeeze(Gather(Expand(ZerosWith([]int{1}, TensorOptions{DType: new(x.DType()), Device: x.Device()}), shape...), 1, Unsqueeze(target, 1)), 1)
			if length == 0 {
				return []*core.Tensor{Add(nothing(x, target.Shape()), zeros)}
			}
			own, local := among(target, start, length, To(core.IntNum(0), target.DType()))
			picked := Squeeze(Gather(x, 1, Unsqueeze(local, 1)), 1)
			return []*core.Tensor{Where(LogicalAnd(own, counted), Neg(picked), zeros)}
		},
	}}
}

// classLossOptions returns the options of a loss. The weights of classes get no gradient.
func classLossOptions(u *Use) CrossEntropyOptions {
	o := argument[CrossEntropyOptions](u, 2)
	if o.Weight != nil {
		o.Weight = o.Weight.Detach()
	}
	return o
}

// classLossOfParts reduces the losses of the elements; a mean is weighted by the classes' weights.
func classLossOfParts(u *Use) []*core.Tensor {
	reduction, none := ReductionOf(u.Args)
	x, target, o := u.Tensors[0], u.Tensors[1], classLossOptions(u)
	if op := begin(u.Op); !core.CurrentMode().Autocasting() { // else the dtypes are not yet those that are compared
		if op.classLoss(x, target, o); op.err != nil {
			return []*core.Tensor{op.fail()}
		}
	}
	if x.Dim() == 1 {
		return oneClassLossOfParts(u, reduction)
	}
	each := classLossesOfParts(u)
	switch {
	case each == nil && reduction == "none":
		return nil
	case each == nil:
		each = u.Again(none)
	}
	if each.Err() != nil || reduction == "none" {
		return []*core.Tensor{each}
	}
	sum := Sum(each, nil, false)
	if reduction == "sum" {
		return []*core.Tensor{sum}
	}
	if target.DType().IsFloat() {
		return []*core.Tensor{Div(sum, core.Num(float64(each.Numel())))}
	}
	return []*core.Tensor{Div(sum, Sum(classWeights(target, counts(target, o), o.Weight, each.DType()), nil, false))}
}

// oneClassLossOfParts is the loss of the scores of one sample, as those of a batch of one.
func oneClassLossOfParts(u *Use, reduction string) []*core.Tensor {
	x, target := u.Tensors[0], u.Tensors[1]
	if !u.divided(x, []int{0}) {
		return nil
	}
	if target.Parts() == nil {
		target = u.Parts.Like(nil, func([]int) *core.Tensor { return target.Alias(true) })
	}
	out := u.Again([]any{Unsqueeze(x, 0), Unsqueeze(target, 0), u.Args[2]})
	if reduction == "none" {
		out = Squeeze(out, 0)
	}
	return []*core.Tensor{out}
}

// classLossesOfParts returns the losses of the elements if the classes are divided, so that no rank ever has the scores of all classes;
// otherwise, or where strategies do that, nil.
func classLossesOfParts(u *Use) *core.Tensor {
	x, target, o := u.Tensors[0], u.Tensors[1], classLossOptions(u)
	if !u.divided(x, []int{1}) || u.Op == "nll_loss" && o.Weight == nil {
		return nil
	}
	logs := wide(x)
	if u.Op == "cross_entropy" {
		logs = LogSoftmax(logs, 1)
	}
	weighted := logs
	if o.Weight != nil {
		shape := make([]int, x.Dim())
		for d := range shape {
			shape[d] = 1
		}
		shape[1] = -1
		weighted = Mul(logs, Reshape(inDType(o.Weight, logs.DType()), shape...))
	}
	s := o.LabelSmoothing
	if target.DType().IsFloat() {
		t := wide(target)
		if s != 0 {
			t = Add(Mul(t, core.Num(1-s)), core.Num(s/float64(x.Size(1))))
		}
		return inDType(Neg(Sum(Mul(weighted, t), []int{1}, false)), x.DType())
	}
	each := NLLLoss(logs, target, CrossEntropyOptions{IgnoreIndex: o.IgnoreIndex, Reduction: "none"})
	counted := counts(target, o)
	if o.Weight != nil {
		each = Mul(each, classWeights(target, counted, o.Weight, each.DType()))
	}
	if s != 0 {
		uniform := Where(counted, Neg(Mean(weighted, []int{1}, false)), core.Num(0))
		each = Add(Mul(each, core.Num(1-s)), Mul(uniform, core.Num(s)))
	}
	return inDType(each, x.DType())
}

// counts returns which class indices are not ignored.
func counts(target *core.Tensor, o CrossEntropyOptions) *core.Tensor {
	ignored := -100
	if o.IgnoreIndex != nil {
		ignored = *o.IgnoreIndex
	}
	return Ne(target, core.IntNum(int64(ignored)))
}

// classWeights returns the weight of each element's class, 1 without weights, and 0 for those that do not count.
func classWeights(target, counted, weight *core.Tensor, d core.DType) *core.Tensor {
	weights := inDType(counted, d)
	if weight == nil {
		return weights
	}
	at := Where(counted, target, core.IntNum(0))
	return Mul(weights, Reshape(IndexSelect(weight, 0, Flatten(at, 0, -1)), target.Shape()...))
}
