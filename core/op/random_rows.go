package op

import "github.com/plait-ml/plait/core"

const drawn = "random numbers do not depend on the values of the arguments in a way that has a derivative"

// draws is one sample. The numbers drawn depend on the dtype, so dtypes are not compared.
func draws(args ...any) []Sample { return []Sample{{Args: args, DTypes: []core.DType{}}} }

func init() {
	options := []Arg{
		{Name: "dtype", Field: "DType", Optional: true, Doc: "of the result"},
		{Name: "device", Field: "Device", Optional: true, Doc: "where the result goes"},
		{Name: "generator", Field: "Generator", Optional: true, Doc: "where the numbers come from; the rank's generator for the device by default"},
	}
	args := func(list ...Arg) []Arg { return append(list, options...) }
	size := Arg{Name: "size", Doc: "the shape"}
	input := Arg{Name: "input", Doc: "whose shape, and by default dtype and device, the result has"}
	low := Arg{Name: "low", Default: 0, Doc: "the smallest integer"}
	high := Arg{Name: "high", Doc: "the integer above the largest"}

	register("random",
		Row{Name: "rand", Doc: "Uniform random numbers in [0, 1).", Func: RandWith, Args: args(size), NoGrad: drawn, Samples: draws([]int{2, 3})},
		Row{Name: "randn", Doc: "Normal random numbers with mean 0 and variance 1.", Func: RandnWith, Args: args(size), NoGrad: drawn, Samples: draws([]int{2, 3})},
		Row{Name: "randint", Doc: "Random integers in [low, high).", Func: RandintWith, Args: args(low, high, size), NoGrad: drawn, Samples: draws(0, 9, []int{2, 3})},
		Row{Name: "randperm", Doc: "A random permutation of 0, ..., n-1.", Func: RandpermWith,
			Args: args(Arg{Name: "n", Doc: "the length"}), NoGrad: drawn, Samples: draws(7)},
		Row{Name: "rand_like", Doc: "Uniform random numbers in [0, 1) of a tensor's shape.", Func: RandLike, Args: args(input), NoGrad: drawn, Samples: draws(Shaped(2, 3))},
		Row{Name: "randn_like", Doc: "Normal random numbers of a tensor's shape.", Func: RandnLike, Args: args(input), NoGrad: drawn, Samples: draws(Shaped(2, 3))},
		Row{Name: "randint_like", Doc: "Random integers in [low, high) of a tensor's shape.", Func: RandintLike,
			Args: args(input, low, high), NoGrad: drawn, Samples: draws(Shaped(2, 3), 0, 9)},
		Row{Name: "bernoulli", Doc: "1 with the probability that the input gives for each element, else 0.", Func: Bernoulli,
			Args: args(Arg{Name: "input", Doc: "the probabilities"}), NoGrad: drawn, Samples: draws(Between(0, 1, 2, 3))},
		Row{Name: "bernoulli_", Doc: "The tensor filled with 1 with probability p, else 0.", InPlace: BernoulliInPlace,
			Args: args(Arg{Name: "p", Number: true, Doc: "the probability: a number, or a tensor that broadcasts"}), NoGrad: drawn},
		Row{Name: "poisson", Doc: "Numbers of events, of which there are input in the mean.", Func: Poisson, Waits: true,
			Args: []Arg{{Name: "input", Doc: "the rates"}, options[2]}, NoGrad: drawn, Samples: draws(Between(0, 30, 2, 3))},
		Row{Name: "multinomial", Doc: "Positions drawn from rows of weights.", Func: Multinomial,
			Args: args(Arg{Name: "input", Doc: "the weights, of shape [m] or [rows, m]"}, Arg{Name: "num_samples", Doc: "draws from each row"},
				Arg{Name: "replacement", Default: false, Doc: "whether a position may be drawn twice"}), NoGrad: drawn, Samples: draws(Between(0.1, 1, 2, 5), 3, false)},
		Row{Name: "uniform_", Doc: "The tensor filled with uniform random numbers in [from, to).", InPlace: UniformInPlace,
			Args: args(Arg{Name: "from", Default: 0.0, Doc: "the lower end"}, Arg{Name: "to", Default: 1.0, Doc: "the upper end"}), NoGrad: drawn},
		Row{Name: "normal_", Doc: "The tensor filled with normal random numbers.", InPlace: NormalInPlace,
			Args: args(Arg{Name: "mean", Default: 0.0, Doc: "the mean"}, Arg{Name: "std", Default: 1.0, Doc: "the standard deviation"}), NoGrad: drawn},
		Row{Name: "exponential_", Doc: "The tensor filled with exponentially distributed random numbers.", InPlace: ExponentialInPlace,
			Args: args(Arg{Name: "lambd", Default: 1.0, Doc: "the rate"}), NoGrad: drawn},
		Row{Name: "log_normal_", Doc: "The tensor filled with numbers whose logarithm is normal.", InPlace: LogNormalInPlace,
			Args: args(Arg{Name: "mean", Default: 1.0, Doc: "the mean of the logarithm"},
				Arg{Name: "std", Default: 2.0, Doc: "the standard deviation of the logarithm"}), NoGrad: drawn},
		Row{Name: "cauchy_", Doc: "The tensor filled with Cauchy distributed random numbers.", InPlace: CauchyInPlace,
			Args: args(Arg{Name: "median", Default: 0.0, Doc: "the median"}, Arg{Name: "sigma", Default: 1.0, Doc: "the scale"}), NoGrad: drawn},
		Row{Name: "geometric_", Doc: "The tensor filled with numbers of trials up to the first success.", InPlace: GeometricInPlace,
			Args: args(Arg{Name: "p", Doc: "the probability of success"}), NoGrad: drawn},
		Row{Name: "random_", Doc: "The tensor filled with random integers in [from, to).", InPlace: RandomInPlace,
			Args: args(Arg{Name: "from", Default: 0, Doc: "the smallest integer"}, Arg{Name: "to", Doc: "the integer above the largest"}), NoGrad: drawn},
		Row{Name: "trunc_normal_", Doc: "The tensor filled with normal random numbers on condition that they lie in [a, b].",
			InPlace: TruncNormalInPlace, NoGrad: drawn,
			Args: args(Arg{Name: "mean", Default: 0.0, Doc: "the mean"}, Arg{Name: "std", Default: 1.0, Doc: "the standard deviation"},
				Arg{Name: "a", Default: -2.0, Doc: "the smallest value"}, Arg{Name: "b", Default: 2.0, Doc: "the largest value"})},
	)
}
