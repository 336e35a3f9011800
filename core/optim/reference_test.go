package optim

import "math"

// A reference is a published update written down for one number, after PyTorch's documentation: given the parameter w, its
// gradient g and the step t (from 1), it returns the new parameter. s holds what it remembers.
type reference func(h Hyper, t float64, w, g float64, s map[string]float64) float64

// signed returns the gradient to descend.
func signed(h Hyper, g float64) float64 {
	if h["maximize"] != 0 {
		return -g
	}
	return g
}

// moments updates Adam's two running means and returns them corrected for their start.
func moments(h Hyper, t, g float64, s map[string]float64) (m, v float64) {
	s["m"] = h["beta1"]*s["m"] + (1-h["beta1"])*g
	s["v"] = h["beta2"]*s["v"] + (1-h["beta2"])*g*g
	return s["m"] / (1 - math.Pow(h["beta1"], t)), s["v"] / (1 - math.Pow(h["beta2"], t))
}

// decay applies weight decay: to the gradient, or to the parameter if it is decoupled.
func decay(h Hyper, w, g float64, decoupled bool) (float64, float64) {
	if decoupled {
		return w - h["lr"]*h["weight_decay"]*w, g
	}
	return w, g + h["weight_decay"]*w
}

func adamReference(decoupled func(h Hyper) bool) reference {
	return func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		w, g = decay(h, w, signed(h, g), decoupled(h))
		m, v := moments(h, t, g, s)
		if h["amsgrad"] != 0 {
			s["most"] = max(s["most"], s["v"])
			v = s["most"] / (1 - math.Pow(h["beta2"], t))
		}
		return w - h["lr"]*m/(math.Sqrt(v)+h["eps"])
	}
}

func isDecoupled(h Hyper) bool { return h["decoupled_weight_decay"] != 0 }

var references = map[string]reference{
	"sgd": func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		w, g = decay(h, w, signed(h, g), false)
		if mu := h["momentum"]; mu != 0 {
			if t == 1 {
				s["b"] = g
			} else {
				s["b"] = mu*s["b"] + (1-h["dampening"])*g
			}
			if h["nesterov"] != 0 {
				g += mu * s["b"]
			} else {
				g = s["b"]
			}
		}
		return w - h["lr"]*g
	},
	"adam":  adamReference(isDecoupled),
	"adamw": adamReference(func(Hyper) bool { return true }),
	"adamax": func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		w, g = decay(h, w, signed(h, g), false)
		s["m"] = h["beta1"]*s["m"] + (1-h["beta1"])*g
		s["u"] = max(h["beta2"]*s["u"], math.Abs(g)+h["eps"])
		return w - h["lr"]/(1-math.Pow(h["beta1"], t))*s["m"]/s["u"]
	},
	"nadam": func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		w, g = decay(h, w, signed(h, g), isDecoupled(h))
		if t == 1 {
			s["product"] = 1
		}
		mu := h["beta1"] * (1 - 0.5*math.Pow(0.96, t*h["momentum_decay"]))
		next := h["beta1"] * (1 - 0.5*math.Pow(0.96, (t+1)*h["momentum_decay"]))
		s["product"] *= mu
		_, v := moments(h, t, g, s)
		mhat := next*s["m"]/(1-s["product"]*next) + (1-mu)*g/(1-s["product"])
		return w - h["lr"]*mhat/(math.Sqrt(v)+h["eps"])
	},
	"radam": func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		w, g = decay(h, w, signed(h, g), isDecoupled(h))
		m, _ := moments(h, t, g, s)
		inf := 2/(1-h["beta2"]) - 1
		rho := inf - 2*t*math.Pow(h["beta2"], t)/(1-math.Pow(h["beta2"], t))
		if rho <= 5 {
			return w - h["lr"]*m
		}
		l := math.Sqrt(1-math.Pow(h["beta2"], t)) / (math.Sqrt(s["v"]) + h["eps"])
		r := math.Sqrt((rho - 4) * (rho - 2) * inf / ((inf - 4) * (inf - 2) * rho))
		return w - h["lr"]*m*r*l
	},
	"adagrad": func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		w, g = decay(h, w, signed(h, g), false)
		if t == 1 {
			s["sum"] = h["initial_accumulator_value"]
		}
		s["sum"] += g * g
		return w - h["lr"]/(1+(t-1)*h["lr_decay"])*g/(math.Sqrt(s["sum"])+h["eps"])
	},
	"adadelta": func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		w, g = decay(h, w, signed(h, g), false)
		s["v"] = h["rho"]*s["v"] + (1-h["rho"])*g*g
		d := math.Sqrt(s["u"]+h["eps"]) / math.Sqrt(s["v"]+h["eps"]) * g
		s["u"] = h["rho"]*s["u"] + (1-h["rho"])*d*d
		return w - h["lr"]*d
	},
	"rmsprop": func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		w, g = decay(h, w, signed(h, g), false)
		s["v"] = h["alpha"]*s["v"] + (1-h["alpha"])*g*g
		v := s["v"]
		if h["centered"] != 0 {
			s["g"] = h["alpha"]*s["g"] + (1-h["alpha"])*g
			v -= s["g"] * s["g"]
		}
		d := g / (math.Sqrt(v) + h["eps"])
		if h["momentum"] > 0 {
			s["b"] = h["momentum"]*s["b"] + d
			d = s["b"]
		}
		return w - h["lr"]*d
	},
	"rprop": func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		g = signed(h, g)
		if t == 1 {
			s["step"] = h["lr"]
		}
		switch {
		case s["prev"]*g > 0:
			s["step"] = min(s["step"]*h["eta_plus"], h["step_max"])
		case s["prev"]*g < 0:
			s["step"] = max(s["step"]*h["eta_minus"], h["step_min"])
			g = 0
		}
		s["prev"] = g
		switch {
		case g > 0:
			return w - s["step"]
		case g < 0:
			return w + s["step"]
		}
		return w
	},
	"lion": func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		w, g = decay(h, w, signed(h, g), true)
		c := h["beta1"]*s["m"] + (1-h["beta1"])*g
		s["m"] = h["beta2"]*s["m"] + (1-h["beta2"])*g
		return w - h["lr"]*math.Copysign(1, c)
	},
	"asgd": func(h Hyper, t, w, g float64, s map[string]float64) float64 {
		w, g = decay(h, w, signed(h, g), false)
		if t == 1 {
			s["eta"] = h["lr"]
		}
		w = w*(1-h["lambd"]*s["eta"]) - s["eta"]*g
		s["ax"] += (w - s["ax"]) / max(1, t-1-h["t0"])
		s["eta"] = h["lr"] / math.Pow(1+h["lambd"]*h["lr"]*t, h["alpha"])
		return w
	},
}

