package optim

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// An algorithm is one method of optimisation, by the kernel "optim_step" or composed of operations.
type algorithm struct {
	name     string
	defaults Hyper
	limits   []limit
	// check tests what concerns several hyperparameters; may be nil.
	check func(h Hyper) error
	// states names the tensors that a parameter needs, in the kernel's order.
	states func(h Hyper) []string
	// start returns what a state is filled with at first; nil means 0.
	start func(h Hyper, state string) float64
	// carries names a number that each step of a parameter leaves to the next, 1 at first; empty if there is none.
	carries string
	// update returns the rule and the numbers for a step.
	update func(h Hyper, s step) update
	// apply, in place of update, returns the next values of the parameter and of the states; parameter and gradient are in the
	// states' dtype.
	apply func(h Hyper, param, grad *core.Tensor, states map[string]*core.Tensor, count float64) (*core.Tensor, map[string]*core.Tensor)
	// shape returns the shape of a state of a parameter, nil if it has none of that name; without it, it is the parameter's.
	shape func(state string, param []int) []int
	// accepts says what parameters must be, besides floating-point leaves; may be nil.
	accepts func(t *core.Tensor) error
	// sparse is how it takes sparse gradients.
	sparse sparseStep
	// closure says that a step evaluates the loss itself, and does without update.
	closure bool
}

// A step is what a rule's numbers depend on besides the hyperparameters.
type step struct {
	count   float64 // of this parameter's steps, this one included
	carried float64 // what the step before left; see [algorithm].carries
	fresh   bool    // the states were made for this step
}

// An update is a rule of the kernel and its numbers; see core/cpu/kernel/optim/c/rules.h.
type update struct {
	rule    contract.OptimRule
	numbers [contract.OptimNumbers]float64
	carried float64 // for the next step
}

var algorithms = map[string]*algorithm{}

// define adds an algorithm. All of them but those that evaluate a closure take maximize, those with a kernel master_weights, and
// a weight decay those that list one.
func define(a *algorithm) {
	a.limits = append(a.limits, atLeastZero("lr")...)
	if _, ok := a.defaults["weight_decay"]; ok {
		a.limits = append(a.limits, atLeastZero("weight_decay")...)
	}
	if !a.closure {
		a.defaults["maximize"] = 0
		a.limits = append(a.limits, flag("maximize")...)
	}
	if a.update != nil {
		a.defaults["master_weights"] = 0
		a.limits = append(a.limits, flag("master_weights")...)
	}
	algorithms[a.name] = a
}

// stateShape returns the shape of a state of a parameter, and false if it has none of that name.
func (a *algorithm) stateShape(state string, param []int) ([]int, bool) {
	if a.shape == nil || state == masterState {
		return param, true
	}
	s := a.shape(state, param)
	return s, s != nil
}

// updateOf returns an update that begins with what all rules have in common. decoupled weight decay shrinks the parameter
// itself; otherwise it is added to the gradient.
func updateOf(h Hyper, rule contract.OptimRule, decoupled bool, x ...float64) update {
	u := update{rule: rule, numbers: [contract.OptimNumbers]float64{1, h["weight_decay"], 1}}
	if h["maximize"] != 0 {
		u.numbers[0] = -1
	}
	if decoupled {
		u.numbers[1], u.numbers[2] = 0, 1-h["lr"]*h["weight_decay"]
	}
	copy(u.numbers[3:], x)
	return u
}

func states(names ...string) func(Hyper) []string { return func(Hyper) []string { return names } }
