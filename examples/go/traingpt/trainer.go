package main

import (
	"context"
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/data"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
)

// Config is what a training run is determined by, together with its text.
type Config struct {
	Width, Layers, Heads, Context int
	Dropout                       float64
	Batch, Steps                  int
	LR                            float64
	Seed                          uint64
}

// passSteps is the number of steps in a pass of the loader, which is where a run can be saved.
const passSteps = 50

// trainer is a run in progress.
type trainer struct {
	config    Config
	text      *corpus
	model     *gpt
	optimizer *optim.Optimizer
	schedule  *optim.Schedule
	generator *core.Generator // of dropout
	loader    *data.Loader[[2]*core.Tensor]
	step      int
}

func newTrainer(c Config, text *corpus) (*trainer, error) {
	device, err := core.CurrentContext().DefaultDevice()
	if err != nil {
		return nil, err
	}
	t := &trainer{config: c, text: text, generator: core.CurrentContext().Generator(device)}
	core.ManualSeed(c.Seed)
	if t.model, err = newGPT(c, len(text.alphabet)); err != nil {
		return nil, err
	}
	if t.optimizer, err = optim.New("adamw", optim.Hyper{"lr": c.LR, "beta2": 0.99}, t.model.groups()...); err != nil {
		return nil, err
	}
	// The rate rises over a pass, and then falls to a tenth along a cosine.
	t.schedule, err = optim.NewLambdaLR(t.optimizer, func(step int) float64 {
		if step < passSteps {
			return float64(step+1) / passSteps
		}
		done := float64(step-passSteps) / float64(c.Steps-passSteps)
		return 0.55 + 0.45*math.Cos(math.Pi*done)
	})
	if err != nil {
		return nil, err
	}
	pieces := windows{text.train, c.Context}
	sampler, err := data.NewRandomSampler(pieces.Len(), passSteps*c.Batch, true, c.Seed)
	if err != nil {
		return nil, err
	}
	t.loader, err = data.NewBatchLoader(pieces, data.Options{BatchSize: c.Batch, Sampler: sampler, Workers: 1})
	return t, err
}

// pass trains for passSteps steps and reports each, with its loss.
func (t *trainer) pass(ctx context.Context, report func(step int, loss float64)) error {
	nn.Train(t.model)
	t.loader.SetEpoch(uint64(t.step / passSteps))
	for batch, err := range t.loader.Epoch(ctx) {
		if err != nil {
			return err
		}
		var loss float64
		core.Tidy(func() { loss, err = t.update(batch) })
		data.Release(batch)
		if err != nil {
			return err
		}
		t.step++
		report(t.step, loss)
	}
	return nil
}

// update makes one step.
func (t *trainer) update(batch [2]*core.Tensor) (float64, error) {
	loss := t.model.loss(batch)
	if err := autograd.Backward(loss); err != nil {
		return 0, err
	}
	if norm := optim.ClipGradNorm(nn.Parameters(t.model), 1, optim.ClipOptions{}); norm.Err() != nil {
		return 0, norm.Err()
	}
	if err := t.optimizer.Step(); err != nil {
		return 0, err
	}
	t.optimizer.ZeroGrad()
	if err := t.schedule.Step(); err != nil {
		return 0, err
	}
	return loss.Item()
}

// validate returns the mean loss on the first pieces of the text that is not trained on.
func (t *trainer) validate() (float64, error) {
	const batches, size = 4, 32
	nn.Eval(t.model)
	pieces := windows{t.text.valid, t.config.Context}
	sum := 0.0
	var err error
	core.NoGrad(func() {
		for b := range batches {
			core.Tidy(func() {
				indices := make([]int, size)
				for i := range indices {
					indices[i] = (b*size + i) * (pieces.Len() - 1) / (batches * size)
				}
				var batch [2]*core.Tensor
				if batch, err = pieces.Batch(indices); err != nil {
					return
				}
				var loss float64
				loss, err = t.model.loss(batch).Item()
				sum += loss
			})
			if err != nil {
				return
			}
		}
	})
	return sum / batches, err
}

// sample lets the model go on from a prompt.
func (t *trainer) sample(prompt string, length int) (string, error) {
	const temperature = 0.7
	nn.Eval(t.model)
	codes := t.text.encode(prompt)
	random := op.RandomOptions{Generator: core.NewGenerator(t.config.Seed)}
	var err error
	core.NoGrad(func() {
		for range length {
			core.Tidy(func() {
				window := codes[max(0, len(codes)-t.config.Context):]
				logits := t.model.forward(core.FromSlice(window, 1, len(window)))
				last := op.Div(op.Select(op.Select(logits, 0, 0), 0, -1), core.Num(temperature))
				var next int64
				next, err = op.Multinomial(op.Softmax(last, -1), 1, false, random).Int()
				codes = append(codes, int32(next))
			})
			if err != nil {
				return
			}
		}
	})
	return t.text.decode(codes), err
}
