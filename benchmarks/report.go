package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/plait-ml/plait/core/cpu/blas"
)

// render writes the report.
func render(results []result, load string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "# Benchmarks, %s\n\n", time.Now().Format("2 January 2006"))
	fmt.Fprintf(&s, "```sh\nmake bench\n```\n\n")
	fmt.Fprintf(&s, "%s, %d cores; %s; %s; commit %s. Products: %s.\n\n",
		processor(), runtime.NumCPU(), runtime.Version(), firstLine("cc", "--version"), firstLine("git", "rev-parse", "--short", "HEAD"), engine())
	if load != "" {
		fmt.Fprintf(&s, "Load average of the machine before the run: %s. Where others used its cores, figures for as many threads as cores say little.\n\n", load)
	}
	s.WriteString("Ratios are of speeds, ours over theirs, each the best of several turns in one run; those under their goal are bold.\n")
	for _, section := range sections {
		fmt.Fprintf(&s, "\n## %s\n\n", section.title)
		if section.note != "" {
			fmt.Fprintf(&s, "%s\n\n", section.note)
		}
		fmt.Fprintf(&s, "| | threads | %s | %s | ratio | goal |\n| --- | --: | --: | --: | --: | --: |\n", section.columns[0], section.columns[1])
		for _, r := range results {
			if r.Section != section.name {
				continue
			}
			ratio, goal := fmt.Sprintf("%.2f", r.Ratio), ""
			if r.Goal > 0 {
				goal = fmt.Sprintf("%.2f", r.Goal)
				if r.Ratio < r.Goal {
					ratio = "**" + ratio + "**"
				}
			}
			fmt.Fprintf(&s, "| %s | %d | %s | %s | %s | %s |\n", r.Name, r.Threads, r.Ours, r.Against, ratio, goal)
		}
	}
	return s.String()
}

// loadAverage returns the average number of running processes in the last minute, or "" where it is not known.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(info)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				return strings.TrimLeft(strings.TrimSpace(name), "\t :")
			}
		}
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}

func firstLine(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// engine says what computes matrix products by default.
func engine() string {
	if err := os.Setenv("PLAIT_BLAS", "auto"); err != nil {
		return err.Error()
	}
	blas.SetPath("")
	info, err := blas.Info()
	if err != nil {
		return err.Error()
	}
	return info.String()
}
