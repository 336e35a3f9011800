package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plait-ml/plait/benchmarks/internal/gpt"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/pipeline"
)

// A training is a GPT to be trained on devices, a stage or more on each.
type training struct {
	gpt.Shape
	devices   []string
	chunks    int
	schedules []string
}

// about says what was measured.
func (g *training) about() (string, error) {
	var names []string
	for _, d := range g.devices {
		dev, err := core.OpenDevice(d)
		if err != nil {
			return "", err
		}
		if card, ok := dev.(*gpu.Device); ok {
			d += " (" + card.Name() + ")"
		}
		names = append(names, d)
	}
	one, err := g.oneDevice()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s on %s, a batch of %d x %d tokens in %d micro-batches. A step forward and backward on %s alone takes %.1f ms. "+
		"Predicted from the times that stages and their copies take while nothing else runs: micro-batches go through one by one.",
		g.Name, strings.Join(names, ", "), g.Batch, g.Context, g.chunks, g.devices[0], 1e3*one), nil
}

// oneDevice returns the seconds of a step without a pipeline.
func (g *training) oneDevice() (least float64, err error) {
	core.Tidy(func() {
		var dev core.Device
		if dev, err = core.OpenDevice(g.devices[0]); err != nil {
			return
		}
		var made *gpt.GPT
		if made, err = gpt.New(g.Shape, dev); err != nil {
			return
		}
		x, target := g.Text(0, dev)
		for i := range steps + 1 {
			start := time.Now()
			core.Tidy(func() { err = autograd.Backward(made.Loss(made.Tensors(), x, target)) })
			if err == nil {
				err = dev.Synchronize()
			}
			if err != nil {
				return
			}
			if seconds := time.Since(start).Seconds(); i == 1 || i > 0 && seconds < least {
				least = seconds
			}
		}
		for _, p := range made.Tensors() {
			p.SetGrad(nil)
		}
	})
	return least, err
}

func (g *training) rows() ([]row, error) {
	var rows []row
	for _, name := range g.schedules {
		r, err := g.one(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// one measures a schedule.
func (g *training) one(name string) (r row, err error) {
	core.Tidy(func() {
		var p *pipeline.Pipeline
		var cpu core.Device
		if cpu, err = core.OpenDevice("cpu"); err != nil {
			return
		}
		var made *gpt.GPT
		if made, err = gpt.New(g.Shape, cpu); err != nil {
			return
		}
		model, costs := made.Modules()
		for _, p := range nn.Parameters(model) {
			p.Keep()
		}
		var schedule *pipeline.Schedule
		if schedule, err = pipeline.New(name, len(g.devices), g.chunks, 0); err != nil {
			return
		}
		o := pipeline.Options{Chunks: g.chunks, Loss: g.Score}
		if o.Split, err = pipeline.Balance(costs, schedule.Stages()); err != nil {
			return
		}
		x, target := g.Text(0, cpu)
		run := func(s *pipeline.Schedule) (t *pipeline.Timeline) {
			if err != nil {
				return nil
			}
			o.Custom = s
			if p, err = pipeline.NewPipeline(model, g.devices, o); err != nil {
				return nil
			}
			if t, err = measure(p, x, target); err == nil {
				err = p.Release()
			}
			return t
		}
		// First the schedule, which keeps all devices busy: a card that waits for most of the time stays at its lowest clock.
		r = row{what: fmt.Sprintf("%s, %d micro-batches", name, g.chunks), picture: true, measured: run(schedule)}
		serial := run(oneByOne(schedule))
		if err != nil {
			return
		}
		taken := serial.Costs()
		taken.Link = links(serial, schedule.Devices())
		taken.NoOverlap = strings.HasPrefix(g.devices[0], "gpu") // by WebGPU, a device has one queue
		taken.Ties = ties(model, o.Split, schedule.Devices(), 4*g.Batch/g.chunks*g.Context*g.Width, taken.Link)
		if r.predicted, err = schedule.Simulate(taken); err != nil {
			return
		}
		for _, m := range []nn.Module{model, p} {
			for _, q := range nn.Parameters(m) {
				q.SetGrad(nil)
				q.Release()
			}
		}
	})
	return r, err
}

// oneByOne returns a schedule with the same passes in which a micro-batch begins when the one before it has ended.
func oneByOne(s *pipeline.Schedule) *pipeline.Schedule {
	out := &pipeline.Schedule{Name: s.Name + ", one by one", Rows: make([][]pipeline.Action, len(s.Rows))}
	add := func(k pipeline.Kind, stage, micro int) {
		d := s.Devices()[stage]
		out.Rows[d] = append(out.Rows[d], pipeline.Action{Kind: k, Stage: stage, Micro: micro})
	}
	for i := range s.Micro() {
		for stage := range s.Stages() {
			add(pipeline.Forward, stage, i)
		}
		for stage := s.Stages() - 1; stage >= 0; stage-- {
			if s.Splits() {
				add(pipeline.InputGrad, stage, i)
				add(pipeline.WeightGrad, stage, i)
			} else {
				add(pipeline.Backward, stage, i)
			}
		}
	}
	return out
}

// links returns the median times of tensors between stages on different devices, of a timeline in which they are waited for.
func links(t *pipeline.Timeline, place []int) []float64 {
	span := map[pipeline.Action]pipeline.Span{}
	for _, row := range t.Spans {
		for _, x := range row {
			span[x.Action] = x
		}
	}
	seconds := make([]float64, len(place)-1)
	for s := range seconds {
		if place[s] == place[s+1] {
			continue
		}
		var list []float64
		for a, x := range span {
			if before, ok := span[pipeline.Action{Kind: a.Kind, Stage: s, Micro: a.Micro}]; ok && a.Stage == s+1 && a.Kind == pipeline.Forward {
				list = append(list, max(0, x.Start-before.End))
			}
		}
		if slices.Sort(list); len(list) > 0 {
			seconds[s] = list[len(list)/2]
		}
	}
	return seconds
}

// ties returns the tensors that stages on several devices share, with the times of their gradients at the speed at which the links
// carry what goes from stage to stage, so many bytes of it.
func ties(model *nn.Sequential, split, place []int, bytes int, links []float64) (list []pipeline.Tie) {
	speed, n := 0.0, 0 // seconds a byte, on average over the links
	for _, s := range links {
		if s > 0 {
			speed += s / float64(bytes)
			n++
		}
	}
	speed /= float64(max(n, 1))
	stages := map[*core.Tensor][]int{}
	var order []*core.Tensor
	at := 0
	for s, n := range split {
		for _, l := range model.Layers[at : at+n] {
			for _, t := range nn.Parameters(l) {
				if stages[t] == nil {
					order = append(order, t)
				}
				if !slices.Contains(stages[t], s) {
					stages[t] = append(stages[t], s)
				}
			}
		}
		at += n
	}
	for _, t := range order {
		if s := stages[t]; slices.ContainsFunc(s, func(i int) bool { return place[i] != place[s[0]] }) {
			list = append(list, pipeline.Tie{Stages: s, Time: speed * float64(t.Numel()*t.DType().Size())})
		}
	}
	return list
}
