// Command pipeline compares what the simulator of pipelines predicts with what is measured, and writes a report with both
// timelines.
//
//	go run ./benchmarks/pipeline
//	go run ./benchmarks/pipeline -devices gpu:0,gpu:1
//
// Stages that sleep show the executor alone, on any number of cores; stages that compute show a model. With -devices, a GPT is trained
// on these; one device may stand there several times.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/plait-ml/plait/benchmarks/internal/gpt"
	"github.com/plait-ml/plait/core"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/parallel/pipeline"
)

func main() {
	out := flag.String("o", "", "the report's file")
	on := flag.String("devices", "", "train a GPT on these, in place of the other measurements")
	model := flag.String("model", "gpt2", "the GPT: gpt2, small or tiny")
	chunks := flag.Int("chunks", 8, "micro-batches of a GPT")
	schedules := flag.String("schedules", strings.Join(pipeline.Names(), ","), "the schedules of a GPT")
	flag.Parse()
	sections := onCPUs
	name := "-pipeline.md"
	if *on != "" {
		s, ok := gpt.Shapes[*model]
		if !ok {
			fail(fmt.Errorf("there is no model %q", *model))
		}
		g := &training{s, strings.Split(*on, ","), *chunks, strings.Split(*schedules, ",")}
		g.Batch = max(g.Batch, g.chunks)
		about, err := g.about()
		if err != nil {
			fail(err)
		}
		sections = []section{{s.Name, about, g.rows}}
		name = "-pipeline-gpt.md"
	}
	if *out == "" {
		*out = filepath.Join("benchmarks", "reports", time.Now().Format("2006-01-02")+name)
	}
	if err := run(*out, sections); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "pipeline:", err)
	os.Exit(1)
}

// A section is a part of the report.
type section struct {
	title, about string
	rows         func() ([]row, error)
}

var onCPUs = []section{
	{"Stages that sleep, of equal cost", fmt.Sprintf("%d devices; of a device's share of a micro-batch, the forward pass, the gradients of its input and those of its weights take %v each.", devices, unit), equal},
	{"Stages that sleep, of unequal cost", "The same with devices that take " + fmt.Sprint(unequalCosts[:devices]) + " times as long.", unequal},
	{"Stages that compute", fmt.Sprintf("A sequence of %d blocks of width %d on two CPU devices, %d samples; predicted from the stages' median times in the same step.", blocks, width, samples), computing},
}

// A row is a schedule with what was predicted of it and what came out.
type row struct {
	what                string
	predicted, measured *pipeline.Timeline
	picture             bool
}

// ratio returns the measured time over the predicted.
func (r row) ratio() float64 { return r.measured.Time / r.predicted.Time }

func run(out string, sections []section) error {
	var s strings.Builder
	fmt.Fprintf(&s, "# Pipelines, predicted and measured, %s\n\n", time.Now().Format("2 January 2006"))
	fmt.Fprintf(&s, "```sh\n%s\n```\n\n%d cores; %s; load average before the run %s. Each figure is the best of %d steps by time; a bubble is the part of the devices' time in which they do nothing.\n", command(), runtime.NumCPU(), runtime.Version(), load(), steps)
	folder := strings.TrimSuffix(out, ".md")
	for _, section := range sections {
		rows, err := section.rows()
		if err != nil {
			return err
		}
		fmt.Fprintf(&s, "\n## %s\n\n%s\n\n", section.title, section.about)
		s.WriteString("| schedule | predicted ms | measured ms | measured / predicted | predicted bubble | measured bubble |\n| --- | --: | --: | --: | --: | --: |\n")
		for _, r := range rows {
			fmt.Fprintf(&s, "| %s | %.1f | %.1f | %.3f | %.2f %% | %.2f %% |\n", r.what, 1e3*r.predicted.Time, 1e3*r.measured.Time, r.ratio(), 100*r.predicted.Bubble, 100*r.measured.Bubble)
		}
		for _, r := range rows {
			if !r.picture {
				continue
			}
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
			name := strings.NewReplacer(" ", "-", ",", "", "/", "-").Replace(strings.ToLower(section.title+" "+r.what)) + ".svg"
			if err := os.WriteFile(filepath.Join(folder, name), []byte(pipeline.Plot("s", r.predicted, r.measured)), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(&s, "\n![%s: predicted above, measured below](%s/%s)\n", r.what, filepath.Base(folder), name)
		}
	}
	return os.WriteFile(out, []byte(s.String()), 0o644)
}

// command returns how the report is made again.
func command() string {
	line := "go run ./benchmarks/pipeline"
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "o" {
			line += fmt.Sprintf(" -%s %s", f.Name, f.Value)
		}
	})
	return line
}

// steps is how often a step is measured.
const steps = 5

// warm is how long steps go before, in which programs are compiled and clocks rise.
var warm = time.Second

// best returns the timeline of the step that the rest of the machine disturbed least.
func best(step func() (*pipeline.Timeline, error)) (*pipeline.Timeline, error) {
	var all []*pipeline.Timeline
	for start := time.Now(); len(all) < steps; {
		cold := time.Since(start) < warm
		t, err := step()
		if err != nil {
			return nil, err
		}
		if !cold {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *pipeline.Timeline) int { return int(1e9 * (a.Time - b.Time)) })
	return all[0], nil
}

func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}

// names returns so many CPU devices.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("cpu:", i)
	}
	return list
}

// measure runs steps of a pipeline and returns the best one's timeline.
func measure(p *pipeline.Pipeline, x, target *core.Tensor) (*pipeline.Timeline, error) {
	return best(func() (t *pipeline.Timeline, err error) {
		core.Tidy(func() {
			if _, _, err = p.Step(x, target); err == nil {
				t = p.Measured()
			}
		})
		return t, err
	})
}
