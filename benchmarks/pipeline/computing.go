package main

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/pipeline"
)

const (
	blocks  = 8
	width   = 512
	samples = 2048
)

// computing measures the schedules with stages that compute, and predicts them from the stages' times.
func computing() ([]row, error) {
	var rows []row
	for _, name := range pipeline.Names() {
		core.ManualSeed(1)
		var layers []nn.Layer
		for range blocks {
			layers = append(layers, nn.NewSequential(nn.NewLayerNorm([]int{width}, nn.NormOptions{}),
				nn.NewLinear(width, 2*width, nn.LinearOptions{}), nn.NewTanh(), nn.NewLinear(2*width, width, nn.LinearOptions{})))
		}
		model := nn.NewSequential(layers...)
		for _, t := range nn.Parameters(model) {
			t.Keep()
		}
		loss := func(y, target *core.Tensor) *core.Tensor {
			d := op.Sub(y, target)
			return op.Mean(op.Mul(d, d), nil, false)
		}
		const m = 8
		p, err := pipeline.NewPipeline(model, names(2), pipeline.Options{Chunks: m, Schedule: name, Loss: loss})
		if err != nil {
			return nil, err
		}
		r := row{what: fmt.Sprintf("%s, %d micro-batches", name, m), picture: name == "1f1b"}
		if r.measured, err = measure(p, op.Rand(samples, width), op.Rand(samples, width)); err != nil {
			return nil, err
		}
		schedule, err := p.Schedule(m)
		if err != nil {
			return nil, err
		}
		if r.predicted, err = schedule.Simulate(r.measured.Costs()); err != nil {
			return nil, err
		}
		rows = append(rows, r)
		if err := p.Release(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}
