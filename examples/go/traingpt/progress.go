package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// progress shows how far training is: on a terminal in one line that is written over, elsewhere in a line now and then.
type progress struct {
	out          *os.File
	terminal     bool
	steps, first int
	start, shown time.Time
}

func newProgress(out *os.File, steps, first int) *progress {
	stat, err := out.Stat()
	return &progress{
		out: out, steps: steps, first: first, start: time.Now(),
		terminal: err == nil && stat.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb",
	}
}

// step reports a step and its loss.
func (p *progress) step(n int, loss float64) {
	if p.terminal {
		if time.Since(p.shown) > 100*time.Millisecond {
			p.shown = time.Now()
			const width = 30
			full := width * n / p.steps
			fmt.Fprintf(p.out, "\r\x1b[K%s%s %d/%d  loss %.3f  %s",
				strings.Repeat("#", full), strings.Repeat(".", width-full), n, p.steps, loss, p.pace(n))
		}
	} else if n%100 == 0 {
		fmt.Fprintf(p.out, "step %d of %d: loss %.3f, %s\n", n, p.steps, loss, p.pace(n))
	}
}

func (p *progress) pace(n int) string {
	each := time.Since(p.start) / time.Duration(max(n-p.first, 1))
	left := each * time.Duration(p.steps-n)
	return fmt.Sprintf("%.0f ms a step, %s left", each.Seconds()*1e3, left.Round(time.Second))
}

// say prints a line of its own.
func (p *progress) say(format string, args ...any) {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *progress) done() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func (p *progress) elapsed() time.Duration { return time.Since(p.start) }
