package contract

import "github.com/plait-ml/plait/core"

// All tensors are contiguous.
var (
	// OptimStep updates parameters by their gradients. The outputs are, for each parameter, the parameter, its states and, if it
	// has one, its float32 master copy. Each has [OptimStepAttrs].
	OptimStep = declare(Contract{Name: "optim_step", Outs: "params_and_states...", Ins: "grads...", Ints: "attrs...", Floats: "numbers..."})
	// OptimNorm writes the p-norm of everything in the inputs, or its p-th power, to a 0-d output.
	OptimNorm = declare(Contract{Name: "optim_norm", Outs: "norm", Ins: "grads...", Ints: "root", Floats: "p"})
	// OptimClip multiplies all outputs by what makes a norm at most so large, and by 1 if it is.
	OptimClip = declare(Contract{Name: "optim_clip", Outs: "grads...", Ins: "norm", Floats: "limit"})
	// OptimClamp clamps the elements of all outputs to plus and minus a limit.
	OptimClamp = declare(Contract{Name: "optim_clamp", Outs: "grads...", Floats: "limit"})
	// OptimUnscale multiplies all outputs but the last, and writes to the last, a 0-d float32, 1 if an element was not finite.
	OptimUnscale = declare(Contract{Name: "optim_unscale", Outs: "grads_and_found...", Floats: "factor"})
)

// An OptimRule is how [OptimStep] updates a parameter; core/cpu/kernel/optim/c/rules.h has the formulas.
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

// OptimNumbers is how many numbers a rule has for each parameter.
const OptimNumbers = 10 // C: PLAITK_OPTIM_NUMBERS

// OptimStepAttrs are the attributes of [OptimStep] for one parameter.
type OptimStepAttrs struct {
	Rule    OptimRule
	States  int  // how many there are
	Master  bool // there is a master copy
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

// OptimStepNumbers returns the numbers of all parameters of a call, one after the other.
func OptimStepNumbers(c *core.Call) []float64 { return c.Floats }

// OptimNormAttrs are the attributes of [OptimNorm].
type OptimNormAttrs struct {
	P    float64
	Root bool // the norm is wanted, not its p-th power
}

// AddTo adds the attributes to a call and returns it.
func (a OptimNormAttrs) AddTo(c *core.Call) *core.Call { return c.Int(Flag(a.Root)).Float(a.P) }

// OptimNormOf reads the attributes of a call.
func OptimNormOf(c *core.Call) OptimNormAttrs { return OptimNormAttrs{c.Floats[0], c.Ints[0] != 0} }

// OptimFactor returns the attribute of the kernels that have one: a limit, or what everything is multiplied by.
func OptimFactor(c *core.Call) float64 { return c.Floats[0] }
