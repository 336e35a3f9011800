package optim

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// NewAdagrad returns the optimiser of Duchi, Hazan and Singer 2011, "Adaptive subgradient methods for online learning and
// stochastic optimization".
// Hyperparameters: lr 1e-2, lr_decay 0, weight_decay 0, initial_accumulator_value 0, eps 1e-10, maximize 0,
// master_weights 0.
func NewAdagrad(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("adagrad", h, Params{Tensors: params})
}

// NewAdadelta returns the optimiser of Zeiler 2012, "ADADELTA: an adaptive learning rate method".
// Hyperparameters: lr 1, rho 0.9, eps 1e-6, weight_decay 0, maximize 0, master_weights 0.
func NewAdadelta(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("adadelta", h, Params{Tensors: params})
}

// NewRMSprop returns the optimiser of Hinton's lecture 6e (2012); centered, that of Graves 2013, "Generating sequences with
// recurrent neural networks".
// Hyperparameters: lr 1e-2, alpha 0.99, eps 1e-8, weight_decay 0, momentum 0, centered 0, maximize 0, master_weights 0.
func NewRMSprop(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("rmsprop", h, Params{Tensors: params})
}

// NewRprop returns resilient backpropagation (Riedmiller and Braun 1993), for gradients of the whole data.
// Hyperparameters: lr 1e-2 (the first step), eta_minus 0.5, eta_plus 1.2, step_min 1e-6, step_max 50, maximize 0,
// master_weights 0.
func NewRprop(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("rprop", h, Params{Tensors: params})
}

// NewASGD returns averaged stochastic gradient descent (Polyak and Juditsky 1992, "Acceleration of stochastic approximation by
// averaging"): state "ax" is the mean of a parameter's values over its steps after the first t0.
// Hyperparameters: lr 1e-2, lambd 1e-4, alpha 0.75, t0 1e6, weight_decay 0, maximize 0, master_weights 0.
func NewASGD(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("asgd", h, Params{Tensors: params})
}

func init() {
	define(&algorithm{
		name:     "asgd",
		defaults: Hyper{"lr": 1e-2, "lambd": 1e-4, "alpha": 0.75, "t0": 1e6, "weight_decay": 0},
		states:   states("ax"),
		carries:  "eta",
		update: func(h Hyper, s step) update {
			eta := s.carried
			if s.count == 1 {
				eta = h["lr"]
			}
			u := updateOf(h, contract.OptimASGD, false, eta, 1/max(1, s.count-1-h["t0"]))
			u.numbers[2] = 1 - h["lambd"]*eta
			u.carried = h["lr"] / math.Pow(1+h["lambd"]*h["lr"]*s.count, h["alpha"])
			return u
		},
	})
	define(&algorithm{
		name:     "adagrad",
		sparse:   sparseRows,
		defaults: Hyper{"lr": 1e-2, "lr_decay": 0, "weight_decay": 0, "initial_accumulator_value": 0, "eps": 1e-10},
		limits:   atLeastZero("lr_decay", "initial_accumulator_value", "eps"),
		states:   states("sum"),
		start:    func(h Hyper, _ string) float64 { return h["initial_accumulator_value"] },
		update: func(h Hyper, s step) update {
			return updateOf(h, contract.OptimAdagrad, false, h["lr"]/(1+(s.count-1)*h["lr_decay"]), h["eps"])
		},
	})
	define(&algorithm{
		name:     "adadelta",
		defaults: Hyper{"lr": 1, "rho": 0.9, "eps": 1e-6, "weight_decay": 0},
		limits:   append(atLeastZero("eps"), limit{"rho", "in [0, 1]", func(v float64) bool { return v >= 0 && v <= 1 }}),
		states:   states("square_avg", "acc_delta"),
		update: func(h Hyper, s step) update {
			return updateOf(h, contract.OptimAdadelta, false, h["lr"], h["rho"], 1-h["rho"], h["eps"])
		},
	})
	define(&algorithm{
		name:     "rmsprop",
		defaults: Hyper{"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0, "momentum": 0, "centered": 0},
		limits:   append(atLeastZero("alpha", "eps", "momentum"), flag("centered")...),
		states: func(h Hyper) []string {
			names := []string{"square_avg"}
			if h["centered"] != 0 {
				names = append(names, "grad_avg")
			}
			if h["momentum"] != 0 {
				names = append(names, "momentum_buffer")
			}
			return names
		},
		update: func(h Hyper, s step) update {
			rule := contract.OptimRMSprop
			switch {
			case h["centered"] != 0 && h["momentum"] != 0:
				rule = contract.OptimRMSpropCenteredMomentum
			case h["centered"] != 0:
				rule = contract.OptimRMSpropCentered
			case h["momentum"] != 0:
				rule = contract.OptimRMSpropMomentum
			}
			return updateOf(h, rule, false, h["lr"], h["alpha"], 1-h["alpha"], h["eps"], h["momentum"])
		},
	})
	define(&algorithm{
		name:     "rprop",
		defaults: Hyper{"lr": 1e-2, "eta_minus": 0.5, "eta_plus": 1.2, "step_min": 1e-6, "step_max": 50},
		check: func(h Hyper) error {
			if !(0 < h["eta_minus"] && h["eta_minus"] < 1 && 1 < h["eta_plus"]) {
				return core.Errorf(core.ValueError, "rprop", "want 0 < eta_minus < 1 < eta_plus, got %v and %v", h["eta_minus"], h["eta_plus"])
			}
			if !(0 <= h["step_min"] && h["step_min"] <= h["step_max"]) || math.IsInf(h["step_max"], 0) {
				return core.Errorf(core.ValueError, "rprop", "want 0 <= step_min <= step_max, got %v and %v", h["step_min"], h["step_max"])
			}
			return nil
		},
		states: states("prev", "step_size"),
		start: func(h Hyper, state string) float64 {
			if state == "step_size" {
				return h["lr"]
			}
			return 0
		},
		update: func(h Hyper, s step) update {
			return updateOf(h, contract.OptimRprop, false, h["eta_minus"], h["eta_plus"], h["step_min"], h["step_max"])
		},
	})
}
