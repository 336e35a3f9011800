// Command graphs writes a graph for each sample of each row of the registry, one as JSON a line, with the elements of what it takes and
// returns. Tests of what graphs are converted to read them.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"

	"github.com/plait-ml/plait/core"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/crosscheck"
	"github.com/plait-ml/plait/core/graph"
	"github.com/plait-ml/plait/core/op"
)

// An array is a tensor: its elements, and the value that it is in the graph.
type array struct {
	Value  int      `json:"value"`
	DType  string   `json:"dtype"`
	Shape  []int    `json:"shape"`
	Values []string `json:"values"`
}

type line struct {
	Row       string        `json:"row"`
	Sample    int           `json:"sample"`
	InPlace   bool          `json:"in_place"`
	Loose     float64       `json:"loose"`
	Values    []graph.Value `json:"values"`
	Nodes     []graph.Node  `json:"nodes"`
	Inputs    []array       `json:"inputs"`
	Constants []array       `json:"constants"`
	Outputs   []array       `json:"outputs"`
}

func main() {
	runtime.LockOSThread() // a recording is a thread's
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for _, r := range op.Rows() {
		for i, s := range r.Samples {
			for _, inPlace := range []bool{false, true} {
				if inPlace && (r.InPlace == nil || i > 0) || !inPlace && r.Func == nil {
					continue
				}
				l, err := record(r, s, inPlace)
				if err != nil {
					fmt.Fprintf(os.Stderr, "%s, sample %d: %v\n", r.Name, i, err)
					continue
				}
				l.Sample = i
				if err := encoder.Encode(l); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		}
	}
}

// record returns the graph of a sample, in float32 where it leaves the dtype open.
func record(r *op.Row, s op.Sample, inPlace bool) (l *line, err error) {
	device, err := core.OpenDevice("cpu:0")
	if err != nil {
		return nil, err
	}
	m := &crosscheck.Maker{Device: device, DType: core.Float32, Rand: crosscheck.Rand(r.Name+s.Name, 1)}
	args, _ := m.Arguments(s)
	l = &line{Row: r.Name, InPlace: inPlace, Loose: s.Loose}
	core.NoGrad(func() {
		core.Tidy(func() { err = l.fill(r, args, inPlace) })
	})
	return l, err
}

func (l *line) fill(r *op.Row, args []any, inPlace bool) error {
	g, err := graph.Begin()
	if err != nil {
		return err
	}
	defer g.End()
	input := func(t *core.Tensor) (*core.Tensor, error) {
		in := g.Input(t)
		if in.Err() != nil {
			return nil, in.Err()
		}
		v, err := g.ValueOf(in)
		if err != nil {
			return nil, err
		}
		a, err := arrayOf(t, v)
		l.Inputs = append(l.Inputs, a)
		return in, err
	}
	for i, a := range args {
		switch x := a.(type) {
		case *core.Tensor:
			if x == nil || x.IsNumber() {
				continue
			}
			if args[i], err = input(x); err != nil {
				return err
			}
		case []*core.Tensor:
			list := make([]*core.Tensor, len(x))
			for j, t := range x {
				if t == nil {
					continue
				}
				if list[j], err = input(t); err != nil {
					return err
				}
			}
			args[i] = list
		}
	}
	call := r.Call
	if inPlace {
		call = r.CallInPlace
	}
	for _, t := range call(args...) {
		if t.Err() != nil {
			return t.Err()
		}
		v, err := g.ValueOf(t)
		if err != nil {
			return err
		}
		if p := t.Parts(); p != nil {
			t = p.Local()
		}
		a, err := arrayOf(t, v)
		if err != nil {
			return err
		}
		l.Outputs = append(l.Outputs, a)
	}
	for _, c := range g.Constants {
		a, err := arrayOf(c.Tensor, c.Value)
		if err != nil {
			return err
		}
		l.Constants = append(l.Constants, a)
	}
	l.Values, l.Nodes = g.Values, g.Nodes
	return nil
}

// arrayOf returns the elements of an ordinary tensor, none of complex numbers.
func arrayOf(t *core.Tensor, v int) (array, error) {
	a := array{Value: v, DType: t.DType().String(), Shape: append([]int{}, t.Shape()...), Values: []string{}}
	if t.DType().IsComplex() {
		return a, nil
	}
	values, err := core.Values[float64](t)
	for _, x := range values {
		switch {
		case math.IsNaN(x):
			a.Values = append(a.Values, "nan")
		default:
			a.Values = append(a.Values, fmt.Sprintf("%.17g", x))
		}
	}
	return a, err
}