// variants are the hyperparameters with which each algorithm is tested.
var variants = map[string][]Hyper{
	"sgd": {{}, {"lr": 0.1, "weight_decay": 0.1}, {"lr": 0.05, "momentum": 0.9}, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01},
		{"lr": 0.05, "momentum": 0.8, "nesterov": 1, "maximize": 1}},
	"adam": {{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.1}, {"lr": 0.05, "amsgrad": 1, "beta2": 0.5}, {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": 1},
		{"lr": 0.1, "maximize": 1, "eps": 0.1}},
	"adamw":    {{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.3, "amsgrad": 1, "beta2": 0.6, "maximize": 1}},
	"adamax":   {{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.1, "beta2": 0.7, "maximize": 1}},
	"nadam":    {{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.1, "momentum_decay": 0.1}, {"lr": 0.1, "weight_decay": 0.2, "decoupled_weight_decay": 1, "maximize": 1}},
	"radam":    {{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.1, "beta2": 0.9}, {"lr": 0.1, "weight_decay": 0.1, "beta2": 0.95, "decoupled_weight_decay": 1, "maximize": 1}},
	"adagrad":  {{"lr": 0.3}, {"lr": 0.3, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "maximize": 1}},
	"adadelta": {{}, {"lr": 3, "rho": 0.7, "eps": 1e-2, "weight_decay": 0.1, "maximize": 1}},
	"rmsprop": {{}, {"lr": 0.05, "alpha": 0.8, "weight_decay": 0.1}, {"lr": 0.05, "momentum": 0.5, "maximize": 1}, {"lr": 0.05, "centered": 1, "eps": 1e-2},
		{"lr": 0.05, "centered": 1, "momentum": 0.9, "alpha": 0.9, "eps": 1e-2}},
	"rprop": {{}, {"lr": 0.3, "eta_minus": 0.4, "eta_plus": 1.5, "step_min": 0.01, "step_max": 0.4, "maximize": 1}},
	"asgd":  {{"lr": 0.1}, {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 2, "weight_decay": 0.1, "maximize": 1}},
	"lion":  {{"lr": 0.03}, {"lr": 0.03, "beta1": 0.7, "beta2": 0.8, "weight_decay": 0.5, "maximize": 1}},
}
