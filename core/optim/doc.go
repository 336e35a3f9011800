// Package optim trains parameters: optimisers with parameter groups and saved states, learning-rate schedules and gradient
// clipping. Names of hyperparameters and their defaults are PyTorch's.
//
//	opt, err := optim.NewAdamW(nn.Parameters(model), optim.Hyper{"lr": 3e-4, "weight_decay": 0.1})
//	...
//	autograd.Backward(loss)
//	optim.ClipGradNorm(nn.Parameters(model), 1, optim.ClipOptions{})
//	err = opt.Step()
//	opt.ZeroGrad()
//
// A step is one launch per device over all parameters. What can be checked when Step is called (errors that gradients
// carry, shapes, dtypes, memory for states) is checked for all parameters before any of them changes. If a gradient turns
// out to have failed when the launch runs, the launch leaves every parameter and state of its device as it was. Parameters then report that
// error until [core.Tensor.Recover], which FSDP calls when it drops a failed pass, and the step does not count.
//
// Optimisers and schedules are not safe for concurrent use.
package optim

//go:generate go run github.com/plait-ml/plait/internal/gen/exported
