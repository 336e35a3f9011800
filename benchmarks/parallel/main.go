// Command parallel measures training on several devices, and writes a report.
//
//	go run ./benchmarks/parallel -devices cpu:0,cpu:1
//	go run ./benchmarks/parallel -devices gpu:0,gpu:1 -model gpt2
//
// Both sides of a ratio are measured in one process, and the best time of each counts.
package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/plait-ml/plait/benchmarks/internal/gpt"
	"github.com/plait-ml/plait/core"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/collective"
)

func main() {
	devices := flag.String("devices", "cpu:0,cpu:1", "the devices of the ranks")
	model := flag.String("model", "small", "the model to train: tiny, small or gpt2")
	steps := flag.Int("steps", 5, "steps of training, of which the best counts")
	mib := flag.Int("mib", 64, "the size of the large all-reduce")
	out := flag.String("o", "", "a file to write the report to, too")
	sections := flag.String("only", "collectives,training", "what to measure: collectives, training, overlap")
	link := flag.Float64("link", 0, "MB/s of the links in overlap; 0 for half as long as computation takes")
	drawing := flag.String("trace", "", "a file for a drawing, SVG, of a step of overlap")
	flag.Parse()
	w := io.Writer(os.Stdout)
	if *out != "" {
		f, err := os.Create(*out)
		if err != nil {
			fail(err)
		}
		defer f.Close()
		w = io.MultiWriter(w, f)
	}
	b := &bench{w: w, devices: strings.Split(*devices, ","), steps: *steps, mib: *mib, link: *link, drawing: *drawing}
	var known bool
	if b.model, known = gpt.Shapes[*model]; !known {
		fail(fmt.Errorf("no model %q", *model))
	}
	if err := b.run(strings.Split(*sections, ",")); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "parallel:", err)
	os.Exit(1)
}

type bench struct {
	w       io.Writer
	devices []string
	steps   int
	mib     int
	model   gpt.Shape
	link    float64
	drawing string
}

func (b *bench) run(sections []string) error {
	var names []string
	for _, d := range b.devices {
		dev, err := core.OpenDevice(d)
		if err != nil {
			return err
		}
		if g, ok := dev.(*gpu.Device); ok {
			names = append(names, g.Name())
		} else {
			names = append(names, d)
		}
	}
	fmt.Fprintf(b.w, "%d ranks on %s (%s), %d cores, %s\n\n    go run ./benchmarks/parallel %s\n",
		len(b.devices), strings.Join(b.devices, ", "), strings.Join(names, ", "), runtime.NumCPU(), time.Now().Format("2 January 2006"),
		strings.Join(os.Args[1:], " "))
	for _, s := range []struct {
		name string
		run  func() error
	}{{"collectives", b.collectives}, {"training", b.training}, {"overlap", b.overlap}} {
		if !slices.Contains(sections, s.name) {
			continue
		}
		if err := s.run(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// spawn runs fn on a rank for each device.
func (b *bench) spawn(fn func(r *collective.Rank) error) error {
	return collective.Spawn(len(b.devices), b.devices, collective.Options{Timeout: 2 * time.Minute}, fn)
}

// best returns the least seconds of a call of fn, after one that does not count.
func best(rounds int, fn func() error) (float64, error) {
	least := math.Inf(1)
	for i := range rounds + 1 {
		start := time.Now()
		if err := fn(); err != nil {
			return 0, err
		}
		if i > 0 {
			least = min(least, time.Since(start).Seconds())
		}
	}
	return least, nil
}

// table begins a table.
func (b *bench) table(columns ...string) {
	fmt.Fprintf(b.w, "\n| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
}

func (b *bench) row(cells ...any) {
	parts := make([]string, len(cells))
	for i, c := range cells {
		if v, ok := c.(float64); ok {
			c = fmt.Sprintf("%.3g", v)
			if v >= 1000 {
				c = fmt.Sprintf("%.0f", v)
			}
		}
		parts[i] = fmt.Sprint(c)
	}
	fmt.Fprintf(b.w, "| %s |\n", strings.Join(parts, " | "))
}
