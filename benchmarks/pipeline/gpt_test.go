package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/benchmarks/internal/gpt"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/pipeline"
)

func TestMain(m *testing.M) {
	os.Setenv("PLAIT_SOFTWARE_GPU", "2")
	warm = 0 // the figures are not looked at
	os.Exit(m.Run())
}

// TestOneByOne has the stages' own times without anything that runs beside them.
func TestOneByOne(t *testing.T) {
	for _, name := range pipeline.Names() {
		s, err := pipeline.New(name, 3, 5, 0)
		require.NoError(t, err)
		serial := oneByOne(s)
		require.NoError(t, serial.Validate(), name)
		link := make([]float64, s.Stages()-1)
		place := s.Devices()
		for i := range link {
			if place[i] != place[i+1] {
				link[i] = 0.25
			}
		}
		timeline, err := serial.Simulate(pipeline.Costs{Link: link})
		require.NoError(t, err)
		require.Equal(t, link, links(timeline, place), name)
		taken := timeline.Costs()
		for i := range s.Stages() {
			require.Equal(t, 1.0, taken.Forward[i], name)
			require.InDelta(t, 2, taken.Input[i]+taken.Weight[i], 1e-9, name)
		}
	}
}

// TestTies has the table of tokens in the first and the last of three stages, on links that carry 100 bytes in 2 and in 3 seconds.
func TestTies(t *testing.T) {
	made, err := gpt.New(gpt.Shape{Name: "GPT 3x4", Kinds: 5, Context: 3, Width: 4, Layers: 3, Heads: 1, Batch: 2}, cpu(t))
	require.NoError(t, err)
	model, _ := made.Modules()
	split := []int{1, 1, len(model.Layers) - 2}
	require.Equal(t, []pipeline.Tie{{Stages: []int{0, 2}, Time: 2}}, ties(model, split, []int{0, 1, 2}, 100, []float64{2, 3}))
	require.Equal(t, []pipeline.Tie{{Stages: []int{0, 2}, Time: 1.6}}, ties(model, split, []int{0, 0, 1}, 100, []float64{0, 2}))
	require.Empty(t, ties(model, split, []int{0, 1, 0}, 100, []float64{2, 3}))
}

func cpu(t *testing.T) core.Device {
	dev, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	return dev
}

// TestTinyGPT measures a small model where it can.
func TestTinyGPT(t *testing.T) {
	places := [][]string{{"cpu:0", "cpu:1"}}
	if gpu.Count() > 1 {
		places = append(places, []string{"gpu:0", "gpu:1"}, []string{"gpu:0", "gpu:0"})
	}
	for _, devices := range places {
		g := &training{gpt.Shape{Name: "GPT 6x32", Kinds: 17, Context: 16, Width: 32, Layers: 6, Heads: 2, Batch: 4}, devices, 2, []string{"1f1b", "zb-v"}}
		about, err := g.about()
		require.NoError(t, err)
		require.Contains(t, about, "alone takes")
		rows, err := g.rows()
		require.NoError(t, err)
		require.Len(t, rows, 2)
		for _, r := range rows {
			require.Positive(t, r.predicted.Time, "%s on %v", r.what, devices)
			for d := range devices {
				require.Len(t, r.measured.Spans[d], len(r.predicted.Spans[d]), "%s on %v", r.what, devices)
			}
		}
	}
}
