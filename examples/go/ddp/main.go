// Command ddp trains a small network on several ranks, threads of this program with a CPU device each, and shows that it
// learns what one device learns from the joined batches.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
)

// batchSize is the number of samples in a step, of all ranks together.
const batchSize = 24

func main() {
	ranks := flag.Int("ranks", 2, "ranks to train on")
	steps := flag.Int("steps", 600, "steps to train for")
	flag.Parse()
	if err := run(*ranks, *steps, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run trains on one device and on ranks, and prints both losses.
func run(ranks, steps int, out io.Writer) error {
	if ranks < 1 || steps < 1 {
		return fmt.Errorf("-ranks and -steps must be at least 1, got %d and %d", ranks, steps)
	}
	alone, err := train(network(), steps, 0, batchSize)
	if err != nil {
		return err
	}
	losses := make([]float64, ranks)
	err = collective.Spawn(ranks, nil, collective.Options{}, func(r *collective.Rank) error {
		var err error
		losses[r.Rank], err = trainRank(r, steps)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "loss on one device %.6f, on %d ranks %.6f\n", alone, ranks, losses[0])
	return nil
}

// trainRank trains one rank's copy on its part of each batch.
func trainRank(r *collective.Rank, steps int) (loss float64, err error) {
	p, err := ddp.New(network(), r.World, ddp.Options{Weighted: true}) // parts of a batch may differ by a sample
	if err != nil {
		return 0, err
	}
	from, to := r.Rank*batchSize/r.World.Size(), (r.Rank+1)*batchSize/r.World.Size()
	if loss, err = train(p, steps, from, to); err != nil {
		return 0, err
	}
	return loss, p.Close()
}

// train fits layer on the samples [from, to) of each batch and returns its loss on other samples.
func train(layer nn.Layer, steps, from, to int) (loss float64, err error) {
	o, err := optim.NewAdam(nn.Parameters(layer), optim.Hyper{"lr": 0.02})
	if err != nil {
		return 0, err
	}
	for s := range steps {
		core.Tidy(func() {
			x, y := samples(s, from, to)
			o.ZeroGrad()
			if err = autograd.Backward(op.MSELoss(nn.Call(layer, x), y, "mean")); err == nil {
				err = o.Step()
			}
		})
		if err != nil {
			return 0, err
		}
	}
	core.NoGrad(func() {
		core.Tidy(func() {
			x, y := samples(-1, 0, 200)
			loss, err = op.MSELoss(nn.Call(layer, x), y, "mean").Item()
		})
	})
	return loss, err
}

// network returns the network to train.
func network() nn.Layer {
	core.ManualSeed(1)
	return nn.NewSequential(nn.NewLinear(1, 32, nn.LinearOptions{}), nn.NewTanh(), nn.NewLinear(32, 32, nn.LinearOptions{}), nn.NewTanh(),
		nn.NewLinear(32, 1, nn.LinearOptions{}))
}

// samples returns the samples [from, to) of a step's batch: points of a curve.
func samples(step, from, to int) (x, y *core.Tensor) {
	var a, b []float32
	for i := from; i < to; i++ {
		v := math.Mod(float64(step*batchSize+i)*math.Phi, 1)*4 - 2
		a, b = append(a, float32(v)), append(b, float32(math.Sin(3*v)/2+v/4))
	}
	return core.FromSlice(a, len(a), 1), core.FromSlice(b, len(b), 1)
}
