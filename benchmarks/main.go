// Command benchmarks measures Plait against what else the machine can do, and writes a report of ratios.
//
//	go run ./benchmarks               # or: make bench
//	go run ./benchmarks -only matmul  # some sections, by name; no report
//	go run ./benchmarks -only memory -rows tanh
//
// Both sides of a ratio are measured in turns, in one process, and the best time of each counts: on a machine that others
// use too, that is the one they disturbed least. Each number of threads has a process of its own.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// result is one row of the report.
type result struct {
	Section string
	Name    string
	Threads int
	Ours    string
	Against string
	Ratio   float64 // of speeds: above 1, ours is the faster
	Goal    float64 // for Ratio; 0 for none
}

// rows is a part of the names of the operations on memory that are measured.
var rows string

// section is a part of the report.
type section struct {
	name, title string
	columns     [2]string // of Ours and Against
	run         func(b *bench)
	note        string // what the reader should know of the other side
}

var sections = []section{
	{"matmul", "Matrix products, float32, against OpenBLAS called alone", [2]string{"GFLOP/s", "OpenBLAS GFLOP/s"}, matmuls, ""},
	{"memory", "Operations past the caches, against memcpy", [2]string{"GB/s", "memcpy GB/s"}, memoryBound, ""},
	{"cache", "Operations inside the second cache, against memcpy", [2]string{"GB/s", "memcpy GB/s"}, cacheBound, ""},
	{"fixed", "Operations on 1000 x 1000, against fixed figures", [2]string{"ms", "their ms"}, operations, rumusNote},
	{"train", "Training steps, against fixed figures", [2]string{"ms", "their ms"}, trainingSteps, rumusNote + " " + torchNote},
	{"enqueue", "Enqueueing an operation on 1000 elements, against a fixed figure", [2]string{"us", "goal us"}, enqueue, ""},
}

func main() {
	only := flag.String("only", "", "comma-separated names of sections to run, without a report")
	flag.StringVar(&rows, "rows", "", "a part of the names of the operations on memory to measure, without a report")
	out := flag.String("o", filepath.Join("benchmarks", "reports", time.Now().Format("2006-01-02")+".md"), "the report's file")
	child := flag.Bool("child", false, "run the sections in this process and print their results")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "benchmarks: unexpected argument", flag.Arg(0))
		os.Exit(2)
	}
	var err error
	if *child {
		err = measure(*only)
	} else {
		err = report(*only, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// measure runs sections and prints their results, one JSON object a line.
func measure(only string) error {
	threads, err := strconv.Atoi(os.Getenv("PLAIT_NUM_THREADS"))
	if err != nil {
		return fmt.Errorf("PLAIT_NUM_THREADS: %w", err)
	}
	b := &bench{threads: threads, emit: json.NewEncoder(os.Stdout)}
	for _, s := range sections {
		if b.err == nil && selected(s.name, only) {
			b.section = s.name
			s.run(b)
		}
	}
	return b.err
}

func selected(name, only string) bool {
	if only == "" {
		return true
	}
	for part := range strings.SplitSeq(only, ",") {
		if part == name {
			return true
		}
	}
	return false
}

// report runs a process for each number of threads and writes what they print.
func report(only, out string) error {
	for part := range strings.SplitSeq(only, ",") {
		known := part == ""
		for _, s := range sections {
			known = known || s.name == part
		}
		if !known {
			return fmt.Errorf("no section %q", part)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	load := loadAverage()
	var results []result
	for threads := 1; threads <= min(runtime.NumCPU(), 2); threads++ {
		cmd := exec.Command(self, "-child", "-only", only, "-rows", rows)
		cmd.Env = append(cmd.Environ(), fmt.Sprint("PLAIT_NUM_THREADS=", threads))
		cmd.Stderr = os.Stderr
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		for lines := json.NewDecoder(pipe); ; {
			var r result
			if lines.Decode(&r) != nil {
				break
			}
			results = append(results, r)
			fmt.Printf("%-8s %-38s %d threads  %9s  %9s  %5.2f%s\n", r.Section, r.Name, r.Threads, r.Ours, r.Against, r.Ratio, verdict(r))
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%d threads: %w", threads, err)
		}
	}
	if only != "" || rows != "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(out, []byte(render(results, load)), 0o666); err != nil {
		return err
	}
	fmt.Println("report:", out)
	return nil
}

func verdict(r result) string {
	if r.Goal > 0 && r.Ratio < r.Goal {
		return fmt.Sprintf("  (goal %.2f)", r.Goal)
	}
	return ""
}
