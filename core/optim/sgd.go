package optim

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// NewSGD returns stochastic gradient descent, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013: "On the
// importance of initialization and momentum in deep learning").
// Hyperparameters: lr 1e-3, momentum 0, dampening 0, weight_decay 0, nesterov 0, maximize 0, master_weights 0.
func NewSGD(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("sgd", h, Params{Tensors: params})
}

// NewLion returns the optimiser of Chen et al. 2023, "Symbolic discovery of optimization algorithms".
// Hyperparameters: lr 1e-4, beta1 0.9, beta2 0.99, weight_decay 0, maximize 0, master_weights 0.
func NewLion(params []*core.Tensor, h Hyper) (*Optimizer, error) {
	return New("lion", h, Params{Tensors: params})
}

func init() {
	define(&algorithm{
		name:     "sgd",
		sparse:   sparseRows,
		defaults: Hyper{"lr": 1e-3, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": 0},
		limits:   append(atLeastZero("momentum"), flag("nesterov")...),
		check: func(h Hyper) error {
			if h["nesterov"] != 0 && (h["momentum"] <= 0 || h["dampening"] != 0) {
				return core.Errorf(core.ValueError, "sgd", "nesterov wants a momentum above 0 and no dampening, got momentum %v and dampening %v",
					h["momentum"], h["dampening"])
			}
			return nil
		},
		states: func(h Hyper) []string {
			if h["momentum"] == 0 {
				return nil
			}
			return []string{"momentum_buffer"}
		},
		update: func(h Hyper, s step) update {
			m := h["momentum"]
			if m == 0 {
				return updateOf(h, contract.OptimSGD, false, h["lr"])
			}
			decay, take := m, 1-h["dampening"]
			if s.fresh { // the buffer starts as the first gradient
				decay, take = 0, 1
			}
			direct, through := 0.0, 1.0
			if h["nesterov"] != 0 {
				direct, through = 1, m
			}
			return updateOf(h, contract.OptimMomentum, false, h["lr"], decay, take, direct, through)
		},
	})
	define(&algorithm{
		name:     "lion",
		defaults: Hyper{"lr": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0},
		limits:   fraction("beta1", "beta2"),
		states:   states("exp_avg"),
		update: func(h Hyper, s step) update {
			return updateOf(h, contract.OptimLion, true, h["lr"], 1-h["beta1"], 1-h["beta2"])
		},
	})
}
