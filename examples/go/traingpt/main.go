// Command traingpt trains a small GPT on Go's own source tree, one character at a time, and shows what it learnt.
//
//	go run ./examples/go/traingpt    # or: make train-go
//
// It reports the loss on text that it does not train on, saves a checkpoint shortly before the end, and afterwards loads it
// into a second model and repeats the last steps: both must come out the same, bit for bit. It exits with an error if they
// do not, or if the loss has not fallen clearly below its start.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/plait-ml/plait/core/nn"
)

func main() {
	var o options
	flag.StringVar(&o.text, "text", "", "folder of Go files; without it, the standard library's source")
	flag.IntVar(&o.limit, "bytes", 4<<20, "how much text to read")
	flag.IntVar(&o.Width, "width", 128, "width of the model")
	flag.IntVar(&o.Layers, "layers", 4, "transformer blocks")
	flag.IntVar(&o.Heads, "heads", 4, "attention heads in a block")
	flag.IntVar(&o.Context, "context", 64, "characters that the model sees at once")
	flag.Float64Var(&o.Dropout, "dropout", 0.02, "share of activations to drop in training")
	flag.IntVar(&o.Batch, "batch", 16, "pieces of text in a step")
	flag.IntVar(&o.Steps, "steps", 700, fmt.Sprintf("training steps, a multiple of %d, and at least %d", passSteps, 2*passSteps))
	flag.Float64Var(&o.LR, "lr", 2e-3, "highest learning rate")
	flag.Uint64Var(&o.Seed, "seed", 1, "seed of all random numbers")
	flag.StringVar(&o.checkpoint, "checkpoint", filepath.Join("checkpoints", "traingpt.safetensors"), "the checkpoint's file")
	flag.BoolVar(&o.resume, "resume", false, "go on from the checkpoint")
	flag.StringVar(&o.prompt, "prompt", "func ", "what the sample begins with")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "traingpt:", err)
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	Config
	text, checkpoint, prompt string
	limit                    int
	resume                   bool
}

func run(ctx context.Context, o options) error {
	if o.Steps < 2*passSteps || o.Steps%passSteps != 0 {
		return fmt.Errorf("-steps must be a multiple of %d, and at least %d", passSteps, 2*passSteps)
	}
	if min(o.Batch, o.Context, o.Width, o.Layers, o.Heads) < 1 || o.Width%max(o.Heads, 1) != 0 {
		return fmt.Errorf("-batch, -context, -width, -layers and -heads must be at least 1, and the heads divide the width")
	}
	folder := o.text
	if folder == "" {
		var err error
		if folder, err = goSource(); err != nil {
			return err
		}
	}
	text, err := readCorpus(folder, o.limit)
	if err != nil {
		return err
	}
	var t *trainer
	if o.resume {
		t, err = loadTrainer(o.checkpoint, text)
	} else {
		t, err = newTrainer(o.Config, text)
	}
	if err != nil {
		return err
	}
	fmt.Printf("text: %d characters of %d kinds from %s\n", len(text.train)+len(text.valid), len(text.alphabet), folder)
	fmt.Printf("model: %d parameters in %d layers\n", nn.NumParameters(t.model), t.config.Layers)

	first, err := t.validate()
	if err != nil {
		return err
	}
	fmt.Printf("loss before training: %.3f\n", first)
	show := newProgress(os.Stdout, t.config.Steps, t.step)
	saved := t.config.Steps - passSteps
	for t.step < saved {
		if err := t.pass(ctx, show.step); err != nil {
			return err
		}
		if t.step%(5*passSteps) == 0 {
			loss, err := t.validate()
			if err != nil {
				return err
			}
			show.say("step %d: loss on other text %.3f", t.step, loss)
		}
	}
	if err := t.save(o.checkpoint); err != nil {
		return err
	}
	show.say("saved %s at step %d", o.checkpoint, t.step)
	if err := t.pass(ctx, show.step); err != nil {
		return err
	}
	show.done()

	last, err := t.validate()
	if err != nil {
		return err
	}
	fmt.Printf("loss after training: %.3f, from %.3f, in %s\n", last, first, show.elapsed().Round(time.Second))
	sample, err := t.sample(o.prompt, 400)
	if err != nil {
		return err
	}
	fmt.Printf("a sample:\n\n%s\n\n", sample)
	if err := sameAfterReload(ctx, o.checkpoint, text, t); err != nil {
		return err
	}
	fmt.Printf("loaded %s and trained its last %d steps again: the same, bit for bit\n", o.checkpoint, passSteps)
	if !o.resume && !(last < 0.6*first) {
		return fmt.Errorf("the loss fell too little, from %.3f to %.3f", first, last)
	}
	return nil
}

// sameAfterReload trains a second trainer from a checkpoint to where t is and compares all that they consist of.
func sameAfterReload(ctx context.Context, checkpoint string, text *corpus, t *trainer) error {
	want, err := t.digest() // first, because both draw from the same generator
	if err != nil {
		return err
	}
	again, err := loadTrainer(checkpoint, text)
	if err != nil {
		return err
	}
	for again.step < t.step {
		if err := again.pass(ctx, func(int, float64) {}); err != nil {
			return err
		}
	}
	got, err := again.digest()
	if err != nil {
		return err
	}
	if got != want {
		return errors.New("training from the checkpoint gave another model than going on without it")
	}
	return nil
}
