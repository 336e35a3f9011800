package optim

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// NewAdam returns the optimiser of Kingma and Ba 2015, "Adam: a method for stochastic optimization"; with amsgrad, the
// variant of Reddi, Kale and Kumar 2018, "On the convergence of Adam and beyond".
// Hyperparameters: lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, amsgrad 0, decoupled_weight_decay 0,
// maximize 0, master_weights 0.
func NewAdam(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("adam", h, Params{Tensors: params})
}

// NewAdamW returns Adam with decoupled weight decay (Loshchilov and Hutter 2019, "Decoupled weight decay regularization").
// Hyperparameters: lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 1e-2, amsgrad 0, maximize 0, master_weights 0.
func NewAdamW(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("adamw", h, Params{Tensors: params})
}

// NewAdamax returns the variant of Adam with the infinity norm, of the same paper.
// Hyperparameters: lr 2e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, maximize 0, master_weights 0.
func NewAdamax(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("adamax", h, Params{Tensors: params})
}

// NewNAdam returns Adam with Nesterov's momentum (Dozat 2016, "Incorporating Nesterov momentum into Adam").
// Hyperparameters: lr 2e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, momentum_decay 4e-3,
// decoupled_weight_decay 0, maximize 0, master_weights 0.
func NewNAdam(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("nadam", h, Params{Tensors: params})
}

// NewRAdam returns the rectified Adam of Liu et al. 2020, "On the variance of the adaptive learning rate and beyond".
// Hyperparameters: lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, decoupled_weight_decay 0, maximize 0,
// master_weights 0.
func NewRAdam(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("radam", h, Params{Tensors: params})
}

func adamLimits(more ...string) []limit {
	return append(append(fraction("beta1", "beta2"), atLeastZero("eps")...), flag(more...)...)
}

func adamUpdate(h Hyper, s step, decoupled bool) update {
	correction1 := 1 - math.Pow(h["beta1"], s.count)
	correction2 := 1 - math.Pow(h["beta2"], s.count)
	rule := contract.OptimAdam
	if h["amsgrad"] != 0 {
		rule = contract.OptimAMSGrad
	}
	return updateOf(h, rule, decoupled, h["lr"]/correction1, 1-h["beta1"], h["beta2"], 1-h["beta2"], math.Sqrt(correction2), h["eps"])
}

func adamStates(h Hyper) []string {
	if h["amsgrad"] != 0 {
		return []string{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
	}
	return []string{"exp_avg", "exp_avg_sq"}
}

func init() {
	define(&algorithm{
		name: "adam",
		defaults: Hyper{"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0, "amsgrad": 0,
			"decoupled_weight_decay": 0},
		limits: adamLimits("amsgrad", "decoupled_weight_decay"),
		states: adamStates,
		update: func(h Hyper, s step) update { return adamUpdate(h, s, h["decoupled_weight_decay"] != 0) },
	})
	define(&algorithm{
		name:     "adamw",
		defaults: Hyper{"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 1e-2, "amsgrad": 0},
		limits:   adamLimits("amsgrad"),
		states:   adamStates,
		update:   func(h Hyper, s step) update { return adamUpdate(h, s, true) },
	})
	define(&algorithm{
		name:     "adamax",
		defaults: Hyper{"lr": 2e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0},
		limits:   adamLimits(),
		states:   states("exp_avg", "exp_inf"),
		update: func(h Hyper, s step) update {
			correction := 1 - math.Pow(h["beta1"], s.count)
			return updateOf(h, contract.OptimAdamax, false, h["lr"]/correction, 1-h["beta1"], h["beta2"], h["eps"])
		},
	})
	define(&algorithm{
		name: "nadam",
		defaults: Hyper{"lr": 2e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0, "momentum_decay": 4e-3,
			"decoupled_weight_decay": 0},
		limits:  append(adamLimits("decoupled_weight_decay"), atLeastZero("momentum_decay")...),
		states:  states("exp_avg", "exp_avg_sq"),
		carries: "mu_product",
		update: func(h Hyper, s step) update {
			momentum := func(t float64) float64 { return h["beta1"] * (1 - 0.5*math.Pow(0.96, t*h["momentum_decay"])) }
			mu, next := momentum(s.count), momentum(s.count+1)
			product := s.carried * mu
			u := updateOf(h, contract.OptimNAdam, h["decoupled_weight_decay"] != 0, h["lr"]*(1-mu)/(1-product), 1-h["beta1"], h["beta2"],
				1-h["beta2"], 1-math.Pow(h["beta2"], s.count), h["eps"], h["lr"]*next/(1-product*next))
			u.carried = product
			return u
		},
	})
	define(&algorithm{
		name:     "radam",
		defaults: Hyper{"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0, "decoupled_weight_decay": 0},
		limits:   adamLimits("decoupled_weight_decay"),
		states:   states("exp_avg", "exp_avg_sq"),
		update: func(h Hyper, s step) update {
			power := math.Pow(h["beta2"], s.count)
			correction1, correction2 := 1-math.Pow(h["beta1"], s.count), 1-power
			most := 2/(1-h["beta2"]) - 1
			length := most - 2*s.count*power/correction2
			rate, root := h["lr"]/correction1, 0.0
			if length > 5 { // the variance of the adaptive rate is tractable
				rate *= math.Sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
				root = math.Sqrt(correction2)
			}
			return updateOf(h, contract.OptimRAdam, h["decoupled_weight_decay"] != 0, rate, 1-h["beta1"], h["beta2"], 1-h["beta2"], root, h["eps"])
		},
	})
}
