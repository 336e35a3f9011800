package contract

import "github.com/plait-ml/plait/core"

// All tensors are contiguous.
var (
	// OptimStep updates parameters by their gradients. For each parameter the outputs are the parameter, its states,
	// and its float32 master copy if it has one. Each parameter has its own [OptimStepAttrs].
	OptimStep = declare(Contract{Name: "optim_step", Outs: "params_and_states...", Ins: "grads...", Ints: "attrs...", Floats: "numbers...", Pairs: core.Leading})
	// OptimNorm writes the p-norm over all elements of all inputs, or its p-th power, to a 0-d output.
	OptimNorm = declare(Contract{Name: "optim_norm", Outs: "norm", Ins: "grads...", Ints: "root", Floats: "p"})
	// OptimClip multiplies all outputs by limit / norm if the norm exceeds the limit.
	OptimClip = declare(Contract{Name: "optim_clip", Outs: "grads...", Ins: "norm", Floats: "limit"})
	// OptimClamp clamps the elements of all outputs to [-limit, limit].
	OptimClamp = declare(Contract{Name: "optim_clamp", Outs: "grads...", Floats: "limit"})
	// OptimUnscale multiplies all outputs except the last by factor. It writes 1 to the last, a 0-d float32, if it met
	// an infinity or NaN.
	OptimUnscale = declare(Contract{Name: "optim_unscale", Outs: "grads_and_found...", Floats: "factor"})
)

// An OptimRule is the optimizer of [OptimStep]. core/cpu/kernel/optim/c/rules.h has the formulas.
type OptimRule int64

// The rules of [OptimStep].
const (
	OptimSGD                     OptimRule = iota // C: PLAITK_SGD
	OptimMomentum                                 // C: PLAITK_MOMENTUM
	OptimAdam                                     // C: PLAITK_ADAM
	OptimAMSGrad                                  // C: PLAITK_AMSGRAD
	OptimAdamax                                   // C: PLAITK_ADAMAX
	OptimNAdam                                    // C: PLAITK_NADAM
	OptimRAdam                                    // C: PLAITK_RADAM
	OptimAdagrad                                  // C: PLAITK_ADAGRAD
	OptimAdadelta                                 // C: PLAITK_ADADELTA
	OptimRMSprop                                  // C: PLAITK_RMSPROP
	OptimRMSpropMomentum                          // C: PLAITK_RMSPROP_MOMENTUM
	OptimRMSpropCentered                          // C: PLAITK_RMSPROP_CENTERED
	OptimRMSpropCenteredMomentum                  // C: PLAITK_RMSPROP_CENTERED_MOMENTUM
	OptimRprop                                    // C: PLAITK_RPROP
	OptimLion                                     // C: PLAITK_LION
	OptimASGD                                     // C: PLAITK_ASGD

	OptimRules = iota // C: PLAITK_RULES
)

// OptimNumbers is the number of float attributes of each parameter.
const OptimNumbers = 10 // C: PLAITK_OPTIM_NUMBERS

// OptimStepAttrs are the attributes of [OptimStep] for one parameter.
type OptimStepAttrs struct {
	Rule    OptimRule
	States  int  // number of state tensors
	Master  bool // has a float32 master copy
	Numbers [OptimNumbers]float64
}

const optimStepInts = 3

// AddTo adds the attributes of the next parameter to a call and returns it.
func (a *OptimStepAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(int64(a.Rule), int64(a.States), Flag(a.Master)).Float(a.Numbers[:]...)
}

// OptimStepOf reads the attributes of parameter i of a call.
func OptimStepOf(c *core.Call, i int) OptimStepAttrs {
	ints := c.Ints[optimStepInts*i:]
	return OptimStepAttrs{OptimRule(ints[0]), int(ints[1]), ints[2] != 0, [OptimNumbers]float64(c.Floats[OptimNumbers*i:])}
}

// OptimStepNumbers returns the float attributes of all parameters, [OptimNumbers] for each.
func OptimStepNumbers(c *core.Call) []float64 { return c.Floats }

// OptimNormAttrs are the attributes of [OptimNorm].
type OptimNormAttrs struct {
	P    float64
	Root bool // write the norm, not its p-th power
}

// OptimFactor returns the float attribute of kernels that have one: the limit or the factor.
func OptimFactor(c *core.Call) float64 { return c.Floats[0] }
